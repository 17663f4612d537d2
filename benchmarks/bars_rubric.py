"""What judging costs besides the judging: a rubric of three small functions, processor time per rollout."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from benchmarks.bar import Bar
from wanderlust.rubrics.rubric import Reward, RewardFunction, Rubric
from wanderlust.types import Rollout, Task, Trajectory, Turn, assistant, user

SCORED, ROUNDS = 5_000, 7


def right(completion: str, answer: Any) -> float:
    return float(answer in completion)


def brief(completion: str) -> float:
    return float(len(completion) < 100)


def tagged(completion: str) -> float:
    return float("<answer>" in completion)


async def later(completion: str) -> float:
    return float("<answer>" in completion)


async def cost(rubric: Rubric, rollouts: list[Rollout]) -> float:
    """Microseconds of processor time per rollout, the functions' own included."""
    began = time.process_time()
    for rollout in rollouts:
        await rubric.score(rollout, rollout.trajectories[0])
    return 1e6 * (time.process_time() - began) / len(rollouts)


async def costs(*parts: RewardFunction | Reward) -> list[float]:
    """One figure per round, the first left out."""
    said = assistant("The answer is <answer>42</answer>.")
    turn = Turn(observation=(user("What is the answer?"),), action=said)
    task = Task(id="0", answer="42")
    rollouts = [Rollout(task=task, seed=n, trajectories=[Trajectory(turns=[turn])]) for n in range(SCORED)]
    rubric = Rubric(*parts)
    return [await cost(rubric, rollouts) for _ in range(1 + ROUNDS)][1:]


def bars() -> Iterator[Bar]:
    """A rollout's judgement by three functions."""
    measured = asyncio.run(costs(Reward(right, weight=2.0), brief, tagged))
    mixed = median(asyncio.run(costs(Reward(right, weight=2.0), brief, later)))
    note = f"{min(measured):.1f} to {max(measured):.1f} in {ROUNDS} rounds; {mixed:.1f} with one asynchronous"
    yield Bar(name="a rubric of three functions", figure=median(measured), bar=30, aim=20, unit="µs", note=note)
