"""REINFORCE++: plain or centered rewards, normalised over all groups of a step instead of within each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from wanderlust.training import losses
from wanderlust.training.algorithms.base import scored_by_seat, tokens_per_turn
from wanderlust.training.algorithms.grpo import Advantage, raw_reward
from wanderlust.training.losses import PolicyLoss
from wanderlust.types import Group

BATCH_STD_FLOOR = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNormalised:
    """(A - mean) / std over the tokens of the whole batch, in the seats that learn (arXiv 2501.03262).

    With `raw_reward` rewards one baseline serves all tasks; with `mean_baseline` each group has its own first
    (REINFORCE++-baseline).
    """

    advantage: Advantage = raw_reward
    loss: PolicyLoss = losses.PPO_LOSS

    async def assign_advantages(self, group: Group) -> None:
        """Write the group's own credit, which `assign_batch_advantages` puts on the common scale."""
        for seat in scored_by_seat(group):
            credit = self.advantage([reward for _, reward in seat]) if seat else []
            for (trajectory, _), value in zip(seat, credit, strict=True):
                trajectory.advantage = value

    async def assign_batch_advantages(self, groups: Sequence[Group]) -> None:
        """Normalise; a batch whose credit is all the same gets 0."""
        scored = [t for g in groups for seat in scored_by_seat(g) for t, _ in seat if t.trainable]
        advantages = [(t, t.advantage) for t in scored if t.advantage is not None]
        flat = [value for t, value in advantages for _ in range(sum(tokens_per_turn(t)))]
        mean, spread = (fmean(flat), pstdev(flat)) if flat else (0.0, 0.0)
        for trajectory, value in advantages:
            trajectory.advantage = (value - mean) / (spread + BATCH_STD_FLOOR) if spread > BATCH_STD_FLOOR else 0.0
