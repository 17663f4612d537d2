"""The two ways a policy gets better, as loops over one step: imitate somebody, or reinforce what paid."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

import torch

from wanderlust.core.types import Group
from wanderlust.recipes.run import Run, Watch
from wanderlust.train.algorithms.group_relative import live
from wanderlust.train.curriculum import Curriculum
from wanderlust.train.gradient import combine
from wanderlust.train.optimizer import Optimizer, OptimizerConfig, set_weights, weights_of
from wanderlust.train.samples import Sample
from wanderlust.train.workers import Workers

Describe: TypeAlias = Callable[[Sequence[Group]], dict[str, float]]

SHARDS = 2
"""Pieces that every batch is cut into, whatever the number of workers; part of what a seed determines."""
SAVE_EVERY = 5
"""Steps between two saved states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImitateConfig:
    """Supervised warm-up."""

    optimizer: OptimizerConfig
    batch: int = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinforceConfig:
    """Reinforcement learning."""

    optimizer: OptimizerConfig
    """Its `steps` count updates: rollout steps x `parts`."""
    steps: int
    groups: int = 32
    """Groups a step."""
    parts: int = 1
    """Updates a step, each on its own part of the samples."""
    examine_every: int = 25
    average: float = 0.95
    """Examined and kept is the moving average of the weights, with this share of the old at each step; 0 is off."""


class Learner:
    """The one owner of the weights and the optimizer; everything that computes sits in the workers."""

    def __init__(self, run: Run, workers: Workers, model: Any, *, watch: Watch, facts: dict[str, Any]):
        self.run, self.workers, self.model, self.watch, self.facts = run, workers, model, watch, facts
        self.averaged = weights_of(model)

    def publish(self) -> None:
        """Hand the weights to every worker."""
        self.workers.tell("publish", weights_of(self.model))

    @contextmanager
    def as_averaged(self) -> Iterator[None]:
        """Inside, everybody has the averaged weights."""
        newest = weights_of(self.model)
        set_weights(self.model, self.averaged)
        self.publish()
        yield
        set_weights(self.model, newest)
        self.publish()

    def begin(self, stage: str, config: OptimizerConfig, curriculum: Curriculum | None = None) -> tuple[Optimizer, int]:
        """The optimizer of a stage and the step to start at: 0, or where the saved state of this stage stopped."""
        optimizer, state = Optimizer(self.model, config), self.run.state
        if state is None or state["stage"] != stage:
            return optimizer, 0
        set_weights(self.model, state["weights"])
        self.averaged = state["averaged"]
        optimizer.restore(state["optimizer"])
        if curriculum is not None:
            curriculum.restore(state["curriculum"])
        return optimizer, int(state["step"])

    def save(self, stage: str, step: int, *, optimizer: Optimizer, curriculum: Curriculum | None = None) -> None:
        """Keep everything that going on needs."""
        self.run.save(
            {
                "stage": stage,
                "step": step,
                "weights": weights_of(self.model),
                "averaged": self.averaged,
                "optimizer": optimizer.state(),
                "curriculum": curriculum.state() if curriculum is not None else {},
                "facts": self.facts,
            }
        )

    def imitate(self, samples: Sequence[Sample], config: ImitateConfig, *, seed: int) -> None:
        """Gradient steps on the imitation loss; every pass over the samples is shuffled anew."""
        optimizer, start = self.begin("imitate", config.optimizer)
        self.publish()
        for step in range(start, config.optimizer.steps):
            began = time.monotonic()
            batch = _batch(samples, step, config.batch, seed=seed)
            gradient = combine(self.workers.call("imitate", [(batch[i::SHARDS],) for i in range(SHARDS)]))
            metrics = {**gradient.sums.metrics(), **optimizer.step(gradient)}
            metrics["tokens_per_s"] = gradient.sums.tokens / (time.monotonic() - began)
            self.publish()
            self.run.store.add(stage="imitate", step=step, metrics=metrics)
            self.watch.show("imitate", step + 1, of=config.optimizer.steps, figures=metrics)
            if (step + 1) % (SAVE_EVERY * 10) == 0:
                self.save("imitate", step + 1, optimizer=optimizer)

    def reinforce(
        self,
        curriculum: Curriculum,
        config: ReinforceConfig,
        *,
        env: str,
        describe: Describe,
        examine: Callable[[int], None],
    ) -> None:
        """Play, credit, update.

        `describe` adds the environment's own figures of a step's groups; `examine` is called with the number of
        finished steps every `examine_every` of them and after the last. Ends with the averaged weights.
        """
        self.averaged = weights_of(self.model)
        optimizer, start = self.begin("reinforce", config.optimizer, curriculum)
        self.publish()
        if start == 0:
            self.save("reinforce", 0, optimizer=optimizer, curriculum=curriculum)
        for step in range(start, config.steps):
            groups, metrics = self._step(step, curriculum, optimizer, config=config)
            old = min(config.average, (step + 1) / (step + 10))  # early on the start must be forgotten faster
            self.averaged = torch.lerp(weights_of(self.model), self.averaged, old)
            metrics |= describe(groups)
            self.run.store.add(groups, stage="reinforce", step=step, env=env, metrics=metrics)
            self.watch.show("reinforce", step + 1, of=config.steps, figures=metrics)
            if (step + 1) % config.examine_every == 0 or step + 1 == config.steps:
                with self.as_averaged():
                    examine(step + 1)
            if (step + 1) % SAVE_EVERY == 0 or step + 1 == config.steps:
                self.save("reinforce", step + 1, optimizer=optimizer, curriculum=curriculum)
        set_weights(self.model, self.averaged)
        self.publish()

    def _step(
        self, step: int, curriculum: Curriculum, optimizer: Optimizer, *, config: ReinforceConfig
    ) -> tuple[list[Group], dict[str, float]]:
        began = time.monotonic()
        tasks = curriculum.next(step, config.groups)
        shards = [(i, tasks[i::SHARDS], step) for i in range(SHARDS)]
        played: list[list[Group]] = self.workers.call("sample", shards)
        groups = _interleaved(played)
        for group in groups:
            curriculum.observe(group)
        rolled = time.monotonic()
        metrics: dict[str, float] = {}
        read = 0
        for part in range(config.parts):
            jobs = [(i, part, config.parts) for i in range(SHARDS)]
            gradient = combine(self.workers.call("gradient", jobs))
            newest = {**gradient.sums.metrics(), **optimizer.step(gradient)}
            metrics = newest if part == 0 else {**newest, **{k: v for k, v in metrics.items() if "gap" in k}}
            self.publish()
            read += gradient.sums.tokens
        ended = time.monotonic()
        metrics["update_tokens_per_s"] = read / (ended - rolled)
        return groups, {**metrics, **_figures(groups), **_speed(groups, rolled - began, ended - rolled)}


