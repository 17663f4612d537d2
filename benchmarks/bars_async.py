"""Asynchronous against synchronous mode, where an environment's tool is slow: steps per second, and what is learnt.

The tool answers after 50 to 200 ms, drawn by the episode's seed, as a service somewhere else would. The recipe of
`wander train` runs as it is, with `max_staleness` 0 and MAX_LAG in turns, the same start, tasks and number of steps.
The model is the smallest that learns it, so that nearly all time is waiting: on a model that keeps the cores busy
there is less to gain.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.bar import Bar
from benchmarks.slow import SlowTool
from wanderlust.runner.progress import NullLogger
from wanderlust.store.store import RunStore
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.train import run_training

SEEDS = (0, 1, 2)
STEPS = 160
MAX_LAG = 2
START = {"fresh_width": 32, "fresh_layers": 1, "fresh_positions": 64, "sft_episodes": 200, "sft_steps": 60}
"""A small fresh model that says any of the letters, whatever it is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """What one run gave."""

    steps_per_s: float
    score: float
    """Mean reward of the last tenth of the steps, as sampled."""
    lag: float
    """Mean over all steps, in versions."""
    waiting: float
    """Share of the time that the trainer had nothing to do."""


def run(folder: Path, *, seed: int, max_lag: int) -> Learnt:
    """One run of the recipe; its seconds do not count start-up."""
    config = TrainConfig(
        env=f"{SlowTool.__module__}:SlowTool",
        policy="fresh",
        **START,
        algorithm="grpo-tis",
        steps=STEPS,
        tasks_per_step=8,
        group_size=16,
        lr=3e-3,
        max_tokens=1,
        seed=seed,
        eval_every=STEPS,
        max_staleness=max_lag,
    )
    path, watch = folder / f"{seed}-{max_lag}", Clock()
    begun = Run.begin(path, config)
    run_training(config, begun, logger=watch, workers=1)
    begun.store.close()
    with RunStore.read(path / "rollouts.db") as store:
        found = {
            name: [value for _, value in store.metrics("rl", name)]
            for name in ("reward", "staleness_mean", "trainer_idle_frac")
        }
    return Learnt(
        steps_per_s=watch.steps_per_s,
        score=fmean(found["reward"][-STEPS // 10 :]),
        lag=fmean(found["staleness_mean"] or [0.0]),
        waiting=fmean(found["trainer_idle_frac"]),
    )


class Clock(NullLogger):
    """From the end of the first step to that of the last."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def log_step(self, stage: str, step: int, *, of: int, metrics: object) -> None:
        """Note the time."""
        if stage == "rl":
            self.ends.append(time.perf_counter())

    @property
    def steps_per_s(self) -> float:
        """Steps over seconds."""
        return (len(self.ends) - 1) / (self.ends[-1] - self.ends[0])


def bars() -> Iterator[Bar]:
    """The worst seed's ratio of speeds, and how far apart the final scores are."""
    pairs: list[tuple[Learnt, Learnt]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            slow, fast = (run(Path(folder), seed=seed, max_lag=lag) for lag in (0, MAX_LAG))
            pairs.append((slow, fast))
    yield from judge(pairs)


def judge(pairs: Sequence[tuple[Learnt, Learnt]]) -> Iterator[Bar]:
    """The bars of some seeds' pairs of runs, synchronous first."""
    what = f"asynchronous (max_lag {MAX_LAG}) against synchronous"
    told = ", ".join(f"{slow.steps_per_s:.2f} to {fast.steps_per_s:.2f} steps/s" for slow, fast in pairs)
    lag = fmean(fast.lag for _, fast in pairs)
    waits = [fmean(pair[mode].waiting for pair in pairs) for mode in (0, 1)]
    yield Bar(
        name=f"{what}: speed, worst seed",
        figure=min(fast.steps_per_s / slow.steps_per_s for slow, fast in pairs),
        bar=1.5,
        aim=2.0,
        unit="x",
        better="higher",
        note=f"{told}; lag {lag:.1f}, waiting {waits[0]:.0%} to {waits[1]:.0%} of the time",
    )
    gaps = [fast.score - slow.score for slow, fast in pairs]
    noise = stdev(gaps) / sqrt(len(gaps))
    told = ", ".join(f"{slow.score:.2f} to {fast.score:.2f}" for slow, fast in pairs)
    yield Bar(
        name=f"{what}: final score, mean difference",
        figure=fmean(gaps),
        bar=-max(0.03, 2 * noise),
        aim=0.0,
        better="higher",
        note=f"sampled reward over the last {STEPS // 10} steps: {told}; standard error {noise:.3f}",
    )
