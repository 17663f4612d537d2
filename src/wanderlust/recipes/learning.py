"""The two ways a policy gets better, as loops over one step: imitate somebody, or reinforce what paid."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from math import isfinite
from random import Random
from typing import Any, TypeAlias

import torch

from wanderlust.core.errors import WanderlustError
from wanderlust.core.types import Group
from wanderlust.recipes.run import Run
from wanderlust.recipes.watch import Watch
from wanderlust.train.algorithms.contract import Algorithm, Batchwise, Selecting, Stateful
from wanderlust.train.algorithms.crediting import credit_batch
from wanderlust.train.algorithms.group_relative import live
from wanderlust.train.batch import Totals
from wanderlust.train.checkpoint import save_state
from wanderlust.train.curriculum import Curriculum
from wanderlust.train.gradient import Gradient, combine
from wanderlust.train.optimizer import Optimizer, OptimizerConfig, set_weights, weights_of
from wanderlust.train.replica import trajectories
from wanderlust.train.samples import Sample
from wanderlust.train.workers import Workers

Describe: TypeAlias = Callable[[Sequence[Group]], dict[str, float]]

SHARDS = 2
"""Pieces that every batch is cut into, whatever the number of workers; part of what a seed determines."""
SAVE_EVERY = 5
"""Steps between two saved states."""
AGAIN = 1_000_000_007
"""Added to the seed each time that a step plays more groups."""
BROKEN = 3
"""Updates in a row without a finite loss and gradient that end a run."""
BATCH = "broken-batch.pt"
NOTHING = (
    "no trainable sibling has any credit, so nothing is learnt from this step (said once; `steps_empty` counts them): "
    "tasks are too hard or too easy, or all rollouts failed"
)


class Broken(WanderlustError):
    """Losses or gradients were no finite numbers, again and again."""


class NothingToLearn(UserWarning):
    """A step had nothing to learn from."""


@dataclass(slots=True)
class Trouble:
    """What taught nothing or did not take place, in this stage."""

    empty: int = 0
    """Steps."""
    broken: int = 0
    """Updates."""
    in_a_row: int = 0
    """Broken ones since the last good one."""

    def known(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """The metrics that are numbers (a broken update has others), and how many updates were broken so far."""
        broken = {"updates_broken": float(self.broken)} if self.broken else {}
        return {**{name: value for name, value in metrics.items() if isfinite(value)}, **broken}


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

    def __init__(
        self,
        run: Run,
        workers: Workers,
        model: Any,
        *,
        watch: Watch,
        facts: dict[str, Any],
        algorithm: Algorithm | None = None,
    ):
        """`algorithm` is the one that the workers credit by, for what it does with a whole step; None: nothing."""
        self.run, self.workers, self.model, self.watch, self.facts = run, workers, model, watch, facts
        self.algorithm, self.averaged, self.trouble = algorithm, weights_of(model), Trouble()

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
        optimizer, state, self.trouble = Optimizer(self.model, config), self.run.state, Trouble()
        if state is None or state["stage"] != stage:
            return optimizer, 0
        set_weights(self.model, state["weights"])
        self.averaged = state["averaged"]
        optimizer.restore(state["optimizer"])
        self.trouble = Trouble(**state.get("trouble", {}))
        if isinstance(self.algorithm, Stateful):
            self.algorithm.restore(state.get("algorithm", {}))
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
                "trouble": asdict(self.trouble),
                "algorithm": self.algorithm.state() if isinstance(self.algorithm, Stateful) else {},
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
            updated = self._update(step, optimizer, gradient, batch=partial(list, batch))
            metrics = self.trouble.known({**gradient.sums.metrics(), **updated})
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
        groups = self._play(step, curriculum, config.groups)
        rolled = time.monotonic()
        metrics, read = dict[str, float](), 0
        for part in range(config.parts):
            gradient = self._gradient([(i, part, config.parts) for i in range(SHARDS)])
            newest = {**gradient.sums.metrics(), **self._update(step, optimizer, gradient, batch=self._batch)}
            metrics = newest if part == 0 else {**newest, **{k: v for k, v in metrics.items() if "gap" in k}}
            self.publish()
            read += gradient.sums.tokens
        ended = time.monotonic()
        metrics = self.trouble.known(metrics)
        if not read:
            metrics["steps_empty"] = self._nothing(step)
        metrics["update_tokens_per_s"] = read / (ended - rolled)
        return groups, {**metrics, **_figures(groups), **_speed(groups, rolled - began, ended - rolled)}

    def _play(self, step: int, curriculum: Curriculum, count: int) -> list[Group]:
        """Groups of a step, credited; those that are no use to the algorithm are replaced as often as it likes."""
        groups, missing, verb = list[Group](), count, "sample"
        selects = self.algorithm if isinstance(self.algorithm, Selecting) else None
        dealt: list[list[Group]] = [[] for _ in range(SHARDS)]
        for again in range(1 + (selects.refills if selects is not None else 0)):
            if not missing:
                break
            tasks = curriculum.next(step, missing)
            shards = [(i, tasks[i::SHARDS], step + AGAIN * again) for i in range(SHARDS)]
            played: list[list[Group]] = self.workers.call(verb, shards)
            for shard, new in enumerate(played):
                dealt[shard] += new
            newest = _interleaved(played, first=len(groups))
            for group in newest:
                curriculum.observe(group)
            groups, verb = groups + newest, "refill"
            missing -= sum(map(selects.keeps, newest)) if selects is not None else missing
        if self.algorithm is not None and isinstance(self.algorithm, Batchwise):
            asyncio.run(credit_batch(self.algorithm, groups))
            given = [[(t.advantage, t.advantages, t.imitation) for t in trajectories(mine)] for mine in dealt]
            self.workers.call("credit", list(enumerate(given)))
            for trajectory in trajectories(groups):
                trajectory.reference = None
        return groups

    def _nothing(self, step: int) -> float:
        """Count a step that taught nothing; the first one is said."""
        if not self.trouble.empty:
            warnings.warn(f"step {step}: {NOTHING}", NothingToLearn, stacklevel=2)
        self.trouble.empty += 1
        return float(self.trouble.empty)

    def _gradient(self, jobs: Sequence[tuple[int, int, int]]) -> Gradient:
        """Of the whole batch, each term over its own count."""
        totals = Totals()
        for own in self.workers.call("prepare", jobs):
            totals.add(own)
        self.workers.tell("weigh", totals)
        return combine(self.workers.call("gradient", jobs))

    def _batch(self) -> list[Sample]:
        shards: list[list[Sample]] = self.workers.call("samples", [(i,) for i in range(SHARDS)])
        return [sample for shard in shards for sample in shard]

    def _update(
        self, step: int, optimizer: Optimizer, gradient: Gradient, *, batch: Callable[[], Sequence[Sample]]
    ) -> dict[str, float]:
        """Take the step, unless it is broken: then weights and optimizer stay as they are.

        One with nothing in it has a gradient of 0: what momentum there is goes on. Broken ones are counted in the
        metrics. Raises Broken after BROKEN of them in a row, with the batch saved.
        """
        if gradient.finite:
            self.trouble.in_a_row = 0
            return optimizer.step(gradient)
        optimizer.skip()
        self.trouble.broken += 1
        self.trouble.in_a_row += 1
        if self.trouble.in_a_row >= BROKEN:
            file, samples = self.run.path / BATCH, [asdict(sample) for sample in batch()]
            save_state(file, {"step": step, "weights": weights_of(self.model), "samples": samples})
            raise Broken(
                f"step {step}: loss or gradient was no finite number {BROKEN} times in a row; nothing was changed by "
                f"those updates and the batch lies in {file}: try a lower learning rate"
            )
        return {}


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


def _interleaved(played: Sequence[Sequence[Group]], *, first: int = 0) -> list[Group]:
    """The groups in the order of the tasks, which were dealt to the shards in turn; numbered from `first`."""
    groups = [played[i % SHARDS][i // SHARDS] for i in range(sum(map(len, played)))]
    for index, group in enumerate(groups, first):
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
