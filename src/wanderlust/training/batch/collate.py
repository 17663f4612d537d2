"""Samples to padded tensors without much padding: alike lengths go together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from wanderlust.policies.local.device import dtype_of
from wanderlust.policies.local.fast_llama import FastLlama
from wanderlust.training.batch.samples import Sample
from wanderlust.training.losses import PolicyLoss

ROW_PADDING_TOKENS = 256
"""Tokens of padding that cost more than another batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTerms:
    """Terms added to the policy loss, for the same flat tokens."""

    ce: Tensor
    """[N] weights of the cross-entropy, times the copies."""
    kl: Tensor
    """[N] weights of the distance to the reference, times each token's share before the policy loss's divisor."""
    reference: Tensor
    """[N] the reference's log-probabilities, 0 where `kl` is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInput:
    """Input of one forward pass: B rows of T tokens, padded on the right."""

    ids: Tensor
    """[B, T]"""
    positions: Tensor
    """[U] into [B * T]: the tokens after which some token is trained."""
    position_of_token: Tensor | None = None
    """[N] into `positions`, for each trained token; None where they are the same."""
    position_ids: Tensor | None = None
    """[B, T] positions; None where they count up from 0."""
    attention_mask: Tensor | None = None
    """[B, 1, T, T] bool, whether the token of a row looks at that of a column; None where it looks at all before it."""
    segments: tuple[tuple[int, int], ...] | None = None
    """Of a packed line (B is 1): each sequence's number of new tokens, and of tokens that it shares with another."""
    keys: Tensor | None = None
    """[K] into the line: what each segment looks at, segment after segment; None where that is the segment itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A micro-batch; the flat tensors list the trained tokens row by row."""

    model_input: ModelInput
    targets: Tensor
    """[N] ids of the trained tokens."""
    sampler_logprobs: Tensor
    """[N] the sampler's log-probabilities."""
    advantages: Tensor
    """[N]"""
    weights: Tensor
    """[N] each token's share before the batch-wide normaliser, times the copies of its sample."""
    rows: Tensor
    """[N] the number of each token's sequence."""
    extra_terms: LossTerms | None
    """The other two terms of the loss; None without any."""
    proximal_logprobs: Tensor | None
    """[N] the trainer's log-probabilities before the update; None where it has not looked."""
    copies: Tensor
    """[N] how many tokens each one stands for."""
    sampled: Tensor
    """[N] bool: tokens that the policy sampled itself."""
    tokens: int
    """Tokens that are not padding."""


def microbatches(samples: Sequence[Sample], loss: PolicyLoss, *, size: int, tokens: int = 0) -> Iterator[Batch]:
    """Batches of at most `size` samples of alike length, shortest first; the order depends on the samples alone.

    A batch ends early where one more sample would bring its padding over PADDING tokens, or all over `tokens` (0: any).
    """
    batch: list[Sample] = []
    for unit in sorted(episode_units(samples), key=lambda unit: max(len(s.ids) for s in unit)):
        longest = max(len(s.ids) for s in unit)
        padding = len(batch) * longest - sum(len(s.ids) for s in batch)
        wide = bool(tokens) and (len(batch) + len(unit)) * longest > tokens
        if batch and (len(batch) + len(unit) > size or padding > ROW_PADDING_TOKENS or wide):
            yield collate(batch, loss)
            batch = []
        batch += unit
    if batch:
        yield collate(batch, loss)


def episode_units(samples: Iterable[Sample]) -> list[list[Sample]]:
    """The samples with tokens to read; those whose ratios are taken over one episode stay together."""
    units: dict[object, list[Sample]] = {}
    for number, sample in enumerate(samples):
        if sample.ids:
            units.setdefault(("episode", sample.episode) if sample.episode >= 0 else number, []).append(sample)
    return list(units.values())


def row_input(samples: Sequence[Sample], *, pad: int = 0) -> ModelInput:
    """One row per sample, without its last token, after which nothing is predicted; a causal model needs no mask."""
    width = max(len(s.ids) for s in samples) - 1
    places = [row * width + i - 1 for row, s in enumerate(samples) for i in s.trained_positions]
    ids = torch.tensor([(s.ids + [pad] * (width + 1 - len(s.ids)))[:width] for s in samples])
    return ModelInput(ids=ids, positions=torch.tensor(places, dtype=torch.long))


