"""Caches of each conversation's keys and values: batched rows of different lengths, held across turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionLayer,
)

from wanderlust.policies.local.fast_llama import FastLlamaPass, TransformersPass, fast_llama_for
from wanderlust.policies.local.rows import BLOCK, Context, KVRows, RowTable, StateAndKVRows, StateRows
from wanderlust.policies.local.sampler_trial import RecomputedContexts, first_right_cache

MIN_SHARED_PREFIX_TOKENS = 64
"""Equal first ids of new contexts (rules, examples) from which on they are read once for all."""


class BatchedKVCache:
    """A batched cache of keys and values, and of the states of convolutions and linear attention.

    Before a pass the active rows are swapped to the front, so that the attention reads views and never gathers.
    """

    def __init__(self, model: Any, *, fast: bool = True, by_type: bool = False):
        """With `fast`, our own forward pass is used where it can be; `by_type`: see `TransformersPass`."""
        self.device = model.device
        self.table = RowTable()
        self.contexts: list[Context | None] = []
        """By row; None is a free row."""
        kinds = [ROWS_OF_LAYER[type(layer)] for layer in DynamicCache(config=model.config).layers]
        self.layers: list[KVRows | StateRows] = [kind(self.table) for kind in kinds]
        self.states = [layer for layer in self.layers if isinstance(layer, StateRows)]
        self.supports_drafts = not self.states
        """Whether a pass can read drafts and discard the wrong ones: a state cannot be taken back."""
        plain = [layer for layer in self.layers if type(layer) is KVRows]
        own = fast_llama_for(model) if fast and len(plain) == len(self.layers) else None
        self.pass_ = FastLlamaPass(model, own, plain) if own else TransformersPass(model, self.layers, by_type=by_type)

    def forward(self, contexts: Sequence[Context]) -> Tensor:
        """Read every context's unread ids and its draft; returns logits [N, V] in the order of the contexts.

        Each context has one row after its ids and one after each id of its draft. Contexts with the same ids are read
        once: the samples of a group cost one until they differ.
        """
        self._assign_rows(contexts)
        self._read_shared_prefixes(
            [c for c in contexts if not c.cached_length and len(c.ids) > MIN_SHARED_PREFIX_TOKENS]
        )
        twins: dict[tuple[int, int, int, tuple[int, ...]], list[Context]] = {}
        for context in contexts:
            twins.setdefault((context.digest, len(context.ids), context.cached_length, context.draft), []).append(
                context
            )
        parts, start_of, start = list[Tensor](), dict[int, int](), 0
        twins_of = {id(same[0]): same for same in twins.values()}
        for batch in self._readable_together([same[0] for same in twins.values()]):
            self._front(batch)
            batch.sort(key=lambda c: c.row)
            parts.append(self.pass_.read(batch))
            self._share(twins_of[id(first)] for first in batch)
            for first in batch:
                for context in twins_of[id(first)]:
                    start_of[id(context)], context.cached_length = start, len(context.ids)
                start += 1 + len(first.draft)
        logits = parts[0] if len(parts) == 1 else torch.cat(parts)
        order = [start_of[id(c)] + n for c in contexts for n in range(1 + len(c.draft))]
        return logits if order == list(range(len(logits))) else logits[torch.tensor(order, device=self.device)]

    def _readable_together(self, contexts: list[Context]) -> list[list[Context]]:
        """Batches for one pass each: all, or, where there are states, those that need no padding."""
        if not self.states:
            return [contexts]
        batches: dict[tuple[int, bool], list[Context]] = {}
        for context in contexts:
            batches.setdefault((context.end - context.cached_length, context.cached_length > 0), []).append(context)
        return list(batches.values())

    def _read_shared_prefixes(self, contexts: Sequence[Context]) -> None:
        """Read shared beginnings of these new contexts once; wholly equal contexts are left to `forward`."""
        families = list(_families(contexts))
        if not families:
            return
        for batch in [[one] for one in families] if self.states else [families]:
            self._front([family[0] for family, _ in batch])
            stubs = [Context(ids=family[0].ids[:common], row=family[0].row) for family, common in batch]
            self.pass_.read(sorted(stubs, key=lambda stub: stub.row))
            self._share([stub, *family[1:]] for stub, (family, _) in zip(stubs, batch, strict=True))
            for family, common in batch:
                for context in family:
                    context.cached_length = common

    def _share(self, twins: Iterable[list[Context]]) -> None:
        """Copy the keys and values that the first of each group of twins has just read to the others."""
        source, target, positions = list[int](), list[int](), list[int]()
        rows = list[tuple[int, int]]()
        for first, *others in twins:
            rows += [(first.row, other.row) for other in others]
            new = range(first.cached_length, first.end)
            for other in others:
                source += [first.row] * len(new)
                target += [other.row] * len(new)
                positions += new
        if source:
            from_, to, at = (torch.tensor(places, device=self.device) for places in (source, target, positions))
            for layer in self.layers:
                if isinstance(layer, KVRows):
                    layer.copy((from_, at), (to, at))
        if rows and self.states:
            from_, to = (torch.tensor(places, device=self.device) for places in zip(*rows, strict=True))
            for layer in self.states:
                layer.copy_rows(from_, to)

    def free(self, context: Context) -> None:
        """Forget a context."""
        if context.row >= 0:
            self.contexts[context.row] = None
            context.row, context.cached_length = -1, 0
            while self.contexts and self.contexts[-1] is None:
                self.contexts.pop()

    def _assign_rows(self, contexts: Sequence[Context]) -> None:
        """Give every context a row, and grow the layers to hold all rows and positions."""
        free = (row for row, context in enumerate(self.contexts) if context is None)
        for context in contexts:
            if context.row < 0:
                context.row = next(free, len(self.contexts))
                self.contexts[context.row : context.row + 1] = [context]
        longest = max(c.end for c in contexts)
        table, changed = self.table, False
        if len(self.contexts) > table.rows:
            table.rows, changed = -(-max(len(self.contexts), 2 * table.rows) // BLOCK) * BLOCK, True
        if longest > table.positions:
            table.positions, changed = -(-max(longest, 2 * table.positions) // BLOCK) * BLOCK, True
        if changed:
            for layer in self.layers:
                layer.resize()

    @torch.inference_mode()
    def _front(self, contexts: Sequence[Context]) -> None:
        """Swap these contexts with whatever is in the rows at the front."""
        active, count = set(map(id, contexts)), len(contexts)
        away = [c for c in contexts if c.row >= count]
        if not away:
            return
        front = [row for row, c in enumerate(self.contexts[:count]) if id(c) not in active]
        moves: list[tuple[Context, int]] = []
        for context, row in zip(away, front, strict=True):
            moves.append((context, row))
            if (idle := self.contexts[row]) is not None:
                moves.append((idle, context.row))
        if upto := max(c.cached_length for c, _ in moves):
            rows = ([c.row for c, _ in moves], [row for _, row in moves])
            from_, to = (torch.tensor(numbers, device=self.device) for numbers in rows)
            for layer in self.layers:
                layer.move(from_, to, upto)
        for context, _ in moves:
            self.contexts[context.row] = None
        for context, row in moves:
            context.row, self.contexts[row] = row, context


def _families(contexts: Sequence[Context]) -> Iterator[tuple[list[Context], int]]:
    """Yield contexts with a common beginning, and its length; at least one id of each remains to be read."""
    family: list[Context] = []
    for context in [*sorted(contexts, key=lambda c: c.ids), None]:
        if family and (context is None or _common(family[-1].ids, context.ids) < MIN_SHARED_PREFIX_TOKENS):
            first, last = family[0].ids, family[-1].ids
            if first != last:
                yield family, min(_common(first, last), min(len(c.ids) for c in family) - 1)
            family = []
        if context is not None:
            family.append(context)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common beginning."""
    for n, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return n
    return min(len(one), len(other))


