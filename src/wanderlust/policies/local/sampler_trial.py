"""The trial of a sampler: a short conversation through a cache, held against plain forward passes over the whole.

A cache that a model ignores or misreads gives other tokens and log-probabilities, and no error: a recurrent model may
take `past_key_values` as an unknown keyword. So every architecture is tried before it is sampled from.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from wanderlust.errors import PolicyFailure, UsageError, boundary
from wanderlust.policies.local.rows import Context

TRIAL_TURN_TOKENS = ((5, 3), (9, 1), (2, 6))
"""Tokens that each turn adds to each of the trial's conversations."""
TRIAL_DECODED_TOKENS = 2
"""Greedy tokens after each turn."""
MAX_LOGPROB_GAP = 1e-3
"""Largest difference of a log-probability in fp32."""
MAX_ROUNDED_GAP = 0.1
"""In lower precision: largest norm of the differences, as a share of the norm of the log-probabilities' deviations."""


class RecomputedContextWarning(UserWarning):
    """A model's cache gives other tokens than the model, so every token is computed from the whole context."""


class SamplingCache(Protocol):
    """Reads what is new in contexts."""

    def forward(self, contexts: Sequence[Context]) -> Tensor:
        """Logits [N, V] of the token after each context."""
        ...


C = TypeVar("C", bound=SamplingCache)

_KNOWN: dict[tuple[Any, ...], int] = {}
"""Number of the candidate that passed, by architecture, configuration, device and precision."""


def first_right_cache(model: Any, candidates: Sequence[Callable[[], C]], *, fast: bool) -> C:
    """Make the first cache that passes the trial; the last one is expected to recompute contexts, which is said.

    What passed is remembered by architecture, settings and whether our own pass is used (`fast`).

    Raises UsageError when none passes.
    """
    dtypes = frozenset(p.dtype for p in model.parameters())
    parts = frozenset(map(type, model.modules()))  # adapters are parts, too
    key = (parts, model.config.to_json_string(use_diff=False), str(model.device), dtypes, fast)
    if key not in _KNOWN:
        passed = (number for number, make in enumerate(candidates) if is_sampled_right(model, make()))
        _KNOWN[key] = next(passed, len(candidates))
    number, kind = _KNOWN[key], type(model).__name__
    if number == len(candidates):
        raise UsageError(
            f"{kind} cannot be sampled here: neither with a cache nor without one does it give the log-probabilities "
            "of a plain forward pass; serve it with another engine and use --policy URL"
        )
    if number == len(candidates) - 1:
        warnings.warn(
            f"with a cache {kind} gives other log-probabilities than a plain forward pass: every token is computed "
            "from its whole context, which is right and slow",
            RecomputedContextWarning,
            stacklevel=2,
        )
    return candidates[number]()


def is_sampled_right(model: Any, cache: SamplingCache) -> bool:
    """Whether a cache gives the log-probabilities of plain forward passes, in two turns of ragged conversations."""
    try:
        with boundary(PolicyFailure):
            ours, plain = _trial(model, cache)
    except PolicyFailure:
        return False
    if not bool(ours.isfinite().all() & plain.isfinite().all()):
        return False
    if all(p.dtype.itemsize >= 4 for p in model.parameters()):
        return float((ours - plain).abs().max()) <= MAX_LOGPROB_GAP
    return bool((ours - plain).norm() <= MAX_ROUNDED_GAP * (plain - plain.mean(-1, keepdim=True)).norm())


@torch.inference_mode()
def _trial(model: Any, cache: SamplingCache) -> tuple[Tensor, Tensor]:
    """Log-probabilities [N, V] at every place that a token was taken, by the cache and by plain passes."""
    rng, words = Random("trial"), int(model.get_input_embeddings().weight.shape[0])
    longest = int(getattr(model.config, "max_position_embeddings", 0) or 2**30)
    contexts = [Context() for _ in TRIAL_TURN_TOKENS]
    taken: list[tuple[Context, int, Tensor]] = []
    for turn in range(len(TRIAL_TURN_TOKENS[0])):
        if max(len(c.ids) for c in contexts) + TRIAL_DECODED_TOKENS + 10 > longest:
            break
        for context, counts in zip(contexts, TRIAL_TURN_TOKENS, strict=True):
            context.append([rng.randrange(words) for _ in range(counts[turn])])
        for _ in range(TRIAL_DECODED_TOKENS + 1):
            logits = cache.forward(contexts).float().log_softmax(-1)
            taken += [(c, len(c.ids), row) for c, row in zip(contexts, logits, strict=True)]
            for context, row in zip(contexts, logits, strict=True):
                context.append([int(row.argmax())])
    whole = {id(c): model(input_ids=torch.tensor([c.ids], device=model.device)).logits[0].float() for c in contexts}
    plain = torch.stack([whole[id(c)][length - 1].log_softmax(-1) for c, length, _ in taken])
    return torch.stack([row for _, _, row in taken]), plain


class RecomputedContexts:
    """No cache: every token is computed from its whole context, one context at a time."""

    supports_drafts = False

    def __init__(self, model: Any):
        self.model = model

    def forward(self, contexts: Sequence[Context]) -> Tensor:
        """Read every context from its beginning; returns logits of each next token, [B, V]."""
        logits: list[Tensor] = []
        for context in contexts:
            ids = torch.tensor([context.ids], device=self.model.device)
            logits.append(self.model(input_ids=ids, use_cache=False).logits[:, -1])
            context.cached_length, context.row = len(context.ids), 0
        return torch.cat(logits)

    def footprint(self, contexts: Iterable[Context]) -> int:
        """Nothing is held."""
        return 0

    def free(self, context: Context) -> None:
        """Forget a context."""
        context.row, context.cached_length = -1, 0
