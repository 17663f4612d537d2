"""What precedes reinforcement where a run asks for it: somebody plays the environment, and the model imitates that.

Where `--policy fresh` starts: a small model from nothing that was shown how somebody plays the environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import cycle, islice
from random import Random
from typing import Any, Self, TypeVar

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.scripted import Keyed
from wanderlust.runner.engine import rollouts
from wanderlust.tasks.registry import settings_like
from wanderlust.tasks.selection import choose
from wanderlust.training import losses
from wanderlust.training.batch.samples import Sample, to_imitate
from wanderlust.training.gradient import Differentiator, combine
from wanderlust.training.group_source import trajectories
from wanderlust.training.loggers import Watch
from wanderlust.training.optimizer import Optimizer, OptimizerConfig
from wanderlust.training.tiny_model import Shape, fresh_model, fresh_tokenizer
from wanderlust.training.trainers.process_pool import one_thread
from wanderlust.types import Policy, Task, Trajectory

SAID_EVERY = 25
"""Steps between two lines of progress."""
AT_ONCE = 8
"""Episodes in one pass through a model of millions of weights: what fits into little memory."""

Settings = TypeVar("Settings", bound="Any")


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """What a pretrained model is shown before reinforcement: `smollm2,episodes=480`, or `runs/x,episodes=100`."""

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
        """What `text` says. Raises UsageError when it has a setting that there is not, or of another kind."""
        made = cls(**settings_like(text, asdict(cls())))
        if not min(made.episodes, made.steps, made.batch, made.lr) > 0:
            raise UsageError(f"{text}: numbers are above 0")
        return made

    @property
    def optimizer(self) -> OptimizerConfig:
        """Of the warm-up."""
        return OptimizerConfig(steps=self.steps, lr=self.lr, warmup=10)

    def show(self, model: Any, tokenizer: Any, env: Environment, *, seed: int, watch: Watch) -> None:
        """Let the model imitate the episodes, in place; equal arguments, equal weights."""
        shown = episodes_of(env, self.teacher, self.episodes, seed=seed)
        renderer = Renderer(tokenizer)
        reader = Differentiator(model, loss=losses.IMITATION, micro_batch=AT_ONCE, fast=True)
        samples = [to_imitate(one, renderer) for one in shown]
        imitate(reader, samples, self.optimizer, batch=self.batch, seed=seed, watch=watch)


def imitate(
    reader: Differentiator,
    samples: Sequence[Sample],
    config: OptimizerConfig,
    *,
    batch: int,
    seed: int,
    watch: Watch,
) -> None:
    """Gradient steps of the reader's model on `batch` of the samples each, drawn by the seed."""
    optimizer, rng = Optimizer(reader.model, config), Random(f"imitate/{seed}")
    for step in range(config.steps):
        gradient = combine([reader.gradient(rng.sample(samples, min(batch, len(samples))))])
        optimizer.step(gradient)
        if (step + 1) % SAID_EVERY == 0 or step + 1 == config.steps:
            watch.show("imitate", step + 1, of=config.steps, figures=gradient.sums.metrics())


def episodes_of(env: Environment, name: str, count: int, *, seed: int) -> list[Trajectory]:
    """So many episodes of the teacher of that name, each seat a trajectory. UsageError when it says nothing."""
    tasks = choose(env.tasks("train"), count)
    tasks = list(islice(cycle(tasks), count))
    shown = [one for one in asyncio.run(_played(env, tasks, teacher(env, name, tasks), seed=seed)) if one.turns]
    if not shown:
        raise UsageError("the teacher said nothing in any episode, so there is nothing to imitate")
    return shown


async def _played(env: Environment, tasks: Sequence[Task], policy: Policy, *, seed: int) -> list[Trajectory]:
    async with rollouts(env, tasks, policy, seed=seed) as stream:
        return trajectories(sorted([group async for group in stream], key=lambda group: group.index))


def teacher(env: Environment, name: str, tasks: Sequence[Task] = ()) -> Policy:
    """The player of that name, who knows the tasks if it is the oracle. Raises UsageError when there is none."""
    players: Mapping[str, Any] = getattr(env, "players", {})
    oracle = getattr(env, "oracle", None)
    name = name or ("teacher" if "teacher" in players else "oracle")
    if name in players:
        policy: Policy = players[name]()
        return policy
    if name == "oracle" and oracle is not None:
        known = {task.id: task for task in tasks}
        return Keyed(lambda place: oracle(known[place.task]))
    there = [*players, *(["oracle"] if oracle is not None else [])]
    raise UsageError(f"the environment has no player {name!r} for a model to imitate; there are {there or 'none'}")


VOCABULARY = 2048
"""Tokens at most; a few hundred bytes and special ones are among them."""
HEAD = 16
"""Width of an attention head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """A model of some hundred thousand weights, and its warm-up: `fresh`, or `fresh,width=96,episodes=2000`."""

    teacher: str = ""
    """Player of the environment that is imitated; empty is its `teacher`, or else its oracle."""
    episodes: int = 400
    """Of the teacher, on tasks of the `train` split; all are imitated, the failed ones as well."""
    steps: int = 400
    batch: int = 16
    """Episodes a step; of several seats, seats."""
    lr: float = 5e-3
    read: float = 0.3
    """Weight of what is read, beside 1 for what is to be written: it teaches a fresh model to read."""
    width: int = 64
    layers: int = 2
    positions: int = 1024
    """Longest context in tokens."""

    @classmethod
    def of(cls, text: str) -> Self:
        """What `text` says. Raises UsageError when it has a setting that there is not, or of another kind."""
        made = cls(**settings_like(text, asdict(cls())))
        wrong = [f.name for f in fields(cls) if f.name not in ("teacher", "read") and not getattr(made, f.name) > 0]
        if wrong or made.width % HEAD or made.read < 0:
            raise UsageError(f"{text}: numbers are above 0, and width is a multiple of {HEAD}")
        return made

    @property
    def shape(self) -> Shape:
        """Of the model; small contexts suit slow rotary positions, narrow models wide embeddings."""
        return Shape(
            width=self.width,
            layers=self.layers,
            heads=self.width // HEAD,
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


def warmed(fresh: Fresh, env: Environment, *, seed: int, watch: Watch) -> tuple[Any, Any]:
    """A fresh model that was shown the teacher's episodes, and its tokenizer; equal arguments, equal weights."""
    one_thread()
    shown = episodes_of(env, fresh.teacher, fresh.episodes, seed=seed)
    tokenizer = fresh_tokenizer((message.content for one in shown for message in one.messages), size=VOCABULARY)
    model, renderer = fresh_model(tokenizer, fresh.shape, seed=seed), Renderer(tokenizer)
    samples = [to_imitate(one, renderer, context=fresh.read) for one in shown]
    reader = Differentiator(model, loss=losses.IMITATION)
    imitate(reader, samples, fresh.optimizer, batch=fresh.batch, seed=seed, watch=watch)
    return model, tokenizer
