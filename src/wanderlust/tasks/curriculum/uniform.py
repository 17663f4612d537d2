"""The interface of curricula, and those whose choice does not depend on results.

These take the environment's own order, all tasks alike, or all kinds of tasks alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from random import Random
from typing import Any, Protocol, Self, runtime_checkable

from wanderlust import plugins
from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.tasks.registry import parse_settings_like
from wanderlust.tasks.selection import MAX_LISTED_TASKS, choose_tasks, find_faulty_tasks, iter_tasks
from wanderlust.types import Group, Task


class Curriculum(Protocol):
    """Owns the choice of tasks; equal states and observations give equal choices."""

    def next(self, step: int, count: int) -> Sequence[Task]:
        """The tasks of one step, one per group. Asked again for the same step it gives others, where there are any."""
        ...

    def observe(self, group: Group) -> None:
        """Learn from a finished group."""
        ...

    def state(self) -> dict[str, Any]:
        """Plain data that `restore` takes back."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        ...


@runtime_checkable
class SupportsMetrics(Protocol):
    """Has figures of its own, for the metrics of each step."""

    def metrics(self) -> dict[str, float]:
        """By name; `curriculum_starved` counts the tasks that were chosen although none is of any use."""
        ...


@runtime_checkable
class SupportsCalibration(Protocol):
    """A curriculum that observes rollouts of the initial model before training."""

    def calibration_tasks(self) -> Sequence[Task]:
        """Tasks that the first model plays, a group each: they are observed, and not learnt from."""
        ...


@runtime_checkable
class TrainsRevisions(Protocol):
    """A curriculum whose groups revise answers: what it trains shows after some revisions, not in first answers."""

    @property
    def revisions(self) -> int:
        """After how many of them a run is measured; 0 measures first answers."""
        ...


class NoUsefulTasksWarning(UserWarning):
    """As far as a curriculum knows, all its tasks are too hard or too easy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCurriculum:
    """What an entry point of the group `wanderlust.curricula` gives: `--curriculum NAME,setting=value` makes it."""

    make: Callable[[Environment, int, Any], Curriculum]
    """Takes the environment, the run's seed, and the settings; raises UsageError for what it does not suit."""
    settings: type[Any] | None = None
    """A dataclass whose fields all have defaults. None: it has no settings, and `make` gets None."""


@dataclass(slots=True)
class ShuffledPasses:
    """The same tasks again and again, each pass shuffled by a key of its own."""

    tasks: Sequence[Task]
    key: str
    _order: tuple[int, list[Task]] = field(init=False, default=(-1, []))

    def at(self, place: int) -> Task:
        """The task at a place of the endless line."""
        number, index = divmod(place, len(self.tasks))
        if self._order[0] != number:
            order = list(self.tasks)
            Random(f"{self.key}/{number}").shuffle(order)
            self._order = number, order
        return self._order[1][index]


@dataclass(frozen=True, slots=True)
class TaskPool:
    """Tasks by their ids, in the environment's order."""

    tasks: tuple[Task, ...]
    by_id: dict[str, Task]

    @classmethod
    def of(cls, tasks: Iterable[Task]) -> Self:
        """The first 10,000 of them. UsageError when there is none, or one that cannot be told apart or kept."""
        listed = choose_tasks(tasks, MAX_LISTED_TASKS)
        if not listed:
            raise UsageError("the environment has no tasks to train on")
        for fault in find_faulty_tasks(listed).values():
            raise UsageError(f"a curriculum cannot choose among these tasks: {fault}")
        by_id = {task.id: task for task in listed}
        return cls(tuple(by_id.values()), by_id)

    @classmethod
    def of_environment(cls, env: Environment) -> Self:
        """Those of its split `train`."""
        return cls.of(iter_tasks(env, "train"))

    def passes(self, key: str) -> ShuffledPasses:
        """All of them, again and again."""
        return ShuffledPasses(self.tasks, key)


@dataclass(frozen=True, slots=True, kw_only=True)
class StratifiedOptions:
    """Settings of a stratified choice."""

    by: str = "level"
    """Key of a task's `info` that says of which kind it is."""


