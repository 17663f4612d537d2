"""REINFORCE++: plain or centered rewards, normalised over all groups of a step instead of within each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from wanderlust.training import losses
from wanderlust.training.algorithms.base import Advantage, counts, plain, scored
from wanderlust.training.losses import PolicyLoss
from wanderlust.types import Group

FLOOR = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNormalised:
    """(A - mean) / std over the tokens of the whole batch (arXiv 2501.03262).

    With `plain` rewards one baseline serves all tasks; with `centered` each group has its own first
    (REINFORCE++-baseline).
    """

    advantage: Advantage = plain
    loss: PolicyLoss = losses.PPO

    async def annotate(self, group: Group) -> None:
        """Write the group's own credit, which `annotate_batch` puts on the common scale."""
        for seat in scored(group):
            credit = self.advantage([reward for _, reward in seat]) if seat else []
            for (trajectory, _), value in zip(seat, credit, strict=True):
                trajectory.advantage = value

    async def annotate_batch(self, groups: Sequence[Group]) -> None:
        """Normalise; a batch whose credit is all the same gets 0."""
        known = [(t, t.advantage) for g in groups for seat in scored(g) for t, _ in seat if t.advantage is not None]
        flat = [value for t, value in known for _ in range(sum(counts(t)))]
        mean, spread = (fmean(flat), pstdev(flat)) if flat else (0.0, 0.0)
        for trajectory, value in known:
            trajectory.advantage = (value - mean) / (spread + FLOOR) if spread > FLOOR else 0.0
