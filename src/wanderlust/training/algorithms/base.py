"""Rewards to advantages: pure functions of one group's rewards.

What an algorithm is, and what it may be besides: the trainer asks for abilities and never for a name.

How credit is asked for: a leash that goes into the reward is taken off first; the scores stay as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, Protocol, Self, TypeAlias, runtime_checkable

import torch

from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.training.losses import KL, PolicyLoss, kl_estimate
from wanderlust.types import Group, Policy, Trajectory

Advantage: TypeAlias = Callable[[Sequence[float]], list[float]]

STD_FLOOR = 1e-4
"""Added to the standard deviation, as in TRL."""


def mean_baseline(rewards: Sequence[float]) -> list[float]:
    """r - mean(r). Dr. GRPO (arXiv 2503.20783)."""
    mean = fmean(rewards)
    return [r - mean for r in rewards]


def standardized(rewards: Sequence[float]) -> list[float]:
    """(r - mean(r)) / (std(r) + 1e-4), sample standard deviation. GRPO (arXiv 2402.03300)."""
    spread = stdev(rewards) if len(rewards) > 1 else 0.0
    return [a / (spread + STD_FLOOR) for a in mean_baseline(rewards)]


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """r_i - mean of the others. RLOO (arXiv 2402.14740). A group of one has no baseline: ValueError."""
    count, total = len(rewards), sum(rewards)
    if count < 2:
        raise ValueError("leave-one-out needs at least two rollouts of a task")
    return [r - (total - r) / (count - 1) for r in rewards]


def raw_reward(rewards: Sequence[float]) -> list[float]:
    """r itself: REINFORCE without a baseline."""
    return list(rewards)


class Algorithm(Protocol):
    """Annotates a Group with credit."""

    @property
    def loss(self) -> PolicyLoss:
        """The loss that goes with the credit."""
        ...

    async def assign_advantages(self, group: Group) -> None:
        """Write advantages, or weights of imitation, on the group's trajectories."""
        ...


@runtime_checkable
class SupportsBatchAdvantages(Protocol):
    """Credit that needs all groups of a step together."""

    async def assign_batch_advantages(self, groups: Sequence[Group]) -> None:
        """Called once a step, by the one process that owns the weights, after `assign_advantages` of every group."""
        ...


@runtime_checkable
class SupportsState(Protocol):
    """Remembers something from step to step: a critic, baselines. Only where it is Batchwise may that change."""

    def state(self) -> dict[str, Any]:
        """Tensors and plain data that `restore` takes back."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmContext:
    """Models and sampling options that a run gives to its algorithm."""

    max_tokens: int
    """Bound of one answer."""
    temperature: float
    load_initial_model: Callable[[], Any]
    """A copy of the model as it was when training began."""
    load_teacher: Callable[[], Any]
    """A stronger model with the same tokenizer. UsageError when the run has none."""


@runtime_checkable
class NeedsContext(Protocol):
    """Needs something of the run."""

    def bind(self, context: AlgorithmContext) -> Self:
        """The algorithm ready for one run; called once per process, before anything else."""
        ...


@runtime_checkable
class HasRolloutPolicy(Protocol):
    """An algorithm that learns from rollouts of another policy."""

    def rollout_policy(self, policy: TokenPolicy) -> Policy:
        """The policy that plays the training rollouts in place of the learner."""
        ...


@runtime_checkable
class DynamicSampling(Protocol):
    """Has groups that teach nothing replaced by others."""

    max_refills: int
    """How many times at most a step plays as many new groups as were no use; 0 is never."""

    def keep(self, group: Group) -> bool:
        """Whether a credited group is of use."""
        ...


def scored_by_seat(group: Group) -> list[list[tuple[Trajectory, float]]]:
    """The scored trajectories with their rewards, seat by seat; failed rollouts are left out."""
    seats = dict.fromkeys(t.seat for r in group.rollouts for t in r.trajectories)
    return [
        [(t, t.score.reward) for r in group.rollouts for t in r.trajectories if t.seat == seat and t.score is not None]
        for seat in seats
    ]


def tokens_per_turn(trajectory: Trajectory) -> list[int]:
    """Sampled tokens of each turn."""
    return [len(turn.tokens.completion) if turn.tokens is not None else 0 for turn in trajectory.turns]


def set_token_advantages(trajectory: Trajectory, values: Sequence[float]) -> None:
    """One advantage per sampled token, in order; the trajectory's own is their mean."""
    rest = iter(values)
    trajectory.advantages = [[next(rest) for _ in range(count)] for count in tokens_per_turn(trajectory)]
    trajectory.advantage = sum(values) / len(values) if values else 0.0


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
