"""A choice that does not depend on how it goes: all tasks alike, or all kinds of tasks alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from wanderlust.core.errors import UsageError
from wanderlust.core.types import Group, Task
from wanderlust.train.curriculum.stock import Passes, Stock


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """Settings of a stratified choice."""

    by: str = "level"
    """Key of a task's `info` that says of which kind it is."""


@dataclass(slots=True, kw_only=True)
class Even:
    """Shuffled passes over all tasks; with `kinds` each kind equally often, and within a kind every task.

    UsageError when a task does not say of which kind it is.
    """

    stock: Stock
    seed: int
    kinds: Kinds | None = None
    taken: int = 0
    """How many tasks were handed out so far: all there is to know for going on."""
    _passes: list[Passes] = field(init=False)

    def __post_init__(self) -> None:
        sorted_out: dict[str, list[Task]] = {}
        for task in self.stock.tasks:
            sorted_out.setdefault(self._kind(task), []).append(task)
        self._passes = [Passes(tasks, f"even/{self.seed}/{kind}") for kind, tasks in sorted(sorted_out.items())]

    def _kind(self, task: Task) -> str:
        if self.kinds is None:
            return ""
        if self.kinds.by not in task.info:
            known = ", ".join(map(repr, task.info)) or "nothing"
            raise UsageError(f"task {task.id!r} has no {self.kinds.by!r} to stratify by; its info has {known}")
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