def collate(samples: Sequence[Sample], loss: PolicyLoss, model_input: ModelInput | None = None) -> Batch:
    """One batch, read in rows unless it is said how; samples without ids count in divisors only and are not read."""
    samples = [s for s in samples if s.ids]
    own, first, rows = [token_weight(s, loss) for s in samples], dict[int, int](), list[int]()
    for n, s in enumerate(samples):  # samples of one episode are one sequence
        rows.append(first.setdefault(s.episode, n) if s.episode >= 0 else n)
    trained = [(n, s, i) for n, s in enumerate(samples) for i in s.trained_positions]
    copies, extra_terms, proximal_logprobs = torch.tensor([s.copies for _, s, _ in trained]), None, None
    if any(s.ce or s.kl for s in samples):
        extra_terms = LossTerms(
            ce=torch.tensor([s.ce[i] if s.ce else 0.0 for _, s, i in trained]) * copies,
            kl=torch.tensor([s.kl[i] if s.kl else 0.0 for _, s, i in trained])
            * torch.tensor([own[n] for n, _, _ in trained]),
            reference=torch.tensor([s.reference[i] if s.reference else 0.0 for _, s, i in trained]),
        )
    if all(s.proximal_logprobs for s in samples):
        proximal_logprobs = torch.tensor([s.proximal_logprobs[i] for _, s, i in trained])
    return Batch(
        model_input=model_input or row_input(samples),
        targets=torch.tensor([s.ids[i] for _, s, i in trained]),
        sampler_logprobs=torch.tensor([s.logprobs[i] for _, s, i in trained]),
        advantages=torch.tensor([s.advantages[i] for _, s, i in trained]),
        weights=torch.tensor([own[n] if s.mask[i] else 0.0 for n, s, i in trained]),
        rows=torch.tensor([rows[n] for n, _, _ in trained]),
        extra_terms=extra_terms,
        proximal_logprobs=proximal_logprobs,
        copies=copies,
        sampled=torch.tensor([i >= s.off_policy_until for _, s, i in trained]),
        tokens=sum(len(s.ids) for s in samples),
    )


def hidden_states(trunk: Any, model_input: ModelInput) -> Tensor:
    """The last hidden states at the reading's places, [U, W], of a model's trunk or of our own pass over it."""
    own = isinstance(trunk, FastLlama)
    place = next((trunk.trunk if own else trunk).parameters())
    ids, blind, depths = model_input.ids.to(place.device), None, None
    if model_input.attention_mask is not None and model_input.position_ids is not None:
        kind = dtype_of(trunk.trunk if own else trunk)
        blind = torch.zeros(model_input.attention_mask.shape, dtype=kind)
        blind = blind.masked_fill_(~model_input.attention_mask, torch.finfo(kind).min).to(place.device)
        depths = model_input.position_ids.to(place.device)
    if own:
        own_states: Tensor = trunk.forward_rows(
            ids, positions=depths, mask=blind, keep=model_input.positions.to(ids.device)
        )
        return own_states
    extra_arguments = {} if blind is None else {"attention_mask": blind, "position_ids": depths}
    hidden = trunk(input_ids=ids, use_cache=False, **extra_arguments).last_hidden_state
    selected: Tensor = hidden.flatten(0, 1)[model_input.positions.to(place.device)]
    return selected


def expand_to_tokens(values: Tensor, model_input: ModelInput) -> Tensor:
    """Values at the reading's places, [U, ...], for every trained token, [N, ...]."""
    return values if model_input.position_of_token is None else values[model_input.position_of_token.to(values.device)]


@dataclass(slots=True, kw_only=True)
class BatchTotals:
    """The divisors of the weighted token losses, over the whole batch; tokens and sequences without credit count."""

    rl: float = 0.0
    """Of the policy loss and of the distance to the reference: tokens, sequences, or sequences x constant."""
    ce: float = 0.0
    """Tokens with a cross-entropy."""
    tokens: float = 0.0
    """Sampled tokens, of the entropy bonus."""

    def add(self, other: BatchTotals) -> None:
        """Take in another shard's totals."""
        self.rl, self.ce, self.tokens = self.rl + other.rl, self.ce + other.ce, self.tokens + other.tokens

    @classmethod
    def of(cls, samples: Sequence[Sample], loss: PolicyLoss) -> Self:
        """Those of some samples."""
        tokens = float(sum(s.copies * s.counted_tokens for s in samples))
        sequences = float(sum(s.copies for s in samples if s.first_of_episode and s.sequence_tokens))
        divisors = {"tokens": tokens, "sequences": sequences, "constant": sequences * loss.constant}
        ce = float(sum(s.copies * sum(w != 0 for w in s.ce[1:]) for s in samples))
        return cls(rl=divisors[loss.normaliser], ce=ce, tokens=tokens)


def token_weight(sample: Sample, loss: PolicyLoss) -> float:
    """The weight of each token of the policy loss before the batch-wide normaliser, times the copies."""
    return sample.copies / max(sample.sequence_tokens, 1) if loss.normaliser == "sequences" else float(sample.copies)