class SingleKVCache:
    """A cache for any other architecture: one context at a time.

    Slower than `BatchedKVCache`, and right for every cache that the model itself makes.
    """

    supports_drafts = False

    def __init__(self, model: Any):
        self.model = model
        self.caches: dict[int, Cache] = {}

    def forward(self, contexts: Sequence[Context]) -> Tensor:
        """Read every context's unread ids; returns logits of each next token, [B, V]."""
        logits: list[Tensor] = []
        for context in contexts:
            cache = self.caches.setdefault(id(context), DynamicCache(config=self.model.config))
            ids = torch.tensor([context.ids[context.cached_length :]], device=self.model.device)
            out = self.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            context.cached_length, context.row = len(context.ids), 0
            logits.append(out.logits[:, -1])
        return torch.cat(logits)

    def free(self, context: Context) -> None:
        """Forget a context."""
        self.caches.pop(id(context), None)
        context.row, context.cached_length = -1, 0


KVCache = BatchedKVCache | SingleKVCache | RecomputedContexts
ROWS_OF_LAYER: dict[type[Any], type[KVRows] | type[StateRows]] = {
    DynamicLayer: KVRows,
    DynamicSlidingWindowLayer: KVRows,
    LinearAttentionLayer: StateRows,
    LinearAttentionAndFullAttentionLayer: StateAndKVRows,
    LinearAttentionAndSlidingWindowAttentionLayer: StateAndKVRows,
}
"""What stands for each of transformers' layers; a window is kept by the mask."""


def kv_cache_for(model: Any, *, fast: bool = True) -> KVCache:
    """Make the fastest cache that gives the log-probabilities of a plain forward pass, tried once per architecture.

    The batched cache where it knows all kinds of layers, else the general one, else none at all, which is said by a
    warning. Raises UsageError for a model that cannot be sampled.
    """
    layers = DynamicCache(config=model.config).layers
    known = all(type(layer) in ROWS_OF_LAYER for layer in layers)
    plain = all(type(layer) is DynamicLayer for layer in layers)
    ways = [False] if plain else [True, False]
    batched = [partial(BatchedKVCache, model, fast=fast, by_type=way) for way in ways] if known else []
    candidates: list[Callable[[], KVCache]] = [
        *batched,
        partial(SingleKVCache, model),
        partial(RecomputedContexts, model),
    ]
    return first_right_cache(model, candidates, fast=fast)
