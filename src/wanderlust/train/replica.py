"""One copy of the policy that plays its share of the tasks and computes its share of the gradient."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from wanderlust.core.contracts import Environment, Policy
from wanderlust.core.errors import UsageError
from wanderlust.core.types import Group, Task, Trajectory
from wanderlust.policies.local import Explorer, LocalPolicy, Sampling, Suggest
from wanderlust.policies.local.sampling import key_of
from wanderlust.rollout.engine import rollouts
from wanderlust.train import losses
from wanderlust.train.algorithms.contract import Algorithm, Batchwise, Equipped, Lent, Played
from wanderlust.train.algorithms.crediting import credit
from wanderlust.train.batch import Totals
from wanderlust.train.gradient import Differentiator, Gradient
from wanderlust.train.losses import PolicyLoss
from wanderlust.train.optimizer import set_weights
from wanderlust.train.samples import Sample, live_samples
from wanderlust.train.scoring import Scorer

Credit: TypeAlias = list[tuple[float | None, list[list[float]] | None, float]]
"""Advantage, advantages and imitation of every trajectory of a shard, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayConfig:
    """How a replica plays and what it learns from."""

    algorithm: Algorithm
    loss: PolicyLoss | None = None
    """Instead of the algorithm's own."""
    sampling: Sampling
    group_size: int = 8
    concurrency: int = 512
    seed: int = 0
    micro_batch: int = 64
    fast: bool = False
    """Whether our own pass reads the model and siblings are trained on as trees, where that can be (decision 0019)."""
    suggest: Suggest | None = None
    """What explorers begin with."""
    explorers: int = 0
    """Siblings of every group that begin with a suggestion."""


