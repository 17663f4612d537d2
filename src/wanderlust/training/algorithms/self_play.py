"""Self-play: one policy in every seat, each seat judged by what it usually gets (RAE, arXiv 2506.24119)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from wanderlust.training import losses
from wanderlust.training.algorithms.base import AlgorithmContext, scored_by_seat
from wanderlust.training.losses import PolicyLoss
from wanderlust.types import Group


@dataclass(slots=True, kw_only=True)
class SelfPlay:
    """Advantage = reward - a moving average of the seat's rewards; siblings are not needed.

    In a game one seat's gain is the other's loss and sitting first may be worth something, so a baseline shared by
    the seats would credit the chair. The average is taken in first, then subtracted.
    """

    decay: float = 0.95
    loss: PolicyLoss = losses.CISPO_LOSS
    baselines: dict[str, float] = field(default_factory=dict)
    """By seat; a seat's first reward begins its average at 0."""

    def bind(self, context: AlgorithmContext) -> Self:
        """Baselines of its own for each run."""
        return replace(self, baselines={})

    async def assign_advantages(self, group: Group) -> None:
        """Nothing: the baselines move with the whole step, in the order of its groups."""

    async def assign_batch_advantages(self, groups: Sequence[Group]) -> None:
        """Write `advantage` on every scored trajectory."""
        for trajectory, reward in (pair for g in groups for seat in scored_by_seat(g) for pair in seat):
            before = self.baselines.get(trajectory.seat, 0.0)
            now = self.decay * before + (1 - self.decay) * reward
            self.baselines[trajectory.seat] = now
            trajectory.advantage = reward - now

    def state(self) -> dict[str, Any]:
        """The baselines."""
        return {"baselines": dict(self.baselines)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with saved baselines."""
        self.baselines = dict(state.get("baselines", {}))
