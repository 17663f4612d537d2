"""Arithmetic of reasoning-gym: right answers of a small model to questions it never trained on, before and after RL."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import Learnt, gain, learnt, reward, sampled, told, walls
from wanderlust.core.types import Task
from wanderlust.environments.named import environment
from wanderlust.recipes.courses import ARITHMETIC

TASKS = 500
"""Questions at most."""
ENV = environment(ARITHMETIC.env)


@cache
def unseen() -> list[Task]:
    """Questions of the evaluation that are no question of training."""
    known = {task.prompt for task in ENV.tasks("train")}
    return [task for task in ENV.tasks("eval") if task.prompt not in known][:TASKS]


def right(checkpoint: Path) -> float:
    """Mean score of one answer each, by the data set's own scorer."""
    return fmean(reward(played) for played in sampled(checkpoint, ENV, unseen(), max_tokens=ARITHMETIC.max_tokens))


def bars() -> Iterator[Bar]:
    """Right answers after, right answers gained, and the longest run."""
    yield from judge(learnt(ARITHMETIC, right))


def judge(runs: list[Learnt]) -> Iterator[Bar]:
    """The bars of some seeds' figures."""
    what = "reasoning-gym chain_sum"
    worst = min(run.after for run in runs)
    yield Bar(name=f"{what}: right, worst seed", figure=worst, bar=0.6, aim=0.9, better="higher", note=told(runs))
    yield gain(f"{what}: gained by RL, at least", runs, bar=0.1, aim=0.3)
    yield from walls(f"{what}: wall time of a run", runs, bar=300, aim=180)
