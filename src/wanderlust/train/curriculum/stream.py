"""The environment's own order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from wanderlust.core.errors import UsageError
from wanderlust.core.types import Group, Task


@dataclass(slots=True)
class Stream:
    """The tasks of an environment in their own order; a stream that ends begins anew.

    `tasks` returns the same stream each time it is called. UsageError when there is no task in it.
    """

    tasks: Callable[[], Iterable[Task]]
    taken: int = 0
    """How many tasks were handed out so far: all there is to know for going on."""
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
