"""What an episode is busy with, so that whoever waits for it can be told for what."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False, kw_only=True)
class Activity:
    """One episode in progress."""

    task: str
    since: float
    """When it began, in seconds of the monotonic clock; for reports, never for logic."""
    steps: dict[int, str] = field(default_factory=dict)

    @property
    def waits_for(self) -> str:
        """The innermost thing that is under way, of several at once the one begun last."""
        return next(reversed(self.steps.values()), "the environment")


CURRENT: ContextVar[Activity | None] = ContextVar("activity", default=None)
"""The episode that the running code belongs to; tasks that it starts belong to it too."""


class Doing:
    """`with Doing("tool search"): ...` says what the episode is busy with; outside of an episode it does nothing."""

    __slots__ = ("_activity", "_what")

    def __init__(self, what: str):
        self._what = what

    def __enter__(self) -> None:
        self._activity = CURRENT.get()
        if self._activity is not None:
            self._activity.steps[id(self)] = self._what

    def __exit__(self, *_: object) -> None:
        if self._activity is not None:
            self._activity.steps.pop(id(self), None)
