"""One copy of the policy that plays its share of the tasks and computes its share of the gradient."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wanderlust.core.contracts import Environment, Policy
from wanderlust.core.types import Group, Task
from wanderlust.policies.local import Explorer, LocalPolicy, Sampling, Suggest
from wanderlust.policies.local.sampling import key_of
from wanderlust.rollout.engine import rollouts
from wanderlust.train import losses
from wanderlust.train.algorithms.presets import Algorithm
from wanderlust.train.gradient import Differentiator, Gradient
from wanderlust.train.losses import PolicyLoss
from wanderlust.train.optimizer import set_weights
from wanderlust.train.samples import Sample, live_samples


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
    suggest: Suggest | None = None
    """What explorers begin with."""
    explorers: int = 0
    """Siblings of every group that begin with a suggestion."""


class Replica:
    """Model, environment and algorithm behind four verbs: publish, sample, gradient, imitate.

    Shards do not mix: what a shard returns depends on the weights and on the shard's own tasks.
    """

    def __init__(self, model: Any, tokenizer: Any, env: Environment, *, config: PlayConfig):
        self.model, self.tokenizer, self.env, self.config = model, tokenizer, env, config
        self.policy = LocalPolicy.of(model, tokenizer, config.sampling, seed=config.seed)
        temperature = config.sampling.temperature
        self._reinforce = Differentiator(
            model, loss=config.loss or config.algorithm.loss, temperature=temperature, micro_batch=config.micro_batch
        )
        self._imitate = Differentiator(model, loss=losses.IMITATION, micro_batch=config.micro_batch)
        self._samples: dict[int, list[Sample]] = {}

    def publish(self, weights: Tensor) -> None:
        """Take new weights [P]; what the engine remembered under the old ones is forgotten."""
        set_weights(self.model, weights)
        self.policy.engine.publish()

    def sample(self, shard: int, tasks: Sequence[Task], seed: int) -> list[Group]:
        """Play a group per task, credit it, keep the live samples for `gradient`; groups in the tasks' order."""
        groups = asyncio.run(self._play(tasks, seed))
        self._samples[shard] = live_samples(groups, every_token=self._reinforce.loss.entropy > 0)
        return groups

    async def _play(self, tasks: Sequence[Task], seed: int) -> list[Group]:
        config = self.config
        policy = LocalPolicy(self.policy.engine, self.policy.renderer, config.sampling, seed=key_of(config.seed, seed))
        playing = rollouts(
            self.env,
            tasks,
            self._exploring(policy),
            group_size=config.group_size,
            concurrency=config.concurrency,
            seed=seed,
        )
        async with playing as stream:
            groups = sorted([group async for group in stream], key=lambda g: g.index)
        for group in groups:
            await config.algorithm.annotate(group)
        return groups

    def _exploring(self, policy: LocalPolicy) -> Policy:
        config = self.config
        if config.suggest is None or not config.explorers:
            return policy
        return Explorer(policy, config.suggest, first=config.group_size - config.explorers)

    def gradient(self, shard: int, part: int, parts: int) -> Gradient:
        """Gradient over one of `parts` equal slices of the shard's live samples."""
        return self._reinforce.gradient(self._samples[shard][part::parts])

    def imitate(self, samples: Sequence[Sample]) -> Gradient:
        """Gradient of the imitation loss."""
        return self._imitate.gradient(samples)


def one_thread() -> None:
    """One core per process: idle threads that spin cost more than they bring on small models."""
    torch.set_num_threads(1)
