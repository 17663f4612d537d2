"""Draws tokens from logits, by keys: equal keys draw equal tokens, whoever else is in the batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def uniforms(keys: list[int], counters: list[int]) -> Tensor:
    """One draw from [0, 1) per key and counter, float64 [B]; the finalizer of SplitMix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        z = np.array(keys, np.uint64) + np.array(counters, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return torch.from_numpy((z >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def draw(logits: Tensor, u: Tensor, *, temperature: Tensor, top_p: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens and their log-probabilities, [B] each, from logits [B, V] and one uniform draw a row.

    Log-probabilities are those of softmax(logits / temperature) before any top-p cut, which is what a trainer
    recomputes; at temperature 0 those of softmax(logits).
    """
    greedy = temperature == 0
    logprobs = torch.log_softmax(logits.float() / torch.where(greedy, 1.0, temperature)[:, None], -1)
    if bool(greedy.all()):
        tokens = logprobs.argmax(-1)
    else:
        tokens = _inverse(logprobs, top_p, u)
        if bool(greedy.any()):
            tokens = torch.where(greedy, logprobs.argmax(-1), tokens)
    return tokens, logprobs.gather(1, tokens[:, None])[:, 0]


def _inverse(logprobs: Tensor, top_p: Tensor, u: Tensor) -> Tensor:
    probabilities = logprobs.double().exp()
    if bool((top_p < 1).any()):
        ranked, order = probabilities.sort(-1, descending=True)
        before = ranked.cumsum(-1) - ranked
        ranked = torch.where(before < top_p[:, None], ranked, 0.0)
        probabilities = torch.zeros_like(ranked).scatter_(1, order, ranked)
    sums = probabilities.cumsum(-1)
    target = (u.to(sums.device) * sums[:, -1])[:, None]
    return torch.searchsorted(sums, target, right=True)[:, 0].clamp(max=logprobs.shape[1] - 1)
