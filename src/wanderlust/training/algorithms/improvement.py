"""Advantages of revisions, as the curriculum ExIt asks for them: what they add to the answer that they revise."""

from __future__ import annotations

from dataclasses import dataclass

from wanderlust.tasks.curriculum.exit import INFO_KEY, REVISED_KEY
from wanderlust.training import losses
from wanderlust.training.algorithms.grpo import MIN_REWARD_RANGE, GroupRelative
from wanderlust.training.losses import PolicyLoss
from wanderlust.types import Group, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement(GroupRelative):
    """Pays a revision for what it adds: max(0, (R - before) / (best - before)) (ExIt, arXiv 2509.04575, appendix A).

    `before` is the reward of the answer that is revised, `best` the highest reward of the run so far. Groups that
    revise nothing, or are asked for another answer rather than a better one, are paid R.
    """

    loss: PolicyLoss = losses.GRPO_LOSS

    def paid(self, group: Group, trajectory: Trajectory, reward: float) -> float:
        """The share of what there was to add."""
        reward = GroupRelative.paid(self, group, trajectory, reward)
        revised = group.task.info.get(INFO_KEY, {}).get(REVISED_KEY)
        if revised is None:
            return reward
        before, best = revised
        return max(0.0, reward - before) / (best - before) if best - before > MIN_REWARD_RANGE else 0.0
