"""What every training engine can do: the five verbs that training services have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from wanderlust.policies.sampling import Sampler
from wanderlust.train.batch import Totals
from wanderlust.train.losses import PolicyLoss
from wanderlust.train.samples import Sample


class Trainer(Sampler, Protocol):
    """Weights that learn, in this process, in several, or far away.

    `sample` answers with the weights that were published last, so that drawing may go on while the others learn.
    """

    @property
    def version(self) -> int:
        """How often weights were published."""
        ...

    async def forward_backward(
        self, samples: Sequence[Sample], loss: PolicyLoss, *, totals: Totals | None = None
    ) -> dict[str, float]:
        """Add the gradient of the summed loss over the samples; returns means over their trained tokens.

        `totals` are those of the whole batch where it comes in pieces; None: these samples are all of it. The
        gap between the sampler's and the trainer's log-probabilities is among the figures (`logprob_gap`,
        `logprob_gap_max`).
        """
        ...

    async def optim_step(self) -> dict[str, float]:
        """Take a step along the added gradients and forget them; returns `grad_norm` and `lr`.

        Where loss or gradient is no finite number nothing changes but the schedule, and `skipped` is 1.
        """
        ...

    async def publish(self) -> int:
        """Give the sampler the newest weights; returns their version. Answers under way may end under the old ones."""
        ...

    async def save_state(self, path: Path) -> None:
        """Keep weights, optimizer and schedule, whole or not at all."""
        ...

    async def load_state(self, path: Path) -> None:
        """Go on from what `save_state` kept. StoreError when it is something else or of another model."""
        ...
