"""PPO with a critic: what a token did beyond what was expected, by generalized advantage estimation.

A value model: how much is still to come, at every token that was about to be sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import fmean, pstdev
from typing import Any, Self

import torch
from torch import Tensor

from wanderlust.errors import UsageError
from wanderlust.training import losses
from wanderlust.training.algorithms.base import (
    AlgorithmContext,
    scored_by_seat,
    set_token_advantages,
    split_by_turn,
    tokens_per_turn,
)
from wanderlust.training.algorithms.per_turn import turn_rewards
from wanderlust.training.batch.collate import Batch, collate, hidden_states
from wanderlust.training.batch.samples import Sample, to_samples, values_by_sample, values_by_turn
from wanderlust.training.losses import PolicyLoss
from wanderlust.types import Group, Trajectory

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
        return self.head(hidden_states(self.trunk, batch.model_input))[:, 0].float()  # type: ignore[no-any-return]

    def _batches(self, samples: Sequence[Sample]) -> list[list[int]]:
        order = sorted((n for n, s in enumerate(samples) if s.trained_positions), key=lambda n: len(samples[n].ids))
        return [order[i : i + self.micro_batch] for i in range(0, len(order), self.micro_batch)]

    @torch.no_grad()
    def values(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Per sample, one number per token: its value where it is trained, else 0."""
        out = [[0.0] * len(sample.ids) for sample in samples]
        for chosen in self._batches(samples):
            read = iter(self._read(collate([samples[n] for n in chosen], losses.IMITATION_LOSS)).tolist())
            for n in chosen:
                for place in samples[n].trained_positions:
                    out[n][place] = next(read)
        return out

    def fit(
        self, samples: Sequence[Sample], returns: Sequence[Sequence[float]], old_values: Sequence[list[float]]
    ) -> None:
        """Fit the values to the returns by the clipped value loss; all are shaped as `values` returns them."""
        for _ in range(self.epochs):
            for chosen in self._batches(samples):
                values = self._read(collate([samples[n] for n in chosen], losses.IMITATION_LOSS))
                aim = torch.tensor(_at_trained(samples, returns, chosen), device=values.device)
                error = (values - aim).square()
                if self.clip:
                    before = torch.tensor(_at_trained(samples, old_values, chosen), device=values.device)
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


def _at_trained(samples: Sequence[Sample], rows: Sequence[Sequence[float]], chosen: Sequence[int]) -> list[float]:
    return [rows[n][place] for n in chosen for place in samples[n].trained_positions]


WHITENING_STD_FLOOR = 1e-8


def gae(rewards: Sequence[float], values: Sequence[float], *, discount: float, trace: float) -> list[float]:
    """A_t = d_t + discount x trace x A_{t+1}, d_t = r_t + discount x V_{t+1} - V_t; after the end all are 0."""
    out, ahead, value = [0.0] * len(rewards), 0.0, 0.0
    for t in reversed(range(len(rewards))):
        ahead = rewards[t] + discount * value - values[t] + discount * trace * ahead
        out[t], value = ahead, values[t]
    return out


@dataclass(slots=True, kw_only=True)
class PPO:
    """Advantages per token over the whole episode, whitened over the batch (arXiv 1707.06347, 1506.02438).

    A turn's reward is earned by its last token, so what the environment pays on the way counts. The critic learns
    from the same batch, after it was asked.
    """

    discount: float = 1.0
    trace: float = 0.95
    lr: float = 1e-3
    """Learning rate of the critic."""
    epochs: int = 2
    """Passes of the critic over a batch."""
    loss: PolicyLoss = losses.PPO_LOSS
    context: AlgorithmContext | None = None
    _critic: Critic | None = field(default=None, init=False)

    def bind(self, context: AlgorithmContext) -> Self:
        """The critic begins as the model did."""
        return replace(self, context=context)

    def critic(self) -> Critic:
        """The critic of this run. UsageError before `bind`."""
        if self._critic is None:
            if self.context is None:
                raise UsageError("PPO needs a model for its critic: call bind() first")
            self._critic = Critic(self.context.load_initial_model().float(), lr=self.lr, epochs=self.epochs)
        return self._critic

    async def assign_advantages(self, group: Group) -> None:
        """Nothing: one group is not enough to whiten."""

    async def assign_batch_advantages(self, groups: Sequence[Group]) -> None:
        """Write `advantages` on every scored trajectory that is trained, then let the critic learn."""
        rewarded = [(t, reward) for g in groups for seat in scored_by_seat(g) for t, reward in seat if t.trainable]
        rows = [to_samples(t) for t, _ in rewarded]
        samples = [sample for row in rows for sample in row]
        expected_values = self.critic().values(samples)
        read = iter(expected_values)
        values = [values_by_turn(row, [next(read) for _ in row]) for row in rows]
        credit = [
            gae(_at_last_tokens(t, reward), [*chain(*turns)], discount=self.discount, trace=self.trace)
            for (t, reward), turns in zip(rewarded, values, strict=True)
        ]
        mean, spread = (fmean(chain(*credit)), pstdev(chain(*credit))) if any(credit) else (0.0, 0.0)
        returns: list[list[float]] = []
        for (trajectory, _), row, turns, own in zip(rewarded, rows, values, credit, strict=True):
            aims = [a + v for a, v in zip(own, chain(*turns), strict=True)]
            returns += values_by_sample(row, split_by_turn(trajectory, aims))
            set_token_advantages(trajectory, [(a - mean) / (spread + WHITENING_STD_FLOOR) for a in own])
        self.critic().fit(samples, returns, expected_values)

    def state(self) -> dict[str, Any]:
        """The critic's; empty before it was asked."""
        return self._critic.state() if self._critic is not None else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with a saved critic."""
        if state:
            self.critic().restore(state)


def _at_last_tokens(trajectory: Trajectory, reward: float) -> list[float]:
    out: list[float] = []
    waiting = 0.0
    for earned, count in zip(turn_rewards(trajectory, reward), tokens_per_turn(trajectory), strict=True):
        waiting += earned
        if count:
            out += [*[0.0] * (count - 1), waiting]
            waiting = 0.0
    if out:
        out[-1] += waiting
    return out
