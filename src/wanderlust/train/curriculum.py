"""Which tasks are played next. The trainer hands out and observes whole groups of one policy version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from wanderlust.core.types import Group, Task


class Curriculum(Protocol):
    """Owns the choice of tasks; equal states and observations give equal choices."""

    def next(self, step: int, count: int) -> Sequence[Task]:
        """The tasks of one step, one per group."""
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
