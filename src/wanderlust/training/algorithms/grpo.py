"""Group-relative advantages: a rollout is compared with its group. GRPO, Dr. GRPO, RLOO, DAPO, CISPO, GSPO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Self, TypeAlias

from wanderlust.training import losses
from wanderlust.training.algorithms.base import AlgorithmContext, scored_by_seat, tokens_per_turn
from wanderlust.training.losses import PolicyLoss
from wanderlust.types import Group, Trajectory

MIN_REWARD_RANGE = 1e-9
"""A group whose rewards spread less than this teaches nothing."""


Advantage: TypeAlias = Callable[[Sequence[float]], list[float]]

STD_FLOOR = 1e-4
"""Added to the standard deviation, as in TRL."""


def mean_baseline(rewards: Sequence[float]) -> list[float]:
    """r - mean(r). Dr. GRPO (arXiv 2503.20783)."""
    mean = fmean(rewards)
    return [r - mean for r in rewards]


def standardized(rewards: Sequence[float]) -> list[float]:
    """(r - mean(r)) / (std(r) + 1e-4), sample standard deviation. GRPO (arXiv 2402.03300)."""
    mean, spread = fmean(rewards), stdev(rewards) if len(rewards) > 1 else 0.0
    return [(r - mean) / (spread + STD_FLOOR) for r in rewards]


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """r_i - mean of the others. RLOO (arXiv 2402.14740). A group of one has no baseline: ValueError."""
    count, total = len(rewards), sum(rewards)
    if count < 2:
        raise ValueError("leave-one-out needs at least two rollouts of a task")
    return [r - (total - r) / (count - 1) for r in rewards]


def raw_reward(rewards: Sequence[float]) -> list[float]:
    """r itself: REINFORCE without a baseline."""
    return list(rewards)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlongPenalty:
    """DAPO's soft penalty (arXiv 2503.14476): 0 up to longest - margin tokens, then falling to -1 at `max_tokens`."""

    margin: float = 0.2
    """Share of the longest answer in which the penalty grows; the paper has 4096 of 20480 tokens."""
    max_tokens: int = 0
    """Tokens of an answer; 0 takes the run's bound."""

    def penalty(self, trajectory: Trajectory) -> float:
        """The penalty of a trajectory's longest answer."""
        over = max(tokens_per_turn(trajectory), default=0) - self.max_tokens * (1 - self.margin)
        return -min(max(over / (self.max_tokens * self.margin), 0.0), 1.0) if self.max_tokens else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRelative:
    """Writes an advantage on every scored trajectory of a group, seat by seat; failed rollouts get none."""

    advantage: Advantage = standardized
    loss: PolicyLoss = losses.CISPO_LOSS
    overlong: OverlongPenalty | None = None
    """Added to the reward before the rollouts of a group are compared."""
    max_refills: int = 0
    """Times that groups with equal rewards are replaced by new ones (DAPO's dynamic sampling)."""

    def bind(self, context: AlgorithmContext) -> Self:
        """Lengths that are relative to the bound of an answer: the penalty's, and Dr. GRPO's constant."""
        ready = self
        if self.overlong is not None and not self.overlong.max_tokens:
            ready = replace(ready, overlong=replace(self.overlong, max_tokens=context.max_tokens))
        if self.loss.normaliser == "constant":
            ready = replace(ready, loss=replace(self.loss, constant=context.max_tokens))
        return ready

    def keep(self, group: Group) -> bool:
        """Whether rewards differ within the group, in a seat that learns."""
        return any(t.advantage for r in group.rollouts for t in r.trajectories if t.trainable)

    async def assign_advantages(self, group: Group) -> None:
        """Write the advantages; a group with equal rewards gets 0 and counts in the divisors of the batch.

        With dynamic sampling such a group is replaced, so it has no part in the batch at all.
        """
        for seat in scored_by_seat(group):
            rewards = [self.paid(group, trajectory, reward) for trajectory, reward in seat]
            alive = bool(rewards) and (max(rewards) - min(rewards) > MIN_REWARD_RANGE or self.advantage is raw_reward)
            dead = None if self.max_refills else 0.0
            credit: Sequence[float | None] = self.advantage(rewards) if alive else [dead] * len(rewards)
            for (trajectory, _), value in zip(seat, credit, strict=True):
                trajectory.advantage = value

    def paid(self, group: Group, trajectory: Trajectory, reward: float) -> float:
        """What a rollout is compared by: its reward, less the penalty for its length."""
        return reward + (self.overlong.penalty(trajectory) if self.overlong is not None else 0.0)


def has_signal(group: Group) -> bool:
    """Whether the siblings' rewards differ in a seat that learns, so that the group teaches something."""
    seats = ([reward for t, reward in seat if t.trainable] for seat in scored_by_seat(group))
    return any(max(rewards) - min(rewards) > MIN_REWARD_RANGE for rewards in seats if rewards)
