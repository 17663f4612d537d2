"""A rubric: weighted, named functions that say what a trajectory is worth.

One part of a rubric: a function, what it counts for, and what it says.

What a reward function can ask for, by the names of its parameters.

Waiting for several answers at once, with errors in an order that timing does not change.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from difflib import get_close_matches
from math import isfinite, prod
from numbers import Real
from typing import Any, Literal, Self, TypeAlias, TypeVar

from wanderlust.errors import RubricFailure, UsageError, WanderlustError, boundary, one_line
from wanderlust.types import Group, Rollout, Score, Task, Trajectory

RewardFunction: TypeAlias = Callable[..., Any]
"""Asks for what it needs by the names of its parameters; returns a number, `Judged`, or an awaitable of either."""
Role: TypeAlias = Literal["reward", "gate", "hidden", "metric"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a reward function may return in place of a number, when there is more to record."""

    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Recorded in the score's metrics as `part/metric`."""
    note: str = ""
    """Recorded in the score's notes under the part's name."""


@dataclass(frozen=True, slots=True)
class Part:
    """A reward function and what it counts for."""

    function: RewardFunction
    weight: float = 1.0
    _: KW_ONLY
    role: Role = "reward"
    """`reward` is added; a `gate` multiplies the sum of its rubric; `hidden` and `metric` are recorded and never
    trained on, and the former is what is wanted: monitors hold the reward against it."""
    name: str = ""
    """What its value is recorded as; the function's own name by default."""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise UsageError(f"a part of a rubric is a function, not {one_line(repr(self.function))}")
        name = self.name or _name(self.function)
        object.__setattr__(self, "name", name)
        if not isinstance(self.weight, Real) or not isfinite(self.weight):
            raise UsageError(f"the weight of {name!r} is {self.weight!r}, which is no finite number")
        if name == "<lambda>":
            raise UsageError("a lambda has no name to be recorded as: Part(function, name=...)")


def gate(function: RewardFunction, *, name: str = "") -> Part:
    """A part that multiplies the sum of the others of its rubric: 0 closes it, 1 leaves it as it is."""
    return Part(function, role="gate", name=name)


def hidden(function: RewardFunction, *, name: str = "") -> Part:
    """A part that stands for what is wanted and never counts: recorded as a metric, and watched by the monitors."""
    return Part(function, role="hidden", name=name)


def metric(function: RewardFunction, *, name: str = "") -> Part:
    """A part that is recorded and never counts; whether it rises or falls says nothing: a length, an outcome."""
    return Part(function, role="metric", name=name)


def number(said: Any) -> float:
    """What a reward function returned, as a finite float. Raises RubricFailure for anything else."""
    if isinstance(said, Real):
        try:
            value = float(said)
        except OverflowError:
            raise RubricFailure("returned a whole number too large for a float") from None
        if isfinite(value):
            return value
    raise RubricFailure(f"returned {_shown(said)}, not a finite number")


def numbers(said: Any, count: int) -> list[float | Judged]:
    """What a function of a group returned: one value per sibling. Raises RubricFailure for anything else."""
    if isinstance(said, str | bytes | Mapping) or not isinstance(said, Iterable):
        raise RubricFailure(f"returned {_shown(said)}, not a list of one number per sibling")
    values = list(said)
    if len(values) != count:
        raise RubricFailure(f"returned {len(values)} values for {count} siblings")
    return values


def _shown(said: Any) -> str:
    if said is None or isinstance(said, float):
        return repr(said)
    if isinstance(said, str):
        return one_line(repr(said[:40]))
    return f"a {type(said).__name__}"  # an object's repr is code that nobody has seen


def _name(function: RewardFunction) -> str:
    inner = getattr(function, "func", function)
    found = getattr(function, "name", None) or getattr(function, "__name__", None) or getattr(inner, "__name__", None)
    return found if isinstance(found, str) else type(function).__name__


COMMON: Mapping[str, Callable[[Rollout, Trajectory], Any]] = {
    "task": lambda rollout, _: rollout.task,
    "prompt": lambda rollout, _: rollout.task.prompt,
    "answer": lambda rollout, _: rollout.task.answer,
    "info": lambda rollout, _: rollout.task.info,
    "seed": lambda rollout, _: rollout.seed,
    "seat": lambda _, trajectory: trajectory.seat,
}
"""The same for all siblings; `prompt` is the task's messages, `answer` its ground truth."""

ALONE: Mapping[str, Callable[[Rollout, Trajectory], Any]] = {
    "completion": lambda _, trajectory: trajectory.turns[-1].action.content if trajectory.turns else "",
    "messages": lambda _, trajectory: trajectory.messages,
    "trajectory": lambda _, trajectory: trajectory,
    "rollout": lambda rollout, _: rollout,
    "state": lambda rollout, _: rollout.state,
    "rewards": lambda _, trajectory: trajectory.score.parts if trajectory.score else {},
}
"""Of one seat of one rollout; `completion` is the text of its last answer, `rewards` what the environment paid."""

