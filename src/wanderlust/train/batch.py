"""Samples to padded tensors without much padding: alike lengths go together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from wanderlust.train.losses import PolicyLoss
from wanderlust.train.samples import Sample

PADDING = 256
"""Tokens of padding that cost more than another batch."""


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
    trained = [[i for i, on in enumerate(s.mask) if on and i] for s in samples]
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
        copies=torch.tensor([s.copies for s, row in zip(samples, trained, strict=True) for _ in row]),
        sampled=torch.tensor([i >= s.given for s, row in zip(samples, trained, strict=True) for i in row]),
        tokens=sum(len(s.ids) for s in samples),
    )


def denominator(samples: Sequence[Sample], loss: PolicyLoss) -> float:
    """What the sum of the weighted token losses of the whole batch is divided by."""
    if loss.normaliser == "tokens":
        return float(sum(s.copies * sum(s.mask[1:]) for s in samples))
    return float(sum(s.copies for s in samples)) * (loss.constant if loss.normaliser == "constant" else 1)


def _weights(samples: Sequence[Sample], trained: Sequence[Sequence[int]], loss: PolicyLoss) -> Tensor:
    shares = [1.0 / len(row) if loss.normaliser == "sequences" and row else 1.0 for row in trained]
    pairs = zip(samples, trained, shares, strict=True)
    return torch.tensor([share * sample.copies for sample, row, share in pairs for _ in row])


def _flat(values: Sequence[Sequence[float]], trained: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor([row[i] for row, places in zip(values, trained, strict=True) for i in places])
