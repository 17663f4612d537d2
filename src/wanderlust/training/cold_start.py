"""Supervised warm-up before reinforcement learning: a teacher plays the environment, and the model imitates it.

`--policy fresh`: a small model with random weights, trained on the teacher's episodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import cycle, islice
from random import Random
from typing import Any, Self, TypeVar

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.device import one_thread
from wanderlust.policies.scripted import PerRolloutPolicy, RolloutKey
from wanderlust.runner.engine import rollouts
from wanderlust.runner.progress import Logger
from wanderlust.tasks.registry import parse_settings_like
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.training import losses
from wanderlust.training.batch.samples import Sample, imitation_sample
from wanderlust.training.gradient import GradientComputer, combine
from wanderlust.training.group_source import trajectories_of
from wanderlust.training.optimizer import Optimizer, OptimizerConfig
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.types import Policy, Task, Trajectory

LOG_EVERY_STEPS = 25
"""Steps between two lines of progress."""
MAX_CONCURRENT_EPISODES = 8
"""Episodes in one pass through a model of millions of weights: what fits into little memory."""

Settings = TypeVar("Settings", bound="Any")


@dataclass(frozen=True, slots=True, kw_only=True)
class SFTWarmup:
    """Supervised warm-up of a pretrained model: `smollm2,episodes=480`, or `runs/x,episodes=100`."""

    teacher: str = ""
    """Player of the environment that is imitated; empty is its `teacher`, or else its oracle."""
    episodes: int = 480
    """Of the teacher, on tasks of the `train` split; all are imitated, the failed ones as well."""
    steps: int = 60
    batch: int = 8
    """Episodes a step; of several seats, seats."""
    lr: float = 1e-3

    @classmethod
    def of(cls, text: str) -> Self:
        """The settings in `text`. Raises UsageError for an unknown setting, or one of another type."""
        made = cls(**parse_settings_like(text, asdict(cls())))
        if not min(made.episodes, made.steps, made.batch, made.lr) > 0:
            raise UsageError(f"{text}: numbers are above 0")
        return made

    @property
    def optimizer(self) -> OptimizerConfig:
        """Of the warm-up."""
        return OptimizerConfig(steps=self.steps, lr=self.lr, warmup=10)

    def run_sft(self, model: Any, tokenizer: Any, env: Environment, *, seed: int, logger: Logger) -> None:
        """Let the model imitate the episodes, in place; equal arguments, equal weights."""
        trajectories = play_teacher(env, self.teacher, self.episodes, seed=seed)
        renderer = Renderer(tokenizer)
        reader = GradientComputer(model, loss=losses.IMITATION_LOSS, micro_batch=MAX_CONCURRENT_EPISODES, fast=True)
        samples = [imitation_sample(one, renderer) for one in trajectories]
        train_sft(reader, samples, self.optimizer, batch=self.batch, seed=seed, logger=logger)


def train_sft(
    computer: GradientComputer,
    samples: Sequence[Sample],
    config: OptimizerConfig,
    *,
    batch: int,
    seed: int,
    logger: Logger,
) -> None:
    """Gradient steps of the reader's model on `batch` of the samples each, drawn by the seed."""
    optimizer, rng = Optimizer(computer.model, config), Random(f"imitate/{seed}")
    for step in range(config.steps):
        gradient = combine([computer.gradient(rng.sample(samples, min(batch, len(samples))))])
        optimizer.step(gradient)
        if (step + 1) % LOG_EVERY_STEPS == 0 or step + 1 == config.steps:
            logger.log_step("sft", step + 1, of=config.steps, metrics=gradient.sums.metrics())


def play_teacher(env: Environment, name: str, count: int, *, seed: int) -> list[Trajectory]:
    """So many episodes of the teacher of that name, each seat a trajectory. UsageError when it says nothing."""
    tasks = choose_tasks(iter_tasks(env, "train"), count)
    tasks = list(islice(cycle(tasks), count))
    trajectories = [
        one for one in asyncio.run(_play_episodes(env, tasks, teacher_policy(env, name, tasks), seed=seed)) if one.turns
    ]
    if not trajectories:
        raise UsageError("the teacher gave no answer in any episode, so there is nothing to train on")
    return trajectories


