"""Rewards to advantages: baselines over one group's rewards, and an algorithm applied to groups.

Where the KL divergence goes into the reward it is taken off first; the scores stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import fmean, stdev
from typing import TypeAlias

import torch

from wanderlust.training.algorithms.base import Algorithm, SupportsBatchAdvantages
from wanderlust.training.losses import KL, kl_estimate
from wanderlust.types import Group, Trajectory

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


async def assign_advantages(algorithm: Algorithm, groups: Sequence[Group]) -> None:
    """Annotate each group by itself."""
    with with_kl_penalty(groups, algorithm.loss.kl):
        for group in groups:
            await algorithm.assign_advantages(group)


async def assign_batch_advantages(algorithm: Algorithm, groups: Sequence[Group]) -> None:
    """Annotate all groups of a step together, where the algorithm wants to."""
    if isinstance(algorithm, SupportsBatchAdvantages):
        with with_kl_penalty(groups, algorithm.loss.kl):
            await algorithm.assign_batch_advantages(groups)


@contextmanager
def with_kl_penalty(groups: Sequence[Group], kl: KL | None) -> Iterator[None]:
    """Inside, rewards are less by the distance to the reference, where the leash goes into the reward."""
    before = [(t, t.score) for g in groups for r in g.rollouts for t in r.trajectories]
    if kl is not None and kl.into == "reward":
        for trajectory, score in before:
            if score is not None and trajectory.trainable and trajectory.reference_logprobs is not None:
                trajectory.score = replace(score, reward=score.reward - kl.weight * kl_to_reference(trajectory, kl))
    try:
        yield
    finally:
        for trajectory, score in before:
            trajectory.score = score


def kl_to_reference(trajectory: Trajectory, kl: KL) -> float:
    """Estimate of the distance between sampler and reference, summed over the sampled tokens."""
    sampler_logprobs = [p for turn in trajectory.turns if turn.tokens is not None for p in turn.tokens.logprobs]
    reference_logprobs = [p for turn in trajectory.reference_logprobs or () for p in turn]
    return float(kl_estimate(torch.tensor(sampler_logprobs), torch.tensor(reference_logprobs), kl.estimator).sum())
