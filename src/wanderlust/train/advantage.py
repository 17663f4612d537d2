"""Rewards to advantages: pure functions of one group's rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import TypeAlias

Advantage: TypeAlias = Callable[[Sequence[float]], list[float]]

STD_FLOOR = 1e-4
"""Added to the standard deviation, as in TRL."""


def centered(rewards: Sequence[float]) -> list[float]:
    """r - mean(r). Dr. GRPO (arXiv 2503.20783)."""
    mean = fmean(rewards)
    return [r - mean for r in rewards]


def standardized(rewards: Sequence[float]) -> list[float]:
    """(r - mean(r)) / (std(r) + 1e-4), sample standard deviation. GRPO (arXiv 2402.03300)."""
    spread = stdev(rewards) if len(rewards) > 1 else 0.0
    return [a / (spread + STD_FLOOR) for a in centered(rewards)]


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """r_i - mean of the others. RLOO (arXiv 2402.14740). A group of one has no baseline: ValueError."""
    count, total = len(rewards), sum(rewards)
    if count < 2:
        raise ValueError("leave-one-out needs at least two siblings")
    return [r - (total - r) / (count - 1) for r in rewards]


def plain(rewards: Sequence[float]) -> list[float]:
    """r itself: REINFORCE without a baseline."""
    return list(rewards)
