"""A rubric is a weighted sum of small named functions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from wanderlust.core.types import Rollout, Score, Trajectory

RewardFunction = Callable[[Rollout, Trajectory], float | Awaitable[float]]


@dataclass(frozen=True, slots=True)
class Weighted:
    """A reward function and what it counts for."""

    function: RewardFunction
    weight: float = 1.0
    """0 records the value as a metric and trains on nothing."""


class WeightedRubric:
    """Guarantees one Score per trajectory: reward = sum of weight x value, each raw value kept by name."""

    def __init__(self, *rewards: RewardFunction | Weighted):
        self.rewards = [r if isinstance(r, Weighted) else Weighted(r) for r in rewards]
        names = [r.function.__name__ for r in self.rewards]
        if len(set(names)) != len(names):
            raise ValueError(f"reward functions must have different names, got {names}")

    async def score(self, rollout: Rollout, trajectory: Trajectory) -> Score:
        """Call every function, the asynchronous ones at once; weights of 0 go to `metrics`, the others to `parts`."""
        called = [r.function(rollout, trajectory) for r in self.rewards]
        waiting = [value for value in called if inspect.isawaitable(value)]
        awaited = iter(await asyncio.gather(*waiting)) if waiting else iter(())
        values = [next(awaited) if inspect.isawaitable(value) else value for value in called]
        named = [(r, float(value)) for r, value in zip(self.rewards, values, strict=True)]
        return Score(
            reward=sum(r.weight * value for r, value in named),
            parts={r.function.__name__: value for r, value in named if r.weight},
            metrics={r.function.__name__: value for r, value in named if not r.weight},
        )
