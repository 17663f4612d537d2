"""Group-relative credit: a sibling is judged against its siblings. GRPO, Dr. GRPO, RLOO, DAPO, CISPO, REINFORCE."""

from __future__ import annotations

from dataclasses import dataclass

from wanderlust.core.types import Group
from wanderlust.train import losses
from wanderlust.train.advantage import Advantage, plain, standardized
from wanderlust.train.losses import PolicyLoss

LIVE_SPREAD = 1e-9
"""A group whose rewards spread less than this teaches nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRelative:
    """Writes an advantage on every scored trajectory of a group, seat by seat; failed rollouts get none."""

    advantage: Advantage = standardized
    loss: PolicyLoss = losses.CISPO

    async def annotate(self, group: Group) -> None:
        """Siblings with equal rewards all get 0 and so drop out of the update, whatever the baseline."""
        for seat in {t.seat for r in group.rollouts for t in r.trajectories}:
            scored = [
                (t, t.score.reward)
                for r in group.rollouts
                for t in r.trajectories
                if t.seat == seat and t.score is not None
            ]
            rewards = [reward for _, reward in scored]
            alive = bool(rewards) and (max(rewards) - min(rewards) > LIVE_SPREAD or self.advantage is plain)
            credit = self.advantage(rewards) if alive else [0.0] * len(rewards)
            for (trajectory, _), value in zip(scored, credit, strict=True):
                trajectory.advantage = value


def live(group: Group) -> bool:
    """Whether the group's rewards differ, so that it teaches something."""
    rewards = group.rewards
    return bool(rewards) and max(rewards) - min(rewards) > LIVE_SPREAD