def _batch(samples: Sequence[Sample], step: int, size: int, *, seed: int) -> list[Sample]:
    """The samples of one step of endless shuffled passes."""
    out: list[Sample] = []
    place = step * size
    while len(out) < size:
        turn, index = divmod(place + len(out), len(samples))
        order = list(samples)
        Random(f"imitate/{seed}/{turn}").shuffle(order)
        out += order[index : index + size - len(out)]
    return out


def _interleaved(played: Sequence[Sequence[Group]]) -> list[Group]:
    """The groups in the order of the tasks, which were dealt to the shards in turn."""
    groups = [played[i % SHARDS][i // SHARDS] for i in range(sum(map(len, played)))]
    for index, group in enumerate(groups):
        group.index = index
    return groups


def _figures(groups: Sequence[Group]) -> dict[str, float]:
    """Mean reward and its parts, share of live groups, failed rollouts."""
    scores = [t.score for g in groups for r in g.rollouts for t in r.trajectories if t.score is not None]
    count = max(len(scores), 1)
    names = sorted({name for score in scores for name in score.parts})
    parts = {f"part/{name}": sum(s.parts.get(name, 0.0) for s in scores) / count for name in names}
    return {
        "reward": sum(s.reward for s in scores) / count,
        **parts,
        "live": sum(map(live, groups)) / max(len(groups), 1),
        "failed": float(sum(r.error is not None for g in groups for r in g.rollouts)),
        "games": float(sum(len(g.rollouts) for g in groups)),
    }


def _speed(groups: Sequence[Group], rollout: float, update: float) -> dict[str, float]:
    """Throughput of the two halves of a step, context tokens included; seconds are wall-clock ones."""
    turns = [turn.tokens for g in groups for r in g.rollouts for t in r.trajectories for turn in t.turns]
    tokens = sum(len(t.prompt) + len(t.completion) for t in turns if t is not None)
    games = sum(len(g.rollouts) for g in groups)
    return {
        "rollout_s": rollout,
        "update_s": update,
        "rollout_tokens_per_s": tokens / rollout,
        "games_per_s": games / (rollout + update),
    }
