"""Where `--policy fresh` starts: a small model from nothing that was shown how somebody plays the environment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import cycle, islice
from random import Random
from typing import Any, Self

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
from wanderlust.train.fresh import Shape, fresh_model, fresh_tokenizer
from wanderlust.train.gradient import Differentiator, combine
from wanderlust.train.imitation import to_imitate
from wanderlust.train.optimizer import Optimizer, OptimizerConfig
from wanderlust.train.playing import trajectories
from wanderlust.train.replica import one_thread

VOCABULARY = 2048
"""Tokens at most; a few hundred bytes and special ones are among them."""
HEAD = 16
"""Width of an attention head."""
SAID_EVERY = 25
"""Steps between two lines of progress."""


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
    shown = asyncio.run(_shown(fresh, env, seed=seed))
    tokenizer = fresh_tokenizer((message.content for one in shown for message in one.messages), size=VOCABULARY)
    model, renderer = fresh_model(tokenizer, fresh.shape, seed=seed), Renderer(tokenizer)
    samples = [to_imitate(one, renderer, context=fresh.read) for one in shown]
    optimizer, rng = Optimizer(model, fresh.optimizer), Random(f"imitate/{seed}")
    differentiator = Differentiator(model, loss=losses.IMITATION)
    for step in range(fresh.steps):
        gradient = combine([differentiator.gradient(rng.sample(samples, min(fresh.batch, len(samples))))])
        optimizer.step(gradient)
        if (step + 1) % SAID_EVERY == 0 or step + 1 == fresh.steps:
            watch.show("imitate", step + 1, of=fresh.steps, figures=gradient.sums.metrics())
    return model, tokenizer


async def _shown(fresh: Fresh, env: Environment, *, seed: int) -> list[Trajectory]:
    tasks = choose(env.tasks("train"), fresh.episodes)
    tasks = list(islice(cycle(tasks), fresh.episodes))
    async with rollouts(env, tasks, teacher(env, fresh.teacher, tasks), seed=seed) as stream:
        groups = sorted([group async for group in stream], key=lambda group: group.index)
    shown = [trajectory for trajectory in trajectories(groups) if trajectory.turns]
    if not shown:
        raise UsageError("the teacher said nothing in any episode, so there is nothing to imitate")
    return shown


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
    raise UsageError(
        f"the environment has no player {name!r} for a fresh model to imitate; there are {there or 'none'}"
    )