TOGETHER: Mapping[str, Callable[[Group, Sequence[Trajectory]], Any]] = {
    "group": lambda group, _: group,
    "rollouts": lambda group, _: group.rollouts,
    "trajectories": lambda _, trajectories: list(trajectories),
    "completions": lambda group, seats: [ALONE["completion"](r, t) for r, t in zip(group.rollouts, seats, strict=True)],
}
"""Of all siblings that were scored, in their order; whoever asks for one of these returns one value per sibling."""

NAMES = frozenset({*COMMON, *ALONE, *TOGETHER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A part, and what its function wants to be called with."""

    part: Part
    names: tuple[str, ...]
    fixed: Mapping[str, Any]
    """Shared resources of its rubric."""
    together: bool
    """Whether it looks at all siblings at once."""

    def call(self, given: Mapping[str, Any]) -> Any:
        """What the function says, or an awaitable of it."""
        return self.part.function(**self.fixed, **{name: given[name] for name in self.names})


def asking(part: Part, resources: Mapping[str, Any]) -> Asking:
    """Look once at what a part's function asks for. Raises UsageError for a name that nobody can give."""
    wanted = _parameters(part.name, part.function, NAMES | resources.keys())
    names = [name for name in wanted if name in NAMES]
    together, alone = [n for n in names if n in TOGETHER], [n for n in names if n in ALONE]
    if together and alone:
        raise UsageError(
            f"the reward function {part.name!r} asks for {together[0]!r}, which is of all siblings, "
            f"and for {alone[0]!r}, which is of one: take it from {together[0]!r}"
        )
    fixed = {name: resources[name] for name in wanted if name in resources}
    return Asking(part=part, names=tuple(names), fixed=fixed, together=bool(together))


def _parameters(name: str, function: RewardFunction, known: Collection[str]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise UsageError(f"the parameters of the reward function {name!r} cannot be read: wrap it in a def") from error
    wanted = []
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UsageError(f"the reward function {name!r} takes {parameter.name!r} by position only: give it by name")
        if parameter.name in known:
            wanted.append(parameter.name)
        elif parameter.default is parameter.empty:
            near = get_close_matches(parameter.name, known, 3, 0.5) or sorted(known)
            told = f"the nearest names are {', '.join(near)}"
            raise UsageError(f"the reward function {name!r} asks for {parameter.name!r}, which nobody gives: {told}")
    return wanted


T = TypeVar("T")


async def settled(waiting: Iterable[Awaitable[T]]) -> list[T | WanderlustError]:
    """What each came to, in their order: its value, or the error that it ended with. Cancelling cancels all."""
    values = list(waiting)
    if len(values) == 1:
        return [await _settle(values[0])]  # a task of its own would cost several times what rubrics do otherwise
    return await asyncio.gather(*map(_settle, values))


async def _settle(value: Awaitable[T]) -> T | WanderlustError:
    try:
        with boundary(RubricFailure):
            return await value
    except WanderlustError as error:
        return error


_ALONE = {**COMMON, **ALONE}
_PLAIN = frozenset({float, int, bool})


class Rubric:
    """Guarantees one Score per trajectory: reward = product of the gates x sum of weight x value.

    Raw values are kept by name, those of hidden parts in `metrics`. Functions ask for what they need by the names
    of their parameters (`asking.py` lists them) and for the rubric's `resources` by theirs; they may be
    asynchronous. Functions of a group are called when all siblings are there; until then they count nothing.

    A function that raises, or returns what is no finite number, is a RubricFailure naming it and the task.
    `a + b` is worth what `a` is worth plus what `b` is worth; gates keep to their own sum.
    """

    def __init__(self, *parts: RewardFunction | Part, **resources: Any):
        """Raises UsageError in one line when a function asks for what nobody can give, or names repeat."""
        for name in resources.keys() & NAMES:
            raise UsageError(f"a resource cannot be called {name!r}: every rollout has one")
        own = tuple(asking(p if isinstance(p, Part) else Part(p), resources) for p in parts)
        if any(a.part.role == "gate" for a in own) and all(a.part.role != "reward" for a in own):
            raise UsageError("a rubric of gates alone has nothing to multiply: give it a part that is no gate")
        self._arrange((own,))

    def __add__(self, other: Rubric) -> Self:
        if not isinstance(other, Rubric):
            return NotImplemented
        both = type(self).__new__(type(self))
        both._arrange(self._terms + other._terms)
        return both

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts, in their order."""
        return tuple(a.part for a in self._all)

    @property
    def compares(self) -> bool:
        """Whether some parts are functions of the group."""
        return bool(self._group)

    def _arrange(self, terms: tuple[tuple[Asking, ...], ...]) -> None:
        self._terms, self._all = terms, tuple(a for term in terms for a in term)
        names = [a.part.name for a in self._all]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise UsageError(f"two parts are called {repeated[0]!r}: give one another name, Part(..., name=...)")
        self._single = tuple(a for a in self._all if not a.together)
        self._group = tuple(a for a in self._all if a.together)
        self._wanted = _wanted(self._single, _ALONE)
        self._sums = tuple(
            (
                tuple(a.part.name for a in term if a.part.role == "gate"),
                tuple((a.part.name, a.part.weight) for a in term if a.part.role == "reward"),
            )
            for term in terms
        )

    async def score(self, rollout: Rollout, trajectory: Trajectory) -> Score:
        """Call every function of one rollout, the asynchronous ones at once."""
        given = {name: _ALONE[name](rollout, trajectory) for name in self._wanted}
        said = await _ask(self._single, given, rollout.task)
        return self._score(zip(self._single, said, strict=True), rollout.task)

    async def compare(self, group: Group, seat: str) -> Sequence[Score]:
        """The seat's scores with the functions of the group, one per rollout; all were scored before."""
        trajectories = [t for rollout in group.rollouts for t in rollout.trajectories if t.seat == seat]
        scores = [t.score for t in trajectories if t.score is not None]
        given = {name: TOGETHER[name](group, trajectories) for name in _wanted(self._group, TOGETHER)}
        given |= {name: COMMON[name](group.rollouts[0], trajectories[0]) for name in _wanted(self._group, COMMON)}
        said = await _ask(self._group, given, group.task)
        columns = []
        for a, values in zip(self._group, said, strict=True):
            with _Blaming(a, group.task), boundary(RubricFailure):
                columns.append(numbers(values, len(scores)))
        rows = zip(*columns, strict=True)
        return [
            self._score(zip(self._group, row, strict=True), group.task, before=score)
            for row, score in zip(rows, scores, strict=True)
        ]

    def _score(self, said: Iterable[tuple[Asking, Any]], task: Task, before: Score | None = None) -> Score:
        parts: dict[str, float] = dict(before.parts) if before else {}
        metrics: dict[str, float] = dict(before.metrics) if before else {}
        notes: dict[str, str] = dict(before.notes) if before else {}
        for a, value in said:
            name, plain = a.part.name, value
            if type(value) is Judged:
                metrics.update((f"{name}/{key}", _number(a, extra, task)) for key, extra in value.metrics.items())
                notes.update({name: value.note} if value.note else {})
                plain = value.value
            (metrics if a.part.role in ("hidden", "metric") else parts)[name] = _number(a, plain, task)
        return Score(reward=self._reward(parts, task), parts=parts, metrics=metrics, notes=notes)

    def _reward(self, values: Mapping[str, float], task: Task) -> float:
        total = 0.0
        for gates, weighted in self._sums:
            paid = sum([weight * values[name] for name, weight in weighted if name in values])
            total += paid * prod([values[name] for name in gates if name in values]) if gates else paid
        if not isfinite(total):
            raise RubricFailure(f"the weighted sum on task {task.id!r} is no finite number: {one_line(str(values))}")
        return total


def _wanted(parts: Iterable[Asking], known: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in known if any(name in a.names for a in parts))


async def _ask(parts: Sequence[Asking], given: Mapping[str, Any], task: Task) -> list[Any]:
    """What every part said, in their order. The first one that failed is raised, once all have come to an end."""
    said: list[Any] = []
    try:
        with boundary(RubricFailure):
            for a in parts:
                said.append(a.call(given))  # noqa: PERF401  # what was said before an error has to be closed
    except WanderlustError as error:
        for value in said:
            if inspect.iscoroutine(value):
                value.close()
        raise _blamed(parts[len(said)], task, error) from error
    waiting = [n for n, value in enumerate(said) if type(value) not in _PLAIN and inspect.isawaitable(value)]
    if waiting:
        ended = await settled(said[n] for n in waiting)
        for n, value in zip(waiting, ended, strict=True):
            if isinstance(value, WanderlustError):
                raise _blamed(parts[n], task, value) from value
            said[n] = value
    return said


def _number(a: Asking, value: Any, task: Task) -> float:
    if type(value) is float and isfinite(value):
        return value
    with _Blaming(a, task), boundary(RubricFailure):
        return number(value)


class _Blaming:
    """Adds the part and the task to whatever the block says went wrong."""

    def __init__(self, a: Asking, task: Task):
        self._of = a, task

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, WanderlustError):
            raise _blamed(*self._of, error) from error


def _blamed(a: Asking, task: Task, error: WanderlustError) -> RubricFailure:
    told = one_line(str(error) if isinstance(error, RubricFailure) else f"{type(error).__name__}: {error}", 500)
    return RubricFailure(f"{a.part.name} on task {task.id!r}: {told}", transient=error.transient)
