"""Samples to padded tensors without much padding: alike lengths go together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from wanderlust.train.losses import PolicyLoss
from wanderlust.train.samples import Sample

PADDING = 256
"""Tokens of padding that cost more than another batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What stands beside the policy loss, for the same flat tokens."""

    ce: Tensor
    """[N] weights of the cross-entropy, times the copies."""
    kl: Tensor
    """[N] weights of the distance to the reference, times the copies."""
    reference: Tensor
    """[N] the reference's log-probabilities, 0 where `kl` is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A micro-batch; the flat tensors list the trained tokens row by row."""

    ids: Tensor
    """[B, T], padded on the right with `pad`; a causal model needs no attention mask for it."""
    trained: Tensor
    """[B, T - 1] bool: where the next token is trained."""
    targets: Tensor
    """[N] ids of the trained tokens."""
    old: Tensor
    """[N] the sampler's log-probabilities."""
    advantages: Tensor
    """[N]"""
    weights: Tensor
    """[N] each token's share before the batch-wide normaliser, times the copies of its sample."""
    rows: Tensor
    """[N] the row of each token."""
    besides: Terms | None
    """The other two terms of the loss; None without any."""
    update: Tensor | None
    """[N] the trainer's log-probabilities before the update; None where it has not looked."""
    copies: Tensor
    """[N] how many tokens each one stands for."""
    sampled: Tensor
    """[N] bool: tokens that the policy sampled itself, and not somebody for it."""
    tokens: int
    """Tokens that are not padding."""


def microbatches(samples: Sequence[Sample], loss: PolicyLoss, *, size: int, pad: int = 0) -> Iterator[Batch]:
    """Batches of at most `size` samples of alike length, shortest first; the order depends on the samples alone.

    A batch ends early where one more sample would bring its padding over PADDING tokens.
    """
    batch: list[Sample] = []
    for sample in sorted(samples, key=lambda s: len(s.ids)):
        padding = len(batch) * len(sample.ids) - sum(len(s.ids) for s in batch)
        if len(batch) == size or padding > PADDING:
            yield collate(batch, loss, pad=pad)
            batch = []
        batch.append(sample)
    if batch:
        yield collate(batch, loss, pad=pad)


def collate(samples: Sequence[Sample], loss: PolicyLoss, *, pad: int = 0) -> Batch:
    """One padded batch."""
    longest = max(len(s.ids) for s in samples)
    trained = [s.trained for s in samples]
    ids = torch.tensor([s.ids + [pad] * (longest - len(s.ids)) for s in samples])
    mask = torch.zeros(len(samples), longest - 1, dtype=torch.bool)
    for row, places in enumerate(trained):
        mask[row, [i - 1 for i in places]] = True
    return Batch(
        ids=ids,
        trained=mask,
        targets=ids[:, 1:][mask],
        old=_flat([s.logprobs for s in samples], trained),
        advantages=_flat([s.advantages for s in samples], trained),
        weights=_weights(samples, trained, loss),
        rows=torch.tensor([n for n, row in enumerate(trained) for _ in row]),
        besides=_besides(samples, trained) if any(s.ce or s.kl for s in samples) else None,
        update=_flat([s.update for s in samples], trained) if all(s.update for s in samples) else None,
        copies=torch.tensor([s.copies for s, row in zip(samples, trained, strict=True) for _ in row]),
        sampled=torch.tensor([i >= s.given for s, row in zip(samples, trained, strict=True) for i in row]),
        tokens=sum(len(s.ids) for s in samples),
    )


@dataclass(slots=True, kw_only=True)
class Totals:
    """What the sums of the three terms' weighted token losses are divided by, over the whole batch."""

    rl: float = 0.0
    ce: float = 0.0
    kl: float = 0.0

    def add(self, other: Totals) -> None:
        """Take in another shard's totals."""
        self.rl, self.ce, self.kl = self.rl + other.rl, self.ce + other.ce, self.kl + other.kl

    @classmethod
    def of(cls, samples: Sequence[Sample], loss: PolicyLoss) -> Self:
        """Those of some samples; the policy loss's follow its normaliser, the others count tokens with a weight."""
        return cls(
            rl=_denominator(samples, loss),
            ce=float(sum(s.copies * sum(w != 0 for w in s.ce[1:]) for s in samples)),
            kl=float(sum(s.copies * sum(w != 0 for w in s.kl[1:]) for s in samples)),
        )


def _denominator(samples: Sequence[Sample], loss: PolicyLoss) -> float:
    if loss.normaliser == "tokens":
        return float(sum(s.copies * sum(s.mask[1:]) for s in samples))
    sequences = float(sum(s.copies for s in samples if any(s.mask)))
    return sequences * (loss.constant if loss.normaliser == "constant" else 1)


def _weights(samples: Sequence[Sample], trained: Sequence[Sequence[int]], loss: PolicyLoss) -> Tensor:
    out: list[float] = []
    for sample, row in zip(samples, trained, strict=True):
        share = 1.0 / max(sum(sample.mask[1:]), 1) if loss.normaliser == "sequences" else 1.0
        out += [share * sample.copies if sample.mask[i] else 0.0 for i in row]
    return torch.tensor(out)


def _besides(samples: Sequence[Sample], trained: Sequence[Sequence[int]]) -> Terms:
    def column(values: Sequence[float], sample: Sample) -> Sequence[float]:
        return values or [0.0] * len(sample.ids)

    copies = torch.tensor([s.copies for s, row in zip(samples, trained, strict=True) for _ in row])
    return Terms(
        ce=_flat([column(s.ce, s) for s in samples], trained) * copies,
        kl=_flat([column(s.kl, s) for s in samples], trained) * copies,
        reference=_flat([column(s.reference, s) for s in samples], trained),
    )


def _flat(values: Sequence[Sequence[float]], trained: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor([row[i] for row, places in zip(values, trained, strict=True) for i in places])
