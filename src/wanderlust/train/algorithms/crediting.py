"""How credit is asked for: a leash that goes into the reward is taken off first; the scores stay as they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from wanderlust.core.types import Group, Trajectory
from wanderlust.train.algorithms.contract import Algorithm, Batchwise
from wanderlust.train.losses import KL, kl_estimate


async def credit(algorithm: Algorithm, groups: Sequence[Group]) -> None:
    """Annotate each group by itself."""
    with leashed(groups, algorithm.loss.kl):
        for group in groups:
            await algorithm.annotate(group)


async def credit_batch(algorithm: Algorithm, groups: Sequence[Group]) -> None:
    """Annotate all groups of a step together, where the algorithm wants to."""
    if isinstance(algorithm, Batchwise):
        with leashed(groups, algorithm.loss.kl):
            await algorithm.annotate_batch(groups)


@contextmanager
def leashed(groups: Sequence[Group], kl: KL | None) -> Iterator[None]:
    """Inside, rewards are less by the distance to the reference, where the leash goes into the reward."""
    before = [(t, t.score) for g in groups for r in g.rollouts for t in r.trajectories]
    if kl is not None and kl.into == "reward":
        for trajectory, score in before:
            if score is not None and trajectory.trainable and trajectory.reference is not None:
                trajectory.score = replace(score, reward=score.reward - kl.weight * distance(trajectory, kl))
    try:
        yield
    finally:
        for trajectory, score in before:
            trajectory.score = score


def distance(trajectory: Trajectory, kl: KL) -> float:
    """Estimate of the distance between sampler and reference, summed over the sampled tokens."""
    said = [p for turn in trajectory.turns if turn.tokens is not None for p in turn.tokens.logprobs]
    known = [p for turn in trajectory.reference or () for p in turn]
    return float(kl_estimate(torch.tensor(said), torch.tensor(known), kl.estimator).sum())
