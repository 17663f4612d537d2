"""Reinforcement learning of any checkpoint in any environment, on one screen."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from wanderlust.core.errors import EnvironmentFailure, UsageError
from wanderlust.core.extras import load
from wanderlust.core.types import Group, Task
from wanderlust.environments.named import environment
from wanderlust.evals.evaluate import report
from wanderlust.evals.report import Report
from wanderlust.evals.split import choose
from wanderlust.policies.local import Sampling
from wanderlust.recipes.folder import CHECKPOINTS, REPORT
from wanderlust.recipes.learning import SHARDS, Learner, ReinforceConfig
from wanderlust.recipes.run import Run, Watch
from wanderlust.rollout.engine import rollouts
from wanderlust.train.algorithms.contract import Algorithm
from wanderlust.train.algorithms.presets import algorithm, with_loss
from wanderlust.train.checkpoint import load_pretrained, save_pretrained
from wanderlust.train.curriculum import Stream
from wanderlust.train.losses import KL, Estimator
from wanderlust.train.optimizer import OptimizerConfig
from wanderlust.train.replica import PlayConfig, Replica, equipped, lend, one_thread
from wanderlust.train.workers import Workers

EXAMINED = 300
"""At most this many tasks of the `eval` split are played at an examination."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What may stand beside an algorithm, and what it trains."""

    teacher: str = ""
    """Checkpoint folder of a stronger model with the same tokenizer, for those that learn from one."""
    kl: float = 0.0
    """Weight of the distance to the model that training starts from; 0 is off."""
    kl_into: Literal["loss", "reward"] = "loss"
    kl_estimator: Estimator = "k3"
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    lora: int = 0
    """Rank of the adapters that are trained instead of the weights; 0 trains the weights."""

    def adapt(self, model: Any, *, seed: int) -> None:
        """Put the adapters beside the weights, if there are to be any."""
        if self.lora:
            load("wanderlust.train.adapter:adapt", extra="lora")(model, rank=self.lora, seed=seed)

    def plain(self, model: Any) -> Any:
        """The model as anybody loads it, with what its adapters learnt in its weights."""
        return load("wanderlust.train.adapter:merged", extra="lora")(model) if self.lora else model

    def method(self, name: str) -> Algorithm:
        """The algorithm with all that. UsageError when something in it cannot be."""
        method, changes = algorithm(name), dict[str, Any]()
        if self.kl:
            changes["kl"] = KL(weight=self.kl, estimator=self.kl_estimator, into=self.kl_into)
        if self.entropy:
            changes["entropy"] = self.entropy
        return with_loss(method, replace(method.loss, **changes)) if changes else method

    def load_teacher(self, tokenizer: Any) -> Any:
        """The teacher. UsageError when its tokenizer is another one."""
        model, theirs = load_pretrained(Path(self.teacher))
        if theirs.get_vocab() != tokenizer.get_vocab():
            raise UsageError(f"the teacher {self.teacher} has another tokenizer than the policy: ids would not agree")
        return model


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Everything that a run's figures depend on; the number of workers is not among it."""

    env: str
    """`package.module:Name`."""
    policy: str
    """Checkpoint folder to start from; it is copied into the run."""
    algorithm: str = "cispo"
    steps: int = 100
    groups: int = 32
    group_size: int = 8
    lr: float = 1e-4
    temperature: float = 1.0
    max_tokens: int = 256
    seed: int = 0
    examine_every: int = 25
    beside: Beside = Beside()

    @property
    def sampling(self) -> Sampling:
        """How training rollouts are drawn."""
        return Sampling(temperature=self.temperature, max_tokens=self.max_tokens)

    def teacher_of(self, tokenizer: Any) -> Callable[[], Any] | None:
        """What loads the teacher, where there is one."""
        return partial(self.beside.load_teacher, tokenizer) if self.beside.teacher else None


def check(config: TrainConfig) -> None:
    """Raises UsageError or StoreError, in one line, when a run with this config could not begin."""
    method = config.beside.method(config.algorithm)
    folder = Path(config.policy)
    _, tokenizer = load_pretrained(folder)
    equipped(method, lend(partial(_model, folder), config.sampling, teacher=config.teacher_of(tokenizer)))


def _model(folder: Path) -> Any:
    return load_pretrained(folder)[0]


