"""Caches of each conversation's keys and values: batched rows of different lengths, held across turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionLayer,
)

from wanderlust.errors import UsageError
from wanderlust.policies.local.fast_llama import FastLlamaPass, fast_llama_for
from wanderlust.policies.local.rows import (
    MIN_ADDED_POSITIONS,
    MIN_ROW_POSITIONS,
    Context,
    KVRows,
    RowPool,
    StateAndKVRows,
    StateRows,
    TransformersPass,
    common_prefix_length,
)
from wanderlust.policies.local.sampler_trial import RecomputedContexts, first_right_cache

MIN_SHARED_PREFIX_TOKENS = 64
"""Equal first ids of new contexts (rules, examples) from which on they are read once for all."""

MAX_IDLE_POOL_BYTES = 2**26
"""A pool of at most this size stays when its last conversation ends."""


class BatchedKVCache:
    """A batched cache of keys and values, and of the states of convolutions and linear attention.

    A conversation has a row of the first pool that is long enough, so what is held is at most about twice what the
    conversations need (`_common_capacities` may double that).
    """

    def __init__(self, model: Any, *, fast: bool = True, by_type: bool = False, by_token: bool = False):
        """With `fast`, our own forward pass is used where it can be; the others: see `TransformersPass`."""
        self.device = model.device
        self.kinds = [ROWS_OF_LAYER[type(layer)] for layer in DynamicCache(config=model.config).layers]
        self.pools: dict[int, RowPool] = {}
        """By the positions of their rows."""
        self.max_bytes = 0
        """Bound of what is held; 0: none. Who calls sees to it that the contexts alone fit (`footprint`)."""
        self.has_states = any(issubclass(kind, StateRows) for kind in self.kinds)
        self.supports_drafts = not self.has_states
        """Whether a pass can read drafts and discard the wrong ones: a state cannot be taken back."""
        own = fast_llama_for(model) if fast and all(kind is KVRows for kind in self.kinds) else None
        plain = partial(TransformersPass, model, by_type=by_type, by_token=by_token)
        self.pass_ = FastLlamaPass(model, own) if own else plain()
        self.max_positions = int(getattr(model.config, "max_position_embeddings", 0) or 2**30)
        self._has_positions = any(issubclass(kind, KVRows) for kind in self.kinds)
        self._bytes: tuple[int, int] | None = None

    @property
    def contexts(self) -> list[Context]:
        """All that have a row."""
        return [context for pool in self.pools.values() for held in pool.contexts for context in held]

    @property
    def size(self) -> int:
        """Bytes held."""
        return sum(pool.size for pool in self.pools.values())

    def footprint(self, contexts: Iterable[Context]) -> int:
        """Bytes of the rows that these contexts need at least for their next pass, with those that they leave."""
        return sum(self._bytes_of(c, self._capacity(c.end)) for c in contexts)

    def _bytes_of(self, context: Context, capacity: int) -> int:
        """Bytes of a context's row in the pool of this capacity, and of its old one, from which it is copied."""
        by_position, besides = self._row_bytes()
        rows = {context.capacity, max(capacity, context.capacity)} - {0}
        return sum((positions + 1) * by_position + besides for positions in rows)

    def longest_within(self, size: int) -> int:
        """Positions of the longest row of at most so many bytes. UsageError when not even the shortest fits."""
        longest = self._capacity(1)
        if (least := self._bytes_of(Context(), longest)) > size:
            raise UsageError(
                f"the cache may take {size / 2**20:,.0f} MiB, and the shortest row of this model takes "
                f"{least / 2**20:,.1f} MiB: raise cache_gib"
            )
        while (longer := self._capacity(longest + 1)) > longest:
            if longest >= self.max_positions or self._bytes_of(Context(capacity=longest), longer) > size:
                break
            longest = longer
        return longest

    def forward(self, contexts: Sequence[Context]) -> Tensor:
        """Read every context's unread ids and its draft; returns logits [N, V] in the order of the contexts.

        Each context has one row after its ids and one after each id of its draft. Contexts with the same ids are read
        once, and have one row of the cache: the samples of a group cost one until they differ.
        """
        self._read_shared_prefixes(
            [c for c in contexts if not c.cached_length and len(c.ids) > MIN_SHARED_PREFIX_TOKENS]
        )
        twins: dict[tuple[int, int, int, tuple[int, ...]], list[Context]] = {}
        for context in contexts:
            twins.setdefault((context.digest, len(context.ids), context.cached_length, context.draft), []).append(
                context
            )
        twins_of = {id(same[0]): same for same in twins.values()}
        self._assign_rows(twins_of.values())
        logits, start_of, start = list[Tensor](), dict[int, int](), 0
        batches: dict[tuple[int, bool], list[Context]] = {}
        for first in (same[0] for same in twins_of.values()):  # where there are states nothing may be padded
            alike = (first.end - first.cached_length, first.cached_length > 0) if self.has_states else (0, False)
            batches.setdefault(alike, []).append(first)
        for batch in batches.values():
            parts = self._parts(batch)
            logits.append(self.pass_.read(parts))
            for first in (context for _, part in parts for context in part):
                for context in twins_of[id(first)]:
                    start_of[id(context)], context.cached_length = start, len(context.ids)
                start += 1 + len(first.draft)
        all_logits = logits[0] if len(logits) == 1 else torch.cat(logits)
        order = [start_of[id(c)] + n for c in contexts for n in range(1 + len(c.draft))]
        if order == list(range(len(all_logits))):
            return all_logits
        return all_logits[torch.tensor(order, device=self.device)]

    def _parts(self, batch: Sequence[Context]) -> list[tuple[RowPool, list[Context]]]:
        """The contexts by pool, in the order of their rows, which are then the front ones."""
        parts: dict[int, list[Context]] = {}
        for context in batch:
            parts.setdefault(context.capacity, []).append(context)
        for capacity, contexts in parts.items():
            self.pools[capacity].front([c.row for c in contexts])
            contexts.sort(key=lambda c: c.row)
        return [(self.pools[capacity], contexts) for capacity, contexts in parts.items()]

    def _read_shared_prefixes(self, contexts: Sequence[Context]) -> None:
        """Read shared beginnings of these new contexts once; wholly equal contexts are left to `forward`."""
        families = list(_families(contexts))
        if not families:
            return
        self._assign_rows([family for family, _ in families])
        for batch in [[one] for one in families] if self.has_states else [families]:
            parts = self._parts([family[0] for family, _ in batch])
            common_of = {id(family[0]): common for family, common in batch}
            self.pass_.read(
                [
                    (pool, [Context(ids=c.ids[: common_of[id(c)]], row=c.row, capacity=c.capacity) for c in part])
                    for pool, part in parts
                ]
            )
            for family, common in batch:
                for context in family:
                    context.cached_length = common

    def free(self, context: Context) -> None:
        """Forget a context."""
        if context.row >= 0:
            self._leave(context, context.capacity, context.row)
            context.row, context.capacity, context.cached_length = -1, 0, 0

    def _leave(self, context: Context, capacity: int, row: int) -> None:
        """Take a context's row away. A large pool without any gives its memory back; new memory takes time."""
        pool = self.pools[capacity]
        pool.drop(context, row)
        if not pool.contexts and pool.size > MAX_IDLE_POOL_BYTES:
            del self.pools[capacity]

    def _assign_rows(self, groups: Collection[Sequence[Context]]) -> None:
        """Give every group of equal contexts a long enough row that this pass may write; what is cached is copied."""
        moving: dict[int, list[Sequence[Context]]] = {}
        present, written = {id(c) for same in groups for c in same}, set[tuple[int, int]]()
        for same, capacity in zip(groups, self._common_capacities([same[0] for same in groups]), strict=True):
            place = (same[0].capacity, same[0].row)
            if capacity > place[0] or place in written or not self._may_write(same, present):
                moving.setdefault(capacity, []).append(same)
            else:
                written.add(place)
        for capacity, arriving in moving.items():
            pool = self.pools.setdefault(capacity, RowPool(self.kinds, capacity))
            self._grow(pool, max(len(pool.contexts), sum(map(bool, pool.contexts)) + len(arriving)))
            left = [(c, c.capacity, c.row) for same in arriving for c in same if c.row >= 0]
            sources: dict[int, list[tuple[int, Context]]] = {}
            for first in (same[0] for same in arriving if same[0].row >= 0):
                sources.setdefault(first.capacity, []).append((first.row, first))
            pool.add(arriving)
            for source, rows in sources.items():
                upto = max(first.cached_length for _, first in rows)
                pool.move(self.pools[source], [(row, first.row) for row, first in rows], upto=upto)
            for context, source, row in left:
                self._leave(context, source, row)

    def _may_write(self, same: Sequence[Context], present: Collection[int]) -> bool:
        """Whether equal contexts may grow in their row: nobody needs what is there after their cached ids.

        A state is nowhere else: whoever has it, too, must get a copy before the pass, in which it then takes part.
        """
        first = same[0]
        held = self.pools[first.capacity].contexts[first.row]
        return all(c.row == first.row and c.capacity == first.capacity for c in same) and (
            len(held) == len(same)
            or all(c.cached_length <= first.cached_length and (not self.has_states or id(c) in present) for c in held)
        )

    def _grow(self, pool: RowPool, rows: int) -> None:
        """Have so many rows in a pool, and some for those that come later where they fit the bound."""
        table = pool.table
        if rows <= table.rows:
            return
        step = max(MIN_ADDED_POSITIONS // table.positions, 1)
        ample = -(-max(rows, table.rows * 5 // 4) // step) * step
        if self.max_bytes:
            by_position, besides = self._row_bytes()
            of_row = (table.positions + 1) * by_position + besides
            if self.size + (ample - table.rows) * of_row > self.max_bytes:
                ample = rows
                for other in self.pools.values():
                    if other is not pool:
                        other.resize(sum(map(bool, other.contexts)))
        pool.resize(ample)

    def _common_capacities(self, contexts: Sequence[Context]) -> list[int]:
        """Positions of each context's row.

        Attention goes pool by pool, so contexts share one where that at most doubles what they need.
        """
        if len({c.capacity for c in contexts}) == 1 and all(c.end <= c.capacity for c in contexts):
            return [c.capacity for c in contexts]
        needed = [self._capacity(c.end) for c in contexts]
        shared, top, many, own = dict[int, int](), 0, 0, 0
        for capacity in sorted(set(needed), reverse=True):
            count = needed.count(capacity)
            many, own = many + count, own + count * capacity
            if not top or top * many > 2 * own:
                top, many, own = capacity, count, count * capacity
            shared[capacity] = top
        out = [max(shared[n], c.capacity) for n, c in zip(needed, contexts, strict=True)]
        least = [max(n, c.capacity) for n, c in zip(needed, contexts, strict=True)]
        if self.max_bytes and out != least:
            others = self.footprint({*self.contexts}.difference(contexts))
            size = others + sum(self._bytes_of(c, n) for c, n in zip(contexts, out, strict=True))
            return out if size <= self.max_bytes else least
        return out

    def _capacity(self, length: int) -> int:
        """Positions of the shortest row that has room for so many."""
        if not self._has_positions:
            return self.max_positions
        capacity = MIN_ROW_POSITIONS
        while capacity < length:
            capacity *= 2
        return capacity if capacity <= self.max_positions else max(length, self.max_positions)

    def _row_bytes(self) -> tuple[int, int]:
        """Bytes of a row: for each position, and besides. Where nothing was read yet, a token is."""
        if self._bytes is None:
            self._bytes = self._measured()
        return self._bytes

    @torch.inference_mode()
    def _measured(self) -> tuple[int, int]:
        probe, read = Context(ids=[0]), [pool for pool in self.pools.values() if pool.size]
        if not read:
            self._bytes = (0, 0)  # it is asked for on the way
            self.forward([probe])
        pool = read[0] if read else self.pools[probe.capacity]
        kv = [t for layer in pool.layers if isinstance(layer, KVRows) for t in KVRows.tensors(layer)]
        states = [t for layer in pool.states for t in StateRows.tensors(layer)]
        if not read:
            self.pools.clear()
        return sum(t[0, :, 0].numel() * t.itemsize for t in kv), sum(t[0].numel() * t.itemsize for t in states)


def _families(contexts: Sequence[Context]) -> Iterator[tuple[list[Context], int]]:
    """Yield contexts with a common beginning, and its length; at least one id of each remains to be read."""
    family: list[Context] = []
    for context in [*sorted(contexts, key=lambda c: c.ids), None]:
        if family and (context is None or common_prefix_length(family[-1].ids, context.ids) < MIN_SHARED_PREFIX_TOKENS):
            first, last = family[0].ids, family[-1].ids
            if first != last:
                yield family, min(common_prefix_length(first, last), min(len(c.ids) for c in family) - 1)
            family = []
        if context is not None:
            family.append(context)


class SingleKVCache:
    """A cache for any other architecture: one context at a time.

    Slower than `BatchedKVCache`, and right for every cache that the model itself makes.
    """

    supports_drafts = False

    def __init__(self, model: Any):
        self.model = model
        self.caches: dict[int, Any] = {}
        """By the identity of the context: what the model made of it."""

    def forward(self, contexts: Sequence[Context]) -> Tensor:
        """Read every context's unread ids; returns logits of each next token, [B, V]."""
        logits: list[Tensor] = []
        for context in contexts:
            ids = torch.tensor([context.ids[context.cached_length :]], device=self.model.device)
            logits.append(self._read(context, ids)[:, -1])
            context.cached_length = context.capacity = len(context.ids)
            context.row = 0
        return torch.cat(logits)

    def _read(self, context: Context, ids: Tensor) -> Tensor:
        """Logits of the last id, [1, 1, V]."""
        cache = self.caches.setdefault(id(context), DynamicCache(config=self.model.config))
        logits: Tensor = self.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        return logits

    def footprint(self, contexts: Iterable[Context]) -> int:
        """Bytes of the caches of these contexts after their next pass, by those of the largest for a token."""
        most, contexts = 0.0, list(contexts)
        for context in contexts:
            if context.cached_length:
                held = [t for layer in self.caches[id(context)].layers for t in vars(layer).values()]
                size = sum(t.numel() * t.itemsize for t in held if isinstance(t, Tensor))
                most = max(most, size / context.cached_length)
        return int(most * sum(c.end for c in contexts))

    def free(self, context: Context) -> None:
        """Forget a context."""
        self.caches.pop(id(context), None)
        context.row, context.capacity, context.cached_length = -1, 0, 0


class SingleStates(SingleKVCache):
    """For models that take and return a `state` of their own, as RWKV does: one context at a time.

    Not in rows: `transformers`' RWKV mixes up the rows of a batch that goes on by one token.
    """

    def _read(self, context: Context, ids: Tensor) -> Tensor:
        out = self.model(input_ids=ids, state=self.caches.get(id(context)), use_cache=True, logits_to_keep=1)
        self.caches[id(context)] = out.state
        logits: Tensor = out.logits
        return logits

    def footprint(self, contexts: Iterable[Context]) -> int:
        """Bytes of the states of these contexts."""
        of_one: int = sum(t.numel() * t.itemsize for t in next(iter(self.caches.values()), ()))
        return of_one * sum(1 for _ in contexts)


KVCache = BatchedKVCache | SingleKVCache | SingleStates | RecomputedContexts
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
    kinds = {type(layer) for layer in DynamicCache(config=model.config).layers}
    ways: list[dict[str, bool]] = [{"by_type": True}, {}]
    if kinds == {DynamicLayer}:
        ways = [{}]
    elif kinds == {LinearAttentionLayer}:
        ways = [{}, {"by_token": True}]
    batched = [partial(BatchedKVCache, model, fast=fast, **way) for way in ways] if kinds <= set(ROWS_OF_LAYER) else []
    single = SingleStates if "state" in signature(model.forward).parameters else SingleKVCache
    candidates: list[Callable[[], KVCache]] = [*batched, partial(single, model), partial(RecomputedContexts, model)]
    return first_right_cache(model, candidates, fast=fast)