@dataclass(slots=True, kw_only=True)
class UniformCurriculum:
    """Shuffled passes over all tasks; with `kinds` each kind equally often, and within a kind every task.

    UsageError when a task does not say of which kind it is.
    """

    pool: TaskPool
    seed: int
    kinds: StratifiedOptions | None = None
    taken: int = 0
    """Number of tasks handed out so far, which is the whole state."""
    _passes: list[ShuffledPasses] = field(init=False)

    def __post_init__(self) -> None:
        sorted_out: dict[str, list[Task]] = {}
        for task in self.pool.tasks:
            if self.kinds is not None and self.kinds.by not in task.info:
                available = ", ".join(map(repr, task.info)) or "nothing"
                raise UsageError(f"task {task.id!r} has no {self.kinds.by!r} to stratify by; its info has {available}")
            kind = "" if self.kinds is None else str(task.info[self.kinds.by])
            sorted_out.setdefault(kind, []).append(task)
        self._passes = [ShuffledPasses(tasks, f"even/{self.seed}/{kind}") for kind, tasks in sorted(sorted_out.items())]

    def next(self, step: int, count: int) -> list[Task]:
        """The next `count` tasks, the kinds in turn."""
        places = [divmod(at, len(self._passes)) for at in range(self.taken, self.taken + count)]
        self.taken += count
        return [self._passes[kind].at(place) for place, kind in places]

    def observe(self, group: Group) -> None:
        """Nothing: the order is fixed."""

    def state(self) -> dict[str, Any]:
        """The position."""
        return {"taken": self.taken}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved position."""
        self.taken = state["taken"]


def _uniform(env: Environment, seed: int, kinds: StratifiedOptions | None) -> Curriculum:
    return UniformCurriculum(pool=TaskPool.of_environment(env), seed=seed, kinds=kinds)


UNIFORM = NamedCurriculum(make=_uniform)
STRATIFIED = NamedCurriculum(make=_uniform, settings=StratifiedOptions)


@dataclass(slots=True)
class TaskStream:
    """The tasks of an environment in their own order; a stream that ends begins anew.

    `tasks` returns the same stream each time it is called. UsageError when there is no task in it.
    """

    tasks: Callable[[], Iterable[Task]]
    taken: int = 0
    """Number of tasks handed out so far, which is the whole state."""
    _passing: Iterator[Task] = field(init=False)

    def __post_init__(self) -> None:
        self._passing = islice(self._endless(), self.taken, None)

    def next(self, step: int, count: int) -> list[Task]:
        """The next `count` tasks."""
        self.taken += count
        return list(islice(self._passing, count))

    def observe(self, group: Group) -> None:
        """Nothing: the order is fixed."""

    def state(self) -> dict[str, Any]:
        """The position."""
        return {"taken": self.taken}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved position."""
        self.taken = state["taken"]
        self.__post_init__()

    def _endless(self) -> Iterator[Task]:
        while True:
            empty = True
            for task in self.tasks():
                empty = False
                yield task
            if empty:
                raise UsageError("the environment has no tasks to train on")


ENTRY_POINTS, STREAM = "wanderlust.curricula", "stream"


def resolve_curriculum(text: str, env: Environment, *, seed: int, after: int = 0) -> Curriculum:
    """The curriculum of that name over the environment's `train` split; without a name the environment's own order.

    `stream` begins after the first `after` tasks, which a warm-up has used already; all others are entry points.
    Raises UsageError for an unknown name or setting, and for an environment that the curriculum does not suit.
    """
    name = text.partition(",")[0] or STREAM
    if name == STREAM:
        parse_settings_like(text, {})
        return TaskStream(lambda: iter_tasks(env, "train"), taken=after)
    points = plugins.declared(ENTRY_POINTS)
    if name not in points:
        guess = plugins.how_to_install(ENTRY_POINTS, name) or f"there are {', '.join([STREAM, *points])}"
        raise UsageError(f"unknown curriculum {name!r}; {guess}")
    found = plugins.load(points[name])
    if not isinstance(found, NamedCurriculum):
        raise UsageError(f"{points[name].value} is no NamedCurriculum, but a {type(found).__name__}")
    settings = parse_settings_like(text, asdict(found.settings()) if found.settings else {})
    return found.make(env, seed, found.settings(**settings) if found.settings else None)
