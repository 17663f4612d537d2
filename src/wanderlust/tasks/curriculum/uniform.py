"""A choice that does not depend on how it goes: all tasks alike, or all kinds of tasks alike.

The environment's own order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from wanderlust.errors import UsageError
from wanderlust.tasks.curriculum.base import ShuffledPasses, TaskPool
from wanderlust.types import Group, Task


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
            sorted_out.setdefault(self._kind(task), []).append(task)
        self._passes = [ShuffledPasses(tasks, f"even/{self.seed}/{kind}") for kind, tasks in sorted(sorted_out.items())]

    def _kind(self, task: Task) -> str:
        if self.kinds is None:
            return ""
        if self.kinds.by not in task.info:
            available = ", ".join(map(repr, task.info)) or "nothing"
            raise UsageError(f"task {task.id!r} has no {self.kinds.by!r} to stratify by; its info has {available}")
        return str(task.info[self.kinds.by])

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
