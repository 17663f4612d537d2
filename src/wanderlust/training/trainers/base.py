"""Interfaces of trainers and engines: what all have, and what some can besides; callers ask for the capability."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from wanderlust.training.algorithms.base import Algorithm
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import Sample
from wanderlust.training.config import OptimizerConfig, TrainConfig
from wanderlust.training.group_source import Player, RayCluster
from wanderlust.training.losses import PolicyLoss


class Trainer(Protocol):
    """Weights that learn, in this process, in several, or far away.

    One that is a `Sampler` as well answers with the weights that were published last, so that drawing may go on while
    the others learn. The verbs are awaited one after the other, and none of them holds up the event loop.
    """

    @property
    def version(self) -> int:
        """Number of times that weights were published."""
        ...

    async def forward_backward(
        self, samples: Sequence[Sample], loss: PolicyLoss, *, totals: BatchTotals | None = None
    ) -> dict[str, float]:
        """Add the gradient of the summed loss under the newest weights; returns means over the trained tokens.

        `totals` are those of the whole batch where it comes in pieces; None: these samples are all of it. The
        gap between the sampler's and the trainer's log-probabilities is among the figures (`sampler_kl_k3`,
        `sampler_logprob_diff_max`), and so are `tokens`, how many were read. No samples add a gradient of 0.
        """
        ...

    async def optim_step(self) -> dict[str, float]:
        """Take a step along the added gradients and forget them; returns `grad_norm` and `lr`.

        Where loss or gradient is no finite number nothing changes but the schedule, and `skipped` is 1. UsageError
        when nothing was added.
        """
        ...

    async def publish(self) -> int:
        """Give the newest weights to whatever samples; returns their version.

        Answers under way may end under the old ones.
        """
        ...

    async def save_state(self, path: Path) -> None:
        """Keep weights, optimizer, schedule and version, whole or not at all; `path` becomes a file or a folder."""
        ...

    async def load_state(self, path: Path) -> None:
        """Go on from what `save_state` kept, which is published under the version it had then.

        StoreError when it is something else or of another model.
        """
        ...


@runtime_checkable
class SupportsStages(Protocol):
    """Can begin anew with other settings."""

    def begin(self, config: OptimizerConfig) -> None:
        """A fresh optimizer and schedule for the weights as they are; their moving average begins here."""
        ...


@runtime_checkable
class SupportsLogprobs(Protocol):
    """Can say what it would have said."""

    async def compute_logprobs(self, samples: Sequence[Sample], loss: PolicyLoss) -> list[list[float]]:
        """Log-probability of every trained token (else 0) under the newest weights, per sample and token."""
        ...


@runtime_checkable
class SupportsEMA(Protocol):
    """A trainer that also keeps a moving average of its weights."""

    def update_ema(self, decay: float) -> None:
        """Let the average follow: `decay` of it stays, the rest comes from the newest weights; 0 makes them equal."""
        ...

    def ema_weights(self) -> AbstractAsyncContextManager[None]:
        """Inside, examinations see the averaged weights; what was published stays what it was."""
        ...

    async def use_ema(self) -> None:
        """The averaged weights take the place of the newest ones and are published."""
        ...


class SupportsWholeModel(Trainer, SupportsStages, SupportsLogprobs, SupportsEMA, Protocol):
    """Has all weights at hand: for servers that sample, and for checkpoints."""

    async def whole_model(self, *, averaged: bool = False) -> Any:
        """A model with the newest weights, or with the averaged ones, whole, in this process; not to be changed."""
        ...


WEIGHTS_FOLDER = "weights"
"""Folder of a run, from which servers read the weights that are published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What an engine is opened with; whatever it starts ends with the block that it is opened for."""

    config: TrainConfig
    start: Path
    """The checkpoint that training starts from."""
    run: Path
    """The run's folder, for what servers read and log."""
    workers: int = 1
    """Processes that play and compute, where the engine starts any."""
    ray: RayCluster | None = None
    """What plays the rollouts in place of this process or its workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """What an engine gives to a run."""

    trainer: Trainer
    tokenizer: Any
    algorithm: Algorithm
    """The configuration's, bound to this run."""
    player: Player
    """Plays and credits groups; evaluates inside the trainer's `ema_weights`."""
    whole_model: Callable[..., Awaitable[Any]]
    """The newest weights (`averaged`: their moving average) as a model in this process, adapters merged; None where a
    service does not hand them out."""
    export: Callable[..., Awaitable[None]] | None = None
    """Writes the weights (`averaged`) as a Hugging Face folder without bringing them together in one process."""
