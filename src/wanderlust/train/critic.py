"""A value model: how much is still to come, at every token that was about to be sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wanderlust.train import losses
from wanderlust.train.batch import Batch, collate, states
from wanderlust.train.samples import Sample

MAX_NORM = 1.0


class Critic:
    """The trunk of a policy and a head of its own that begins at 0; the policy's weights are not touched.

    The value of a token is read where it is predicted from, so it knows nothing of the token itself.
    """

    def __init__(self, model: Any, *, lr: float, clip: float = 0.2, epochs: int = 2, micro_batch: int = 64):
        """Takes `model` over. A new value counts as moved from the old one by at most `clip`; 0 is no bound."""
        self.trunk, self.clip, self.epochs, self.micro_batch = model.base_model, clip, epochs, micro_batch
        place = next(self.trunk.parameters())
        self.head = torch.nn.Linear(model.config.hidden_size, 1, device=place.device, dtype=place.dtype)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self.optimizer = torch.optim.AdamW(self._parameters(), lr=lr, weight_decay=0.0)

    def _parameters(self) -> list[Tensor]:
        return [*self.trunk.parameters(), *self.head.parameters()]

    def _read(self, batch: Batch) -> Tensor:
        return self.head(states(self.trunk, batch.reading))[:, 0].float()  # type: ignore[no-any-return]

    def _batches(self, samples: Sequence[Sample]) -> list[list[int]]:
        order = sorted((n for n, s in enumerate(samples) if s.trained), key=lambda n: len(samples[n].ids))
        return [order[i : i + self.micro_batch] for i in range(0, len(order), self.micro_batch)]

    @torch.no_grad()
    def values(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Per sample, the value at each trained token, in order."""
        out: list[list[float]] = [[] for _ in samples]
        for chosen in self._batches(samples):
            read = iter(self._read(collate([samples[n] for n in chosen], losses.IMITATION)).tolist())
            for n in chosen:
                out[n] = [next(read) for _ in samples[n].trained]
        return out

    def fit(self, samples: Sequence[Sample], returns: Sequence[Sequence[float]], old: Sequence[list[float]]) -> None:
        """Come nearer to the returns by the clipped value loss; both and `old` are shaped as `values` returns them."""
        for _ in range(self.epochs):
            for chosen in self._batches(samples):
                values = self._read(collate([samples[n] for n in chosen], losses.IMITATION))
                aim = torch.tensor([v for n in chosen for v in returns[n]], device=values.device)
                error = (values - aim).square()
                if self.clip:
                    before = torch.tensor([v for n in chosen for v in old[n]], device=values.device)
                    near = before + (values - before).clamp(-self.clip, self.clip)
                    error = torch.maximum(error, (near - aim).square())
                self.optimizer.zero_grad()
                error.mean().mul(0.5).backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(self._parameters(), MAX_NORM)
                self.optimizer.step()

    def state(self) -> dict[str, Any]:
        """Weights and optimizer."""
        return {
            "trunk": self.trunk.state_dict(),
            "head": self.head.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.trunk.load_state_dict(state["trunk"])
        self.head.load_state_dict(state["head"])
        self.optimizer.load_state_dict(state["optimizer"])
