"""A tiny model learns to live in time: `no-answer` in few words, a hasty teacher first, then the verifier's verdicts.

Runs the recipe itself, three seeds one after the other. Success is measured on held-out scenarios, whose people and
places were nobody's in training: sampled, as in training, before and after reinforcement, the same tasks for both.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.bar import Bar
from wanderlust.environments.brief import BriefNoAnswer
from wanderlust.policies.local import LocalPolicy, Sampling
from wanderlust.recipes.world import MAX_TOKENS, WorldConfig, learn
from wanderlust.rollout.engine import rollouts
from wanderlust.train.checkpoint import load_pretrained

SEEDS = (0, 1, 2)
TASKS = 200
STUDENT = 4.303
"""Of two degrees of freedom, 95%: three seeds."""


def success(checkpoint: Path) -> float:
    """Share of accepted episodes of the held-out tasks, one each, at temperature 1."""
    policy = LocalPolicy.of(*load_pretrained(checkpoint), Sampling(max_tokens=MAX_TOKENS), seed=0)

    async def played() -> float:
        env = BriefNoAnswer(evaluated=TASKS)
        async with rollouts(env, env.tasks("eval"), policy, concurrency=256) as stream:
            scores = [trajectory.score async for group in stream for trajectory in group.rollouts[0].trajectories]
        return fmean(score.reward if score is not None else 0.0 for score in scores)

    return asyncio.run(played())


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean of three seeds, and half of its 95% interval."""
    return fmean(values), STUDENT * stdev(values) / sqrt(len(values))


def bars() -> Iterator[Bar]:
    """Success after and gained, the lower end of the gain's interval, and the longest run."""
    before, after, walls = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            out, began = Path(folder) / f"seed{seed}", time.perf_counter()
            learn(WorldConfig(seed=seed), out)
            walls.append(time.perf_counter() - began)
            before.append(success(out / "taught"))
            after.append(success(out / "run" / "checkpoints" / "rl"))
    yield from judge(before, after, walls)


def judge(before: Sequence[float], after: Sequence[float], walls: Sequence[float]) -> Iterator[Bar]:
    """The bars of some seeds' figures."""
    gains = [new - old for old, new in zip(before, after, strict=True)]
    gained, half = interval(gains)
    told = ", ".join(f"{old:.2f} to {new:.2f}" for old, new in zip(before, after, strict=True))
    what = "no-answer in few words, 0.15M parameters"
    yield Bar(
        name=f"{what}: held-out success, worst seed", figure=min(after), bar=0.7, aim=0.9, better="higher", note=told
    )
    note = f"{gained:.2f} on the mean of {len(gains)} seeds, 95% interval {gained - half:.2f} to {gained + half:.2f}"
    yield Bar(
        name=f"{what}: gained by RL, at least", figure=gained - half, bar=0.1, aim=0.3, better="higher", note=note
    )
    note = f"seeds: {', '.join(f'{wall:.0f}' for wall in walls)} s, warm-up and examinations included"
    yield Bar(name=f"{what}: wall time of a run", figure=max(walls), bar=360, aim=180, unit="s", note=note)
