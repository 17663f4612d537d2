"""Teach a small language model to live in time: a hasty teacher's episodes of a world, then its own. On one screen.

The world is any other: clock, notifications, log, and the verifier's verdict as the reward. Only its wording is brief.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from wanderlust.core.types import Trajectory
from wanderlust.environments.brief import BriefNoAnswer, hasty
from wanderlust.evals.split import choose
from wanderlust.policies.render import Renderer
from wanderlust.recipes.run import Run
from wanderlust.recipes.train import TrainConfig, train
from wanderlust.recipes.watch import Silent, Watch
from wanderlust.rollout.engine import rollouts
from wanderlust.train import losses
from wanderlust.train.checkpoint import save_pretrained
from wanderlust.train.fresh import Shape, fresh_model, fresh_tokenizer
from wanderlust.train.gradient import Differentiator, combine
from wanderlust.train.imitation import to_imitate
from wanderlust.train.optimizer import Optimizer, OptimizerConfig
from wanderlust.train.replica import one_thread

READ = 0.3
"""Weight of what the warm-up reads, beside 1 for what it is to write."""
ALGORITHM = "cispo-tree"
MAX_TOKENS = 24
"""Bound of an answer; those that are right have at most 16."""

SHAPE = Shape(width=64, layers=2, heads=4, inner=192, positions=1024, theta=100.0, spread=0.1)
IMITATE = OptimizerConfig(steps=400, lr=5e-3, method="muon", warmup=10, betas=(0.9, 0.98), weight_decay=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldConfig:
    """Everything that a run's figures depend on."""

    seed: int = 0
    episodes: int = 400
    """Of the teacher, all imitated, the failed ones as well."""
    care: float = 0.75
    """How careful the teacher is, from 0 to 1."""
    level: int = 1
    evaluated: int = 100
    """Held-out tasks of an examination."""
    shape: Shape = SHAPE
    imitate: OptimizerConfig = IMITATE
    batch: int = 16
    steps: int = 60
    groups: int = 24
    group_size: int = 8
    lr: float = 1e-3


TINY = WorldConfig(
    episodes=8,
    evaluated=4,
    shape=Shape(width=32, layers=1, heads=2, inner=64, positions=1024, spread=0.1),
    imitate=OptimizerConfig(steps=4, lr=5e-3, method="muon"),
    batch=4,
    steps=2,
    groups=2,
    group_size=4,
)
"""Seconds, to see that everything runs; it learns nothing."""


def learn(config: WorldConfig, out: Path, *, watch: Watch | None = None, workers: int = 2) -> dict[str, Any]:
    """Run what is left to run in the folder `out`: warm-up, then `train`, whose report this returns.

    Guarantees that a run which was interrupted at any moment and gone on with ends in the same weights.
    """
    taught = out / "taught"
    if not taught.exists():
        save_pretrained(taught, *imitate(config))
    training = TrainConfig(
        env=f"wanderlust.environments.brief:BriefNoAnswer,level={config.level},evaluated={config.evaluated}",
        policy=str(taught),
        algorithm=ALGORITHM,
        steps=config.steps,
        groups=config.groups,
        group_size=config.group_size,
        lr=config.lr,
        max_tokens=MAX_TOKENS,
        seed=config.seed,
        examine_every=30,
    )
    run = Run.resume(out / "run") if (out / "run").exists() else Run.begin(out / "run", training)
    try:
        return train(training, run, watch=watch or Silent(), workers=workers)
    finally:
        run.store.close()


def imitate(config: WorldConfig) -> tuple[Any, Any]:
    """A fresh model that was shown a hasty teacher's episodes, and its tokenizer."""
    one_thread()
    shown = asyncio.run(_shown(config))
    tokenizer = fresh_tokenizer(message.content for one in shown for message in one.messages)
    model, renderer = fresh_model(tokenizer, config.shape, seed=config.seed), Renderer(tokenizer)
    samples = [to_imitate(one, renderer, context=READ) for one in shown]
    optimizer, rng = Optimizer(model, config.imitate), Random(f"imitate/{config.seed}")
    differentiator = Differentiator(model, loss=losses.IMITATION)
    for _ in range(config.imitate.steps):
        optimizer.step(combine([differentiator.gradient(rng.sample(samples, min(config.batch, len(samples))))]))
    return model, tokenizer


async def _shown(config: WorldConfig) -> list[Trajectory]:
    env = BriefNoAnswer(level=config.level)
    teaching = rollouts(env, choose(env.tasks("train"), config.episodes), hasty(care=config.care), seed=config.seed)
    async with teaching as stream:
        groups = sorted([group async for group in stream], key=lambda group: group.index)
    return [group.rollouts[0].trajectories[0] for group in groups]
