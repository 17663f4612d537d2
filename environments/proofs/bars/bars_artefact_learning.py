"""Short Metamath proofs of statements that a small model never saw: how many are accepted, before and after RL.

It imitates a teacher who notes implications and seldom looks whether they can be used. The reward is the checker of
proofs alone. The bars are about held-out statements, one answer each at temperature 1; what the likeliest answers earn
stands beside them, and what one of sixteen answers does before RL, which is what RL can gain. Every accepted proof is
checked again from what was stored. Runs stay in RUNS and go on where they stopped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import SEEDS, interval, played, reward, sampled

from wanderlust.errors import UsageError
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.runner.engine import rollouts
from wanderlust.runner.progress import NullLogger
from wanderlust.training.checkpoint import Run, load_config
from wanderlust.training.config import TrainConfig
from wanderlust.training.train import run_training
from wanderlust.types import Rollout
from wanderlust_proofs.brief_proofs import BriefProofs
from wanderlust_proofs.checkers import verify_file
from wanderlust_proofs.contract import artefact_of

RUNS = Path("runs/benchmarks")
TASKS = 400
MANY_TASKS, MANY = 100, 16
"""Statements that are answered so many times."""
SHORT_PROOFS = TrainConfig(
    env="wanderlust_proofs.brief_proofs:BriefProofs",
    policy="fresh",
    sft_episodes=12000,
    sft_steps=2400,
    sft_batch=32,
    sft_lr=0.003,
    sft_context_weight=0,
    fresh_width=64,
    fresh_layers=2,
    fresh_positions=96,
    algorithm="cispo",
    steps=100,
    tasks_per_step=32,
    group_size=16,
    lr=1e-3,
    max_tokens=48,
    eval_every=50,
    eval_tasks=100,
    result_samples=0,
)
"""Settings of a run: SFT on the careless teacher, then RL. Record 0070 has what shorter runs gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """One seed; shares of held-out statements whose proof is accepted."""

    before: float
    after: float
    likeliest: tuple[float, float]
    """Of the likeliest answers, before and after."""
    one_of_many: tuple[float, float]
    """Of statements of which one of MANY answers is accepted, before and after."""
    wall: float
    """Seconds of the run, SFT included."""
    valid: int
    """Accepted proofs that are valid when they are checked again."""
    stored: int


def checked_again(rollouts: Sequence[Rollout]) -> tuple[int, int]:
    """How many stored artefacts are valid when they are checked again, and how many there are."""
    made = [artefact_of(one.state["artefact"], one.task.id) for one in rollouts if one.state["artefact"]]
    verified = [verify_file(one) for one in made]
    return sum(one.verdict.valid and not one.findings for one in verified), len(verified)


def one_of_many(checkpoint: Path) -> float:
    """The share of statements of which an answer is accepted."""
    env = BriefProofs(eval_size=MANY_TASKS)
    policy = LocalPolicy.of(*load_pretrained(checkpoint), SamplingOptions(max_tokens=SHORT_PROOFS.max_tokens), seed=1)

    async def play() -> list[float]:
        async with rollouts(env, env.tasks("eval"), policy, group_size=MANY, concurrency=256) as groups:
            return [max(map(reward, group.rollouts)) async for group in groups]

    return fmean(asyncio.run(play()))


def likeliest(checkpoint: Path, env: BriefProofs) -> float:
    """The share of statements whose likeliest answer is accepted."""
    greedy = SamplingOptions(max_tokens=SHORT_PROOFS.max_tokens, temperature=0.0)
    return fmean(map(reward, played(env, env.tasks("eval"), LocalPolicy.of(*load_pretrained(checkpoint), greedy))))


def learnt(seed: int) -> Learnt:
    """One seed, trained as far as it was not."""
    config, path = SHORT_PROOFS.replace(seed=seed), RUNS / f"short-proofs-seed{seed}"
    if path.exists() and load_config(path, TrainConfig).as_dict() != config.as_dict():
        raise UsageError(f"{path} is a run with other settings: remove it to train again")
    run = Run.resume(path) if path.exists() else Run.begin(path, config)
    with closing(run.store):
        if not (path / "report.json").exists():
            run_training(config, run, logger=NullLogger(), workers=1)
    env = BriefProofs(eval_size=TASKS)
    places = [path / "checkpoints" / name for name in ("start", "rl")]
    drawn = [sampled(one, env, env.tasks("eval"), max_tokens=config.max_tokens) for one in places]
    before, after = (fmean(map(reward, one)) for one in drawn)
    valid, stored = checked_again([one for answers in drawn for one in answers])
    return Learnt(
        before=before,
        after=after,
        likeliest=(likeliest(places[0], env), likeliest(places[1], env)),
        one_of_many=(one_of_many(places[0]), one_of_many(places[1])),
        wall=float(json.loads((path / "report.json").read_text(encoding="utf-8"))["wall_s"]),
        valid=valid,
        stored=stored,
    )


def pairs(values: Sequence[tuple[float, float]]) -> str:
    """Before and after of every seed."""
    return "seeds: " + ", ".join(f"{before:.2f} to {after:.2f}" for before, after in values)


def gain(what: str, values: Sequence[tuple[float, float]], *, bar: float) -> Bar:
    """The mean gain over the seeds."""
    mean, half = interval([after - before for before, after in values])
    note = f"95% interval {mean - half:.2f} to {mean + half:.2f}; {pairs(values)}"
    return Bar(name=what, figure=mean, bar=bar, aim=0.4, better="higher", note=note)


def bars() -> Iterator[Bar]:
    """Proofs gained by reinforcement over SFT, and the artefacts that are still valid."""
    runs = [learnt(seed) for seed in SEEDS]
    what = f"short proofs of {TASKS} held-out statements"
    shares = [(one.before, one.after) for one in runs]
    mean, half = interval([one.after - one.before for one in runs])
    yield Bar(
        name=f"{what}: accepted, worst seed",
        figure=min(one.after for one in runs),
        bar=0.5,
        aim=0.9,
        better="higher",
        note=f"{pairs(shares)}; one of {MANY} answers of {MANY_TASKS} statements, "
        + pairs([one.one_of_many for one in runs]),
    )
    yield gain(f"{what}: gained by RL", shares, bar=0.15)
    yield Bar(
        name=f"{what}: gained, lower end",
        figure=mean - half,
        bar=0.01,
        aim=0.15,
        better="higher",
        note=f"mean of {len(runs)} seeds",
    )
    yield gain(f"{what}: gained, likeliest answers", [one.likeliest for one in runs], bar=0.15)
    yield Bar(
        name="stored artefacts that are invalid when they are checked again",
        figure=sum(one.stored - one.valid for one in runs),
        bar=0.0,
        aim=0.0,
        note=f"{sum(one.stored for one in runs):,} artefacts of all seeds",
    )
    yield Bar(
        name=f"{what}: wall time of a run",
        figure=max(one.wall for one in runs),
        bar=900,
        aim=300,
        unit="s",
        note="seeds: " + ", ".join(f"{one.wall:.0f}" for one in runs),
    )
