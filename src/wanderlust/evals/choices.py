"""The expected reward of what is chosen among k of a task's samples, over all ways to take k."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, groupby
from math import comb, fsum
from random import Random

MAX_SUBSETS = 256
"""Subsets that `majority` looks at, for each task and k; all of them where there are no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledSample:
    """What the curves need of a rollout."""

    reward: float
    answer: str
    """What `majority` counts; empty where there is none."""
    tokens: int
    """Completion tokens."""
    cost: float
    choices: Mapping[str, float] = field(default_factory=dict)
    """By the name of a selector, its value of this sample."""


def expected_best(samples: Sequence[ScaledSample], k: int, value: Callable[[ScaledSample], float]) -> float:
    """The reward of the one of k samples that `value` likes best, of equals the mean; over all ways to take k."""
    total, below = 0.0, 0
    for _, level in groupby(sorted(samples, key=value), key=value):
        rewards = [sample.reward for sample in level]
        upto = below + len(rewards)
        total += fsum(rewards) / len(rewards) * (comb(upto, k) - comb(below, k))
        below = upto
    return total / comb(len(samples), k)


def expected_majority(samples: Sequence[ScaledSample], k: int, *, key: str) -> float:
    """The mean reward of the most frequent answer among k samples; of equally frequent ones the mean.

    Samples without an answer count only where none has one.
    """
    if comb(len(samples), k) <= MAX_SUBSETS:
        subsets: Iterable[Sequence[ScaledSample]] = combinations(samples, k)
    else:
        rng = Random(f"majority/{key}/{k}")
        subsets = [rng.sample(samples, k) for _ in range(MAX_SUBSETS)]
    values = [_majority_reward(subset) for subset in subsets]
    return fsum(values) / len(values)


def _majority_reward(samples: Sequence[ScaledSample]) -> float:
    votes = Counter(sample.answer for sample in samples if sample.answer)
    if not votes:
        return fsum(sample.reward for sample in samples) / len(samples)
    most = max(votes.values())
    # Rollouts of one answer may earn differently, where the reward reads more than the answer.
    chosen = [sample.reward for sample in samples if votes.get(sample.answer) == most]
    return fsum(chosen) / len(chosen)
