"""Interface of curricula, and its optional parts.

The tasks that there are to choose from, in shuffled passes that begin anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, Self, runtime_checkable

from wanderlust.errors import UsageError
from wanderlust.tasks.selection import MAX_LISTED_TASKS, choose_tasks, find_faulty_tasks
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


class NoUsefulTasksWarning(UserWarning):
    """As far as a curriculum knows, all its tasks are too hard or too easy."""


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

    def passes(self, key: str) -> ShuffledPasses:
        """All of them, again and again."""
        return ShuffledPasses(self.tasks, key)
