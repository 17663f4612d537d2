"""A policy of its own for every rollout: one that knows the task, or one that was recorded on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from wanderlust.core.contracts import Policy, Tool
from wanderlust.core.messages import Message
from wanderlust.core.types import Completion


class Place(NamedTuple):
    """The seat of one rollout, as the engine's keys name it."""

    task: str
    seed: int
    sibling: int
    seat: str


def place(key: str) -> Place:
    """What a key of the engine stands for; the id of a task may hold slashes."""
    task, seed, sibling, seat = key.rsplit("/", 3)
    return Place(task, int(seed), int(sibling), seat)


class Keyed:
    """Asks `of` for a policy when a rollout's seat speaks first, and lets it go when the rollout is over.

    What `of` raises is that rollout's failure.
    """

    def __init__(self, of: Callable[[Place], Policy]):
        self._of = of
        self._live: dict[str, Policy] = {}

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The answer of this seat's own policy."""
        if key not in self._live:
            self._live[key] = self._of(place(key))
        return await self._live[key].complete(messages, tools, key=key)

    def release(self, key: str) -> None:
        """Let this seat's policy go."""
        policy = self._live.pop(key, None)
        release = getattr(policy, "release", None)
        if release is not None:
            release(key)
