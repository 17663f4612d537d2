"""Group-relative credit: a sibling is judged against its siblings. GRPO, Dr. GRPO, RLOO, DAPO, CISPO, GSPO."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from wanderlust.training import losses
from wanderlust.training.algorithms.base import Advantage, Lent, counts, plain, scored, standardized
from wanderlust.training.losses import PolicyLoss
from wanderlust.types import Group, Trajectory

LIVE_SPREAD = 1e-9
"""A group whose rewards spread less than this teaches nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlong:
    """DAPO's soft penalty (arXiv 2503.14476): 0 up to longest - margin tokens, then falling to -1 at `longest`."""

    margin: float = 0.2
    """Share of the longest answer in which the penalty grows; the paper has 4096 of 20480 tokens."""
    longest: int = 0
    """Tokens of an answer; 0 takes the run's bound."""

    def of(self, trajectory: Trajectory) -> float:
        """The penalty of a trajectory's longest answer."""
        over = max(counts(trajectory), default=0) - self.longest * (1 - self.margin)
        return -min(max(over / (self.longest * self.margin), 0.0), 1.0) if self.longest else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRelative:
    """Writes an advantage on every scored trajectory of a group, seat by seat; failed rollouts get none."""

    advantage: Advantage = standardized
    loss: PolicyLoss = losses.CISPO
    overlong: Overlong | None = None
    """Added to the reward before siblings are compared."""
    refills: int = 0
    """Times that groups whose siblings agree are replaced by new ones (DAPO's dynamic sampling)."""

    def equip(self, lent: Lent) -> Self:
        """Lengths that are relative to the bound of an answer: the penalty's, and Dr. GRPO's constant."""
        ready = self
        if self.overlong is not None and not self.overlong.longest:
            ready = replace(ready, overlong=replace(self.overlong, longest=lent.max_tokens))
        if self.loss.normaliser == "constant":
            ready = replace(ready, loss=replace(self.loss, constant=lent.max_tokens))
        return ready

    def keeps(self, group: Group) -> bool:
        """Whether siblings differ."""
        return any(t.advantage for r in group.rollouts for t in r.trajectories)

    async def annotate(self, group: Group) -> None:
        """Siblings with equal rewards all get 0 and so drop out of the update, whatever the baseline."""
        for seat in scored(group):
            rewards = [reward + (self.overlong.of(t) if self.overlong is not None else 0.0) for t, reward in seat]
            alive = bool(rewards) and (max(rewards) - min(rewards) > LIVE_SPREAD or self.advantage is plain)
            credit = self.advantage(rewards) if alive else [0.0] * len(rewards)
            for (trajectory, _), value in zip(seat, credit, strict=True):
                trajectory.advantage = value


def live(group: Group) -> bool:
    """Whether the group's rewards differ, so that it teaches something."""
    rewards = group.rewards
    return bool(rewards) and max(rewards) - min(rewards) > LIVE_SPREAD