class Replica:
    """Model, environment, algorithm: the verbs: publish, sample, refill, credit, prepare, weigh, gradient, imitate.

    Shards do not mix: what a shard returns depends on the weights and on the shard's own tasks.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        env: Environment,
        *,
        config: PlayConfig,
        teacher: Callable[[], Any] | None = None,
    ):
        """`model` has the weights that training starts from; `teacher` loads the stronger model, if there is one."""
        self.model, self.tokenizer, self.env, self.config = model, tokenizer, env, config
        self.policy = LocalPolicy.of(model, tokenizer, config.sampling, seed=config.seed, fast=config.fast)
        lent = lend(partial(copy.deepcopy, model), config.sampling, teacher=teacher)
        self.algorithm = equipped(config.algorithm, lent)
        loss, temperature = config.loss or self.algorithm.loss, config.sampling.temperature
        self._reinforce = Differentiator(
            model, loss=loss, temperature=temperature, micro_batch=config.micro_batch, fast=config.fast
        )
        self._imitate = Differentiator(model, loss=losses.IMITATION, micro_batch=config.micro_batch, fast=config.fast)
        self._reference = Scorer(lent.start(), temperature=temperature) if loss.kl is not None else None
        self._samples: dict[int, list[Sample]] = {}
        self._groups: dict[int, list[Group]] = {}
        self._totals: Totals | None = None

    def publish(self, weights: Tensor) -> None:
        """Take new weights [P]; what the engine remembered under the old ones is forgotten."""
        set_weights(self.model, weights)
        self.policy.engine.publish()

    def sample(self, shard: int, tasks: Sequence[Task], seed: int) -> list[Group]:
        """Play a group per task, credit it, keep the live samples for `gradient`; groups in the tasks' order.

        Where the algorithm wants to see the whole step first, samples are kept once `credit` was called.
        """
        self._samples[shard], self._groups[shard] = [], []
        return self.refill(shard, tasks, seed)

    def refill(self, shard: int, tasks: Sequence[Task], seed: int) -> list[Group]:
        """Like `sample`, beside what was played in this step already."""
        groups = asyncio.run(self._play(tasks, seed))
        if isinstance(self.algorithm, Batchwise):
            self._groups[shard] += groups
        else:
            self._keep(shard, groups)
        return groups

    def credit(self, shard: int, given: Credit) -> None:
        """Take over what the owner of the weights gave the shard's trajectories, in the order they were played."""
        groups = self._groups.pop(shard)
        for trajectory, (advantage, advantages, imitation) in zip(trajectories(groups), given, strict=True):
            trajectory.advantage, trajectory.advantages, trajectory.imitation = advantage, advantages, imitation
        self._keep(shard, groups)

    def _keep(self, shard: int, groups: Sequence[Group]) -> None:
        loss = self._reinforce.loss
        kl = loss.kl.weight if loss.kl is not None and loss.kl.into == "loss" else 0.0
        self._samples[shard] += live_samples(groups, every_token=loss.entropy > 0, kl=kl)
        for trajectory in trajectories(groups):
            trajectory.reference = None

    async def _play(self, tasks: Sequence[Task], seed: int) -> list[Group]:
        config = self.config
        policy = LocalPolicy(self.policy.engine, self.policy.renderer, config.sampling, seed=key_of(config.seed, seed))
        playing = rollouts(
            self.env,
            tasks,
            self.algorithm.player(policy) if isinstance(self.algorithm, Played) else self._exploring(policy),
            group_size=config.group_size,
            concurrency=config.concurrency,
            seed=seed,
        )
        async with playing as stream:
            groups = sorted([group async for group in stream], key=lambda g: g.index)
        if self._reference is not None:
            played = [t for t in trajectories(groups) if t.trainable and t.score is not None]
            for trajectory, known in zip(played, self._reference.logprobs(played), strict=True):
                trajectory.reference = known
        await credit(self.algorithm, groups)
        return groups

    def _exploring(self, policy: LocalPolicy) -> Policy:
        config = self.config
        if config.suggest is None or not config.explorers:
            return policy
        return Explorer(policy, config.suggest, first=config.group_size - config.explorers)

    def prepare(self, shard: int, part: int, parts: int) -> Totals:
        """Before a gradient: what the terms of the loss are divided by, as far as this part of the shard goes."""
        samples, loss = self._samples[shard], self._reinforce.loss
        if part == 0 and parts > 1 and loss.correction is not None:
            for sample, logprobs in zip(samples, self._reinforce.look(samples), strict=True):
                sample.update = logprobs
        return Totals.of(samples[part::parts], loss)

    def weigh(self, totals: Totals) -> None:
        """The next gradients are part of a batch with these totals."""
        self._totals = totals

    def gradient(self, shard: int, part: int, parts: int) -> Gradient:
        """Gradient over one of `parts` equal slices of the shard's live samples."""
        return self._reinforce.gradient(self._samples[shard][part::parts], self._totals)

    def samples(self, shard: int) -> list[Sample]:
        """What the shard's gradients are computed over."""
        return self._samples[shard]

    def imitate(self, samples: Sequence[Sample]) -> Gradient:
        """Gradient of the imitation loss."""
        return self._imitate.gradient(samples)


def lend(start: Callable[[], Any], sampling: Sampling, *, teacher: Callable[[], Any] | None = None) -> Lent:
    """What a run lends to algorithms; `start` makes a copy of the first model whenever one is asked for."""

    def nobody() -> Any:
        raise UsageError("this algorithm learns from a teacher: name a stronger checkpoint with --teacher")

    return Lent(
        max_tokens=sampling.max_tokens, temperature=sampling.temperature, start=start, teacher=teacher or nobody
    )


def equipped(algorithm: Algorithm, lent: Lent) -> Algorithm:
    """The algorithm with what it asks for."""
    return algorithm.equip(lent) if isinstance(algorithm, Equipped) else algorithm


def trajectories(groups: Sequence[Group]) -> list[Trajectory]:
    """All trajectories, in order."""
    return [t for group in groups for rollout in group.rollouts for t in rollout.trajectories]


def one_thread() -> None:
    """One core per process: idle threads that spin cost more than they bring on small models."""
    torch.set_num_threads(1)
