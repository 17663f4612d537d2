"""One copy of the policy that plays its share of the tasks and computes its share of the gradient."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from wanderlust.core.contracts import Environment, Rubric
from wanderlust.core.types import Group, Task
from wanderlust.policies.local import LocalPolicy
from wanderlust.policies.sampling import key_of
from wanderlust.train import frugal
from wanderlust.train.batch import Totals
from wanderlust.train.gradient import Differentiator, Gradient
from wanderlust.train.losses import PolicyLoss
from wanderlust.train.optimizer import set_weights
from wanderlust.train.playing import Company, PlayConfig, equipped, lend, reference_of
from wanderlust.train.samples import Sample


class Replica:
    """Model, environment, algorithm in one process; the verbs: publish, play, gradient, look.

    It remembers nothing but the weights: what a call returns depends on them and on its arguments.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        env: Environment,
        *,
        config: PlayConfig,
        teacher: Callable[[], Any] | None = None,
        rubric: Rubric | None = None,
    ):
        """`model` has the weights that training starts from; `teacher` loads the stronger model, if there is one;
        `rubric` stands in place of the environment's."""
        self.model, self.tokenizer, self.env, self.config = model, tokenizer, env, config
        self.policy = LocalPolicy.of(model, tokenizer, config.sampling, seed=config.seed, fast=config.fast)
        lent = lend(partial(copy.deepcopy, model), config.sampling, teacher=teacher)
        self.algorithm = equipped(config.algorithm, lent)
        reference = reference_of(self.algorithm, lent)
        self.company = Company(env, config, self._drawing, algorithm=self.algorithm, reference=reference, rubric=rubric)
        self._reads = Differentiator(
            model,
            loss=self.algorithm.loss,
            temperature=config.sampling.temperature,
            micro_batch=config.micro_batch,
            fast=config.fast,
        )

    def _drawing(self, seed: int) -> LocalPolicy:
        own = self.policy
        return LocalPolicy(own.engine, own.renderer, own.sampling, seed=key_of(self.config.seed, seed))

    def publish(self, weights: Tensor, version: int) -> None:
        """Take new weights [P]; what the engine remembered under the old ones is forgotten."""
        set_weights(self.model, weights)
        self.policy.engine.publish()
        self.policy.engine.version = version

    def play(self, tasks: Sequence[Task], seed: int) -> list[Group]:
        """Play a group per task and credit it; groups in the tasks' order."""
        played: list[Group] = []

        async def work() -> None:  # returns nothing: asyncio spells the result out when it lets go of Ctrl-C
            played.extend(await self.company.play(tasks, seed=seed))

        asyncio.run(work())
        return played

    def gradient(self, samples: Sequence[Sample], loss: PolicyLoss, totals: Totals) -> Gradient:
        """Of the summed loss over some samples of a batch with these totals."""
        self._reads.loss = loss
        return frugal.gradient(self._reads, samples, totals)

    def look(self, samples: Sequence[Sample], loss: PolicyLoss) -> list[list[float]]:
        """Log-probability of every trained token (else 0), per sample and token."""
        self._reads.loss = loss
        return self._reads.look(samples)


def one_thread() -> None:
    """One core per process: idle threads that spin cost more than they bring on small models."""
    torch.set_num_threads(1)