async def _play_episodes(env: Environment, tasks: Sequence[Task], policy: Policy, *, seed: int) -> list[Trajectory]:
    async with rollouts(env, tasks, policy, seed=seed) as stream:
        return trajectories_of(sorted([group async for group in stream], key=lambda group: group.index))


def teacher_policy(env: Environment, name: str, tasks: Sequence[Task] = ()) -> Policy:
    """The player of that name, who knows the tasks if it is the oracle. Raises UsageError when there is none."""
    name = name or ("teacher" if "teacher" in env.players else "oracle")
    if name in env.players:
        return env.players[name]()
    if name == "oracle" and env.has_oracle:
        task_of = {task.id: task for task in tasks}

        def oracle_of(place: RolloutKey) -> Policy:
            policy = env.oracle(task_of[place.task])
            if policy is None:
                raise UsageError(f"the environment has no oracle for the task {place.task!r}")
            return policy

        return PerRolloutPolicy(oracle_of)
    there = [*env.players, *(["oracle"] if env.has_oracle else [])]
    raise UsageError(f"the environment has no player {name!r} to imitate; there are {there or 'none'}")


VOCABULARY_SIZE = 2048
"""Tokens at most; a few hundred bytes and special ones are among them."""
HEAD_WIDTH = 16
"""Width of an attention head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """A model of some hundred thousand weights, and its warm-up: `fresh`, or `fresh,width=96,episodes=2000`."""

    teacher: str = ""
    """Player of the environment that is imitated; empty is its `teacher`, or else its oracle."""
    episodes: int = 400
    """Of the teacher, on tasks of the `train` split; all are imitated, the failed ones as well."""
    steps: int = 400
    batch: int = 16
    """Episodes a step; of several seats, seats."""
    lr: float = 5e-3
    context_weight: float = 0.3
    """Loss weight of context tokens, where answer tokens have 1; a fresh model learns to read by it."""
    width: int = 64
    layers: int = 2
    positions: int = 1024
    """Longest context in tokens."""

    @classmethod
    def of(cls, text: str) -> Self:
        """The settings in `text`. Raises UsageError for an unknown setting, or one of another type."""
        made = cls(**parse_settings_like(text, asdict(cls())))
        wrong = [
            f.name for f in fields(cls) if f.name not in ("teacher", "context_weight") and not getattr(made, f.name) > 0
        ]
        if wrong or made.width % HEAD_WIDTH or made.context_weight < 0:
            raise UsageError(f"{text}: numbers are above 0, and width is a multiple of {HEAD_WIDTH}")
        return made

    @property
    def shape(self) -> ModelShape:
        """Of the model; small contexts suit slow rotary positions, narrow models wide embeddings."""
        return ModelShape(
            width=self.width,
            layers=self.layers,
            heads=self.width // HEAD_WIDTH,
            inner=3 * self.width,
            positions=self.positions,
            theta=100.0,
            spread=0.1,
        )

    @property
    def optimizer(self) -> OptimizerConfig:
        """Of the warm-up."""
        return OptimizerConfig(
            steps=self.steps, lr=self.lr, method="muon", warmup=10, betas=(0.9, 0.98), weight_decay=0.1
        )


def warm_up_with_sft(fresh: ColdStart, env: Environment, *, seed: int, watch: Logger) -> tuple[Any, Any]:
    """A fresh model that was shown the teacher's episodes, and its tokenizer; equal arguments, equal weights."""
    one_thread()
    trajectories = play_teacher(env, fresh.teacher, fresh.episodes, seed=seed)
    tokenizer = fresh_tokenizer(
        (message.content for one in trajectories for message in one.messages), size=VOCABULARY_SIZE
    )
    model, renderer = fresh_model(tokenizer, fresh.shape, seed=seed), Renderer(tokenizer)
    samples = [imitation_sample(one, renderer, context=fresh.context_weight) for one in trajectories]
    reader = GradientComputer(model, loss=losses.IMITATION_LOSS)
    train_sft(reader, samples, fresh.optimizer, batch=fresh.batch, seed=seed, logger=watch)
    return model, tokenizer
