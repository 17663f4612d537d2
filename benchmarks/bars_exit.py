"""ExIt against plain GRPO with equally many rollouts, in a place where revising an answer helps.

Every seed warms one model up, which all methods start from; they play the same number of groups of the same size. Their
last weights answer held-out baskets of `Prices` and revise their answers up to eight times, sampled at temperature 1
with the same draws. Differences are taken seed by seed. Beside ExIt stand what it is made of: without diverge, without
the factor for diversity, and the same share of revisions drawn evenly instead of by what they teach.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from examples.guess_the_price import Prices

from benchmarks.bar import Bar
from benchmarks.courses import SEEDS, interval, reward
from wanderlust.evals.self_revision import iterate_revisions
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.runner.progress import NullLogger
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.train import run_training
from wanderlust.training.warmup import fresh_model_after_sft

ROUNDS = 8
FINAL = 4
"""Revisions after which the bar is measured, as in the paper's experiments with tools."""
PAPER = 0.033
"""What it has more than GRPO in the paper's experiments with tools, after four revisions."""
START = TrainConfig(
    env=Prices(rounds=1), policy="fresh", sft_episodes=4000, sft_steps=600, sft_batch=32, fresh_width=64, fresh_layers=2
)
TRAINING = TrainConfig(
    env="examples.guess_the_price:Prices",
    policy="",
    algorithm="grpo",
    steps=60,
    tasks_per_step=32,
    group_size=8,
    lr=1e-3,
    max_tokens=9,
    eval_every=60,
)
METHODS: Mapping[str, tuple[str, str]] = {
    "grpo": ("grpo", "uniform"),
    "exit": ("grpo-diverse", "exit"),
    "exit without diverge": ("grpo-diverse", "exit,diverge=0"),
    "exit without diversity": ("grpo", "exit"),
    "revisions drawn evenly": ("grpo", "exit,kappa=0"),
    "exit with the improvement reward": ("grpo-improve", "exit"),
}
"""Algorithm and curriculum."""
BARS = ("grpo", "exit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Share of right prices after 0, 1, ... revisions."""

    method: str
    seed: int
    right: Sequence[float]


def curves(seeds: Sequence[int] = SEEDS, methods: Sequence[str] = tuple(METHODS)) -> Iterator[Curve]:
    """Every method from every seed's start, and the start itself."""
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            start = Path(folder) / "start"
            save_pretrained(start, *fresh_model_after_sft(START.replace(seed=seed), logger=NullLogger()))
            yield Curve(method="start", seed=seed, right=revised(start))
            for method in methods:
                yield Curve(method=method, seed=seed, right=revised(learnt(start, method, seed)))


def learnt(start: Path, method: str, seed: int) -> Path:
    """The checkpoint that a method ends with."""
    algorithm, curriculum = METHODS[method]
    config = replace(TRAINING, policy=str(start), algorithm=algorithm, seed=seed, curriculum=curriculum)
    path = start.with_name(method)
    with closing((run := Run.begin(path, config)).store):
        run_training(config, run, logger=NullLogger(), workers=1)
    return path / "checkpoints" / "rl"


def revised(checkpoint: Path) -> list[float]:
    """The curve of a checkpoint on the held-out baskets."""
    policy = LocalPolicy.of(*load_pretrained(checkpoint), SamplingOptions(max_tokens=TRAINING.max_tokens), seed=0)
    env = Prices()
    rounds = asyncio.run(iterate_revisions(env, env.tasks("eval"), policy, rounds=ROUNDS, concurrency=256))
    return [fmean(map(reward, one.values())) for one in rounds]


def bars() -> Iterator[Bar]:
    """The bar, with the ablations in notes on standard error as they are measured."""
    found = []
    for curve in curves():
        found.append(curve)
        print(told(curve), file=sys.stderr, flush=True)
    yield from judge(found)


def told(curve: Curve) -> str:
    """One line."""
    return f"seed {curve.seed} {curve.method:<33}" + " ".join(f"{value:.3f}" for value in curve.right)


def judge(found: Sequence[Curve]) -> Iterator[Bar]:
    """What ExIt has more than GRPO, and each ablation less than ExIt, after `FINAL` revisions, paired by seed."""
    by = {(curve.method, curve.seed): curve.right for curve in found}
    seeds = sorted({curve.seed for curve in found})
    for other in [name for name in METHODS if name != "exit" and (name, seeds[0]) in by]:
        differences = [by["exit", seed][FINAL] - by[other, seed][FINAL] for seed in seeds]
        mean, half = interval(differences)
        means = [fmean(by[name, seed][FINAL] for seed in seeds) for name in ("exit", other)]
        note = (
            f"{means[0]:.3f} and {means[1]:.3f}; difference {mean - half:.3f} to {mean + half:.3f} (95%, t, paired); "
            "seeds: " + ", ".join(f"{one:+.3f}" for one in differences)
        )
        what = f"exit less {other}, {FINAL} revisions"
        if other == "grpo":
            yield Bar(name=f"{what}: mean", figure=mean, bar=1e-6, aim=PAPER, better="higher", note=note)
            yield Bar(name=f"{what}: lower end", figure=mean - half, bar=1e-6, aim=PAPER, better="higher", note=note)
        else:
            yield Bar(name=what, figure=mean, bar=-1.0, aim=0.0, better="higher", note=note, promised=False)
