"""What a curriculum is, and what it may be besides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from wanderlust.core.types import Group, Task


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
class Telling(Protocol):
    """Has figures of its own, for the metrics of each step."""

    def figures(self) -> dict[str, float]:
        """By name; `curriculum_starved` counts the tasks that were chosen although none is of any use."""
        ...


@runtime_checkable
class Rating(Protocol):
    """Wants to see how the first model does, before anything is learnt."""

    def beforehand(self) -> Sequence[Task]:
        """Tasks that the first model plays, a group each: they are observed, and not learnt from."""
        ...


class NothingToChoose(UserWarning):
    """As far as a curriculum knows, all its tasks are too hard or too easy."""
