"""The tasks that there are to choose from, in shuffled passes that begin anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Self

from wanderlust.core.errors import UsageError
from wanderlust.core.types import Task
from wanderlust.evals.split import MOST, choose, faults


@dataclass(slots=True)
class Passes:
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
class Stock:
    """Tasks by their ids, in the environment's order."""

    tasks: tuple[Task, ...]
    by_id: dict[str, Task]

    @classmethod
    def of(cls, tasks: Iterable[Task]) -> Self:
        """The first 10,000 of them. UsageError when there is none, or one that cannot be told apart or kept."""
        listed = choose(tasks, MOST)
        if not listed:
            raise UsageError("the environment has no tasks to train on")
        for fault in faults(listed).values():
            raise UsageError(f"a curriculum cannot choose among these tasks: {fault}")
        by_id = {task.id: task for task in listed}
        return cls(tuple(by_id.values()), by_id)

    def passes(self, key: str) -> Passes:
        """All of them, again and again."""
        return Passes(self.tasks, key)
