"""Advantages per turn: the reward-to-go of a turn, compared with that of the group's turns of the same number."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from wanderlust.training import losses
from wanderlust.training.algorithms.base import scored_by_seat, set_token_advantages, tokens_per_turn
from wanderlust.training.algorithms.grpo import MIN_REWARD_RANGE, Advantage, standardized
from wanderlust.training.losses import PolicyLoss
from wanderlust.types import Group, Trajectory


def turn_rewards(trajectory: Trajectory, reward: float) -> list[float]:
    """The reward of each turn; they add up to `reward`.

    What the environment paid counts at the turn after which it was paid (`Episode.reward`), and what the rubric makes
    of it beyond that at the last turn.
    """
    turns = len(trajectory.turns)
    out = [*trajectory.rewards, *[0.0] * (turns - len(trajectory.rewards))]
    if out:
        out[-1] += reward - sum(out)
    return out


def rewards_to_go(rewards: list[float], discount: float) -> list[float]:
    """Per turn, what it and the later ones earned; a turn later is worth `discount` as much."""
    out, ahead = [0.0] * len(rewards), 0.0
    for turn in reversed(range(len(rewards))):
        ahead = out[turn] = rewards[turn] + discount * ahead
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class PerTurn:
    """Rewards-to-go per turn instead of one reward per episode; an earlier success is no merit of a later turn.

    A turn number that only one sibling reached, or at which all got the same, teaches nothing.
    """

    discount: float = 1.0
    advantage: Advantage = standardized
    loss: PolicyLoss = losses.CISPO_LOSS

    async def assign_advantages(self, group: Group) -> None:
        """Write `advantages` on every scored trajectory, seat by seat; failed rollouts get none."""
        for seat in scored_by_seat(group):
            to_go = [rewards_to_go(turn_rewards(t, reward), self.discount) for t, reward in seat]
            credit = [[0.0] * len(values) for values in to_go]
            for turn in range(max(map(len, to_go), default=0)):
                reached = [n for n, values in enumerate(to_go) if turn < len(values)]
                came = [to_go[n][turn] for n in reached]
                if len(came) > 1 and max(came) - min(came) > MIN_REWARD_RANGE:
                    for n, value in zip(reached, self.advantage(came), strict=True):
                        credit[n][turn] = value
            for (trajectory, _), values in zip(seat, credit, strict=True):
                per_token = zip(values, tokens_per_turn(trajectory), strict=True)
                set_token_advantages(trajectory, [value for value, count in per_token for _ in range(count)])
                trajectory.advantage = fmean(values) if values else 0.0
