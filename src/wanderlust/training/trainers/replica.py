"""One copy of the policy, which plays its share of the tasks and computes its share of the gradient."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import cloudpickle
from torch import Tensor

from wanderlust.environment import Environment
from wanderlust.errors import EnvironmentFailure, UsageError, WanderlustError, boundary
from wanderlust.policies.base import derive_key
from wanderlust.policies.local.device import one_thread
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.training import gradient
from wanderlust.training.algorithms.presets import configured_algorithm
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import Sample
from wanderlust.training.config import TrainConfig
from wanderlust.training.gradient import Gradient, GradientComputer
from wanderlust.training.group_source import LocalPlayer, bind_algorithm, reference_scorer
from wanderlust.training.label_free_rewards import label_free_rubric
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.models import (
    cache_bytes,
    gradient_settings,
    load_frozen,
    load_sampling,
    load_teacher,
    make_context,
    rendering_of,
)
from wanderlust.training.optimizer import publish_weights
from wanderlust.types import Group, RubricLike, Task

PUBLISH = "publish"
"""The method whose last call a restarted worker gets first; all others depend on it and on their arguments alone."""


class WorkerError(WanderlustError):
    """A worker process died or its work raised."""


class Replica:
    """Model, environment and algorithm in one process: it plays, credits, evaluates and computes gradients.

    It remembers nothing but the weights: what a call returns depends on them and on its arguments.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        env: Environment,
        *,
        config: TrainConfig,
        teacher: Callable[[], Any] | None = None,
        rubric: RubricLike | None = None,
    ):
        """`model` has the weights that training starts from; `teacher` loads a stronger model;
        `rubric` is used in place of the environment's."""
        self.model, self.tokenizer, self.env, self.config = model, tokenizer, env, config
        self.policy = own = LocalPolicy.of(
            model,
            tokenizer,
            config.sampling,
            seed=config.seed,
            fast=config.fast,
            cache_bytes=cache_bytes(config, model.device),
            rendering=rendering_of(config),
        )
        lent = make_context(
            config,
            partial(copy.deepcopy, model),
            load_teacher=teacher or partial(load_teacher, config, tokenizer),
        )
        self.algorithm = bind_algorithm(configured_algorithm(config), lent)
        reference = reference_scorer(self.algorithm, lent)
        self.local_player = LocalPlayer(
            env,
            config,
            lambda seed: LocalPolicy(own.engine, own.renderer, own.sampling, seed=derive_key(config.seed, seed)),
            algorithm=self.algorithm,
            evaluated=self.policy,
            reference=reference,
            rubric=rubric,
        )
        self._reads = GradientComputer(model, loss=self.algorithm.loss, **gradient_settings(config))

    @classmethod
    def load(cls, folder: Path, config: TrainConfig) -> Self:
        """The checkpoint in `folder` as the configuration says; newer weights are published later."""
        one_thread()
        model, tokenizer = load_sampling(config, folder)
        env = config.make_env()
        rubric = label_free_rubric(config, env, partial(load_frozen, config, folder))
        return cls(model, tokenizer, env, config=config, rubric=rubric)

    def publish(self, weights: Tensor, version: int) -> None:
        """Take new weights [P]; what the engine remembered under the old ones is forgotten."""
        publish_weights(self.policy.engine, weights, version)

    def play(self, tasks: Sequence[Task], seed: int) -> list[Group]:
        """Play a group per task and credit it; groups in the tasks' order."""
        played: list[Group] = []

        async def work() -> None:  # returns nothing: asyncio spells the result out when it lets go of Ctrl-C
            played.extend(await self.local_player.play(tasks, seed=seed))

        asyncio.run(work())
        return played

    def evaluate(self, tasks: Sequence[Task], seat: str = "") -> list[Group]:
        """One greedy episode per task, in the tasks' order; with a `seat`, the others have the fixed player."""
        return asyncio.run(self.local_player.evaluate(tasks, seat))

    def exact(self) -> list[dict[str, Any]] | None:
        """Exact figures of the greedy policy, as the environment computes them."""
        return asyncio.run(self.local_player.exact())

    def gradient(self, samples: Sequence[Sample], loss: PolicyLoss, totals: BatchTotals) -> Gradient:
        """Of the summed loss over some samples of a batch with these totals."""
        self._reads.loss = loss
        return gradient.gradient_with_oom_retry(self._reads, samples, totals)

    def compute_logprobs(self, samples: Sequence[Sample], loss: PolicyLoss) -> list[list[float]]:
        """Log-probability of every trained token (else 0), per sample and token."""
        self._reads.loss = loss
        return self._reads.compute_logprobs(samples)


def serialized(make: Callable[[], Any]) -> bytes:
    """`make` as a worker process reads it. Raises UsageError when something of it cannot be sent."""
    try:
        with boundary(EnvironmentFailure):
            return bytes(cloudpickle.dumps(make))
    except EnvironmentFailure as error:
        raise UsageError(
            f"the environment, its rubric or the algorithm cannot be sent to worker processes ({error}): use workers=1"
        ) from error
