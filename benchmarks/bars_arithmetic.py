"""Sums that a small model never saw: how many are right, before and after reinforcement.

It was shown a pupil who forgets every other carry. The bars are about questions of the `eval` split that are not among
the 5,000 of training, one answer each at temperature 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import gained, learnt, reward, sampled, told, walls
from wanderlust.tasks.registry import load_environment
from wanderlust.training.presets import ARITHMETIC
from wanderlust.types import Task

QUESTIONS = 400


def unseen() -> list[Task]:
    """Questions that were nobody's in training."""
    env = load_environment(ARITHMETIC.env)
    seen = {task.prompt for task in env.tasks("train")}
    return [task for task in env.tasks("eval") if task.prompt not in seen][:QUESTIONS]


def bars() -> Iterator[Bar]:
    """Right answers after, right answers gained by reinforcement, and the longest run."""
    env, tasks = load_environment(ARITHMETIC.env), unseen()

    def figure(checkpoint: Path) -> float:
        return fmean(map(reward, sampled(checkpoint, env, tasks, max_tokens=ARITHMETIC.max_tokens)))

    runs = learnt(ARITHMETIC, figure)
    what = f"arithmetic, {len(tasks)} unseen sums"
    worst = min(run.after for run in runs)
    yield Bar(name=f"{what}: right, worst seed", figure=worst, bar=0.85, aim=0.97, better="higher", note=told(runs))
    yield from gained(what, runs, bar=0.15, aim=0.3)
    yield from walls(f"{what}: wall time of a run", runs, bar=900, aim=300)
