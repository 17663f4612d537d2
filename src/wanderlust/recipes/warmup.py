"""What precedes reinforcement where a run asks for it: somebody plays the environment, and the model imitates that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from random import Random
from typing import Any, Self, TypeVar

from wanderlust.core.contracts import Environment, Policy
from wanderlust.core.errors import UsageError
from wanderlust.core.types import Task, Trajectory
from wanderlust.environments.named import settings_like
from wanderlust.evals.split import choose
from wanderlust.policies.keyed import Keyed
from wanderlust.policies.render import Renderer
from wanderlust.recipes.watch import Watch
from wanderlust.rollout.engine import rollouts
from wanderlust.train import losses
from wanderlust.train.gradient import Differentiator, combine
from wanderlust.train.imitation import to_imitate
from wanderlust.train.optimizer import Optimizer, OptimizerConfig
from wanderlust.train.playing import trajectories
from wanderlust.train.samples import Sample

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