class Trainee(Replica):
    """A replica that can also be examined."""

    @classmethod
    def of(cls, folder: Path, config: TrainConfig) -> Self:
        """The checkpoint in `folder`; weights are published later."""
        one_thread()
        model, tokenizer = load_pretrained(folder)
        config.beside.adapt(model, seed=config.seed)
        play = PlayConfig(
            algorithm=config.beside.method(config.algorithm),
            sampling=config.sampling,
            group_size=config.group_size,
            seed=config.seed,
            fast=True,
        )
        return cls(model, tokenizer, environment(config.env), config=play, teacher=config.teacher_of(tokenizer))

    def examine(self, tasks: Sequence[Task]) -> list[Group]:
        """One greedy episode per task, in the tasks' order."""
        return asyncio.run(self._examine(tasks))

    async def _examine(self, tasks: Sequence[Task]) -> list[Group]:
        playing = rollouts(self.env, tasks, self.policy.greedy(), seed=self.config.seed)
        async with playing as stream:
            return sorted([group async for group in stream], key=lambda g: g.index)


def train(config: TrainConfig, run: Run, *, watch: Watch, workers: int = 2) -> dict[str, Any]:
    """Run what is left to run; the facts it returns stand in the run's report as well.

    Guarantees that a run which was interrupted at any moment and gone on with ends in the same weights.
    """
    began, env = time.monotonic(), environment(config.env)
    start, end = run.path / CHECKPOINTS / "start", run.path / CHECKPOINTS / "rl"
    if not start.exists():
        save_pretrained(start, *load_pretrained(Path(config.policy)))
    model, tokenizer = load_pretrained(start)
    config.beside.adapt(model, seed=config.seed)
    state = run.state or {"step": 0, "facts": {"curve": [], "seconds": 0.0}}
    facts: dict[str, Any] = state["facts"]
    run.store.truncate(["reinforce"], state["step"])
    tasks = choose(env.tasks("eval"), EXAMINED)
    method = equipped(
        config.beside.method(config.algorithm),
        lend(partial(_model, start), config.sampling, teacher=config.teacher_of(tokenizer)),
    )
    with Workers(partial(Trainee.of, start, config), count=workers) as pool:
        learner = Learner(run, pool, model, watch=watch, facts=facts, algorithm=method)
        examine = partial(_examine, learner, tasks, config=config)
        if run.state is None:
            learner.publish()
            examine(0)
        learner.reinforce(
            Stream(lambda: env.tasks("train")),
            ReinforceConfig(
                optimizer=OptimizerConfig(steps=config.steps, lr=config.lr),
                steps=config.steps,
                groups=config.groups,
                examine_every=config.examine_every,
            ),
            env=config.env,
            describe=_describe,
            examine=examine,
        )
    save_pretrained(end, config.beside.plain(learner.model), tokenizer)
    facts["seconds"] += time.monotonic() - began
    body = {"seed": config.seed, "wall_s": round(facts["seconds"], 1), "checkpoint": str(end), "curve": facts["curve"]}
    (run.path / REPORT).write_text(json.dumps(body, indent=2) + "\n")
    return body


def _examine(learner: Learner, tasks: Sequence[Task], step: int, *, config: TrainConfig) -> None:
    """A point of the learning curve: the greedy policy on the `eval` split."""
    if not tasks:
        return
    halves = learner.workers.call("examine", [(tasks[i::SHARDS],) for i in range(SHARDS)])
    found = _whole(report(group for half in halves for group in half))
    curve = learner.facts["curve"]
    timeless = replace(found, usage=replace(found.usage, latency={}))  # no clock's: a resumed run has the same
    curve[:] = [point for point in curve if point["step"] < step] + [{"step": step, **timeless.as_dict()}]
    estimates = {"reward": found.reward, **found.parts, **found.metrics} if len(found.rewards) == 1 else found.rewards
    figures = {name: estimate.value for name, estimate in estimates.items() if estimate is not None}
    learner.run.store.add(stage="examine", step=step, env=config.env, metrics=figures)
    learner.watch.show("examine", step, of=config.steps, figures=figures)


def _whole(found: Report) -> Report:
    """The report. Raises EnvironmentFailure when nothing could be scored: there is nothing to learn from then."""
    if found.played and not found.scored:
        name, errors = next(iter(found.errors.items()), ("nothing was scored", None))
        raise EnvironmentFailure(f"all {found.played} rollouts failed: {name}: {errors.first if errors else ''}")
    return found


def _describe(groups: Sequence[Group]) -> dict[str, float]:
    """Mean of every metric that the environment records."""
    found = _whole(report(groups))
    return {f"metric/{name}": estimate.value for name, estimate in found.metrics.items()}
