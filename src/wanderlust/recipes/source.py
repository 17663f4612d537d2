"""Where the groups of a step come from: played when they are asked for, or (`flow.py`) ahead of the trainer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from wanderlust.core.types import Group
from wanderlust.train.algorithms.contract import Algorithm, Selecting
from wanderlust.train.curriculum import Curriculum, Telling
from wanderlust.train.playing import Player

AGAIN = 1_000_000_007
"""Added to the seed each time that a step plays more groups."""

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Harvest:
    """What a step learns from."""

    groups: list[Group] = field(default_factory=list)
    """Credited, and numbered in their order."""
    waited: float = 0.0
    """Seconds until they were there."""
    figures: dict[str, float] = field(default_factory=dict)


class Source(Protocol):
    """Hands out the groups of a step; owns the curriculum. What it has begun ends with the block it is entered for."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def harvest(self, step: int) -> Harvest:
        """Wait for the groups of a step."""
        ...

    def state(self) -> dict[str, Any]:
        """Plain data that `restore` takes back: between two steps, all that is needed to lose no group."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        ...


class Rounds:
    """Synchronous: a step's groups are played by the weights that learn from them, and the trainer waits for all."""

    def __init__(self, player: Player, curriculum: Curriculum, *, count: int, algorithm: Algorithm | None = None):
        """`count` groups a step; the `algorithm` may ask for more in place of those that are no use to it."""
        self.player, self.curriculum, self.count = player, curriculum, count
        self.keeps = algorithm if isinstance(algorithm, Selecting) else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def harvest(self, step: int) -> Harvest:
        """Play the groups of a step; those that are no use are replaced as often as the algorithm likes."""
        began, out, missing = time.monotonic(), Harvest(), self.count
        for again in range(1 + refills(self.keeps)):
            if not missing:
                break
            tasks = self.curriculum.next(step, missing)
            newest = await self.player.play(tasks, seed=step + AGAIN * again, first=len(out.groups))
            for group in newest:
                self.curriculum.observe(group)
            out.groups += newest
            missing -= useful(newest, self.keeps)
        out.waited = time.monotonic() - began
        out.figures = told(self.curriculum)
        return out

    def state(self) -> dict[str, Any]:
        """The curriculum's."""
        return self.curriculum.state()

    def restore(self, state: dict[str, Any]) -> None:
        """The curriculum's."""
        self.curriculum.restore(state)


def refills(selects: Selecting | None) -> int:
    """How many times groups of no use are replaced."""
    return selects.refills if selects is not None else 0


def useful(groups: Sequence[Group], selects: Selecting | None) -> int:
    """How many groups need no replacement."""
    return sum(map(selects.keeps, groups)) if selects is not None else len(groups)


def told(curriculum: Curriculum) -> dict[str, float]:
    """The curriculum's own figures, where it has any."""
    return curriculum.figures() if isinstance(curriculum, Telling) else {}


async def beside(work: Coroutine[Any, Any, T]) -> T:
    """Run what computes for long in another thread, with an event loop of its own, so that this one goes on."""
    return await asyncio.to_thread(asyncio.run, work)
