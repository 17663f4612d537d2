"""Interface of trainers: what all have, and what some can besides; whoever needs that asks for the capability."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import Sample
from wanderlust.training.config import OptimizerConfig
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
