"""What the bars of the courses share: runs of several seeds, figures before and after, an interval over the seeds."""

from __future__ import annotations

import asyncio
import resource
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.bar import Bar
from wanderlust.environment import Environment
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.runner.engine import rollouts
from wanderlust.runner.progress import NullLogger
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.train import run_training
from wanderlust.types import Policy, Rollout, Task

SEEDS = (0, 1, 2)
STUDENT = 4.303
"""Of two degrees of freedom, 95%: three seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """One seed of a course."""

    before: float
    after: float
    wall: float
    """Seconds of the whole run, warm-up and examinations included."""
    cpu: float
    """Seconds of processor time of all its processes."""


def learnt(course: TrainConfig, figure: Callable[[Path], float], *, workers: int = 2) -> list[Learnt]:
    """The course from every seed, one after the other; `figure` judges a checkpoint."""
    return [_seed(replace(course, seed=seed), figure, workers) for seed in SEEDS]


def _seed(course: TrainConfig, figure: Callable[[Path], float], workers: int) -> Learnt:
    with tempfile.TemporaryDirectory() as folder:
        path, began = Path(folder) / "run", _cpu()
        run = Run.begin(path, course)
        with closing(run.store):
            wall = float(run_training(course, run, logger=NullLogger(), workers=workers)["wall_s"])
        cpu = _cpu() - began
        before, after = (figure(path / "checkpoints" / name) for name in ("start", "rl"))
    return Learnt(before=before, after=after, wall=wall, cpu=cpu)


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def sampled(checkpoint: Path, env: Environment, tasks: Sequence[Task], *, max_tokens: int) -> list[Rollout]:
    """One rollout of each task at temperature 1, as in training; the same draws for every checkpoint."""
    policy = LocalPolicy.of(*load_pretrained(checkpoint), SamplingOptions(max_tokens=max_tokens), seed=0)
    return played(env, tasks, policy)


def played(env: Environment, tasks: Sequence[Task], policy: Policy, *, concurrency: int = 256) -> list[Rollout]:
    """One rollout of each task."""

    async def play() -> list[Rollout]:
        async with rollouts(env, tasks, policy, concurrency=concurrency) as stream:
            return [rollout async for group in stream for rollout in group.rollouts]

    return asyncio.run(play())


def reward(rollout: Rollout) -> float:
    """What a rollout of one seat earned, 0 when it failed."""
    score = rollout.trajectories[0].score
    return score.reward if score is not None else 0.0


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean of three seeds, and half of its 95% interval."""
    return fmean(values), STUDENT * stdev(values) / sqrt(len(values))


def gained(what: str, runs: Sequence[Learnt], *, bar: float, aim: float) -> Iterator[Bar]:
    """The mean gain, and the lower end of its interval, which is to be above 0."""
    mean, half = interval([run.after - run.before for run in runs])
    note = f"mean of {len(runs)} seeds, 95% interval {mean - half:.2f} to {mean + half:.2f}"
    yield Bar(name=f"{what}: gained by RL", figure=mean, bar=bar, aim=aim, better="higher", note=note)
    yield Bar(name=f"{what}: gained, lower end", figure=mean - half, bar=0.01, aim=bar, better="higher", note=note)


def told(runs: Sequence[Learnt]) -> str:
    """Before and after of every seed."""
    return "seeds: " + ", ".join(f"{run.before:.2f} to {run.after:.2f}" for run in runs)


def walls(what: str, runs: Sequence[Learnt], *, bar: float, aim: float) -> Iterator[Bar]:
    """The longest run."""
    said = ", ".join(f"{run.wall:.0f} ({run.cpu:.0f} of processor time)" for run in runs)
    yield Bar(name=what, figure=max(run.wall for run in runs), bar=bar, aim=aim, unit="s", note=f"seeds: {said}")
