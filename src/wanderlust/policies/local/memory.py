"""What the model remembers of each conversation: key-value rows, batched, ragged, kept across turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

BLOCK = 64
"""Rows and positions are added in multiples of this."""


@dataclass(slots=True, eq=False)
class Context:
    """One conversation's ids as the model has read them."""

    ids: list[int] = field(default_factory=list)
    """Every id of the context, sampled ones included."""
    seen: int = 0
    """How many of them are in the memory."""
    row: int = -1
    """Place in the memory; -1 when it has none."""


class _Rows(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values, [rows, positions, heads, size]; the last position takes the padding."""

    def __init__(self, table: RowTable):
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write [B, H, C, D] at the table's places; return what the active rows may look at."""
        if not self.is_initialized or self.keys is None or self.values is None:
            self._allocate(key_states)
        assert self.keys is not None
        assert self.values is not None
        batch, heads, chunk, size = key_states.shape
        out = []
        for memory, new in ((self.keys, key_states), (self.values, value_states)):
            flat = new.transpose(1, 2).reshape(batch * chunk, heads, size)
            memory.view(-1, heads, size).index_copy_(0, self.table.places, flat)
            out.append(memory[:batch, : self.table.upto].transpose(1, 2))
        return out[0], out[1]

    def _allocate(self, like: Tensor) -> None:
        shape = (self.table.rows, self.table.positions + 1, like.shape[1], like.shape[3])
        self.keys = torch.zeros(shape, dtype=like.dtype, device=like.device)
        self.values = torch.zeros(shape, dtype=like.dtype, device=like.device)
        self.is_initialized = True

    def resize(self) -> None:
        """Make room for the table's new size; what is remembered stays."""
        if not self.is_initialized or self.keys is None or self.values is None:
            return
        old = (self.keys, self.values)
        self._allocate(old[0].transpose(1, 2))
        for was, now in zip(old, (self.keys, self.values), strict=True):
            now[: was.shape[0], : was.shape[1] - 1] = was[:, :-1]

    def move(self, source: Tensor, target: Tensor, upto: int) -> None:
        """Copy rows `source` over rows `target` (both [n])."""
        for memory in (self.keys, self.values):
            if memory is not None:
                memory[target, :upto] = memory[source, :upto]


@dataclass(slots=True)
class RowTable:
    """Where the next forward pass reads and writes; shared by all layers."""

    rows: int = BLOCK
    positions: int = 4 * BLOCK
    places: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    """[B * C] flat indices of the new tokens."""
    upto: int = 0
    """Positions that any active row may look at."""


class RowMemory:
    """Batched memory for models whose cache is keys and values only.

    Live rows lie densely at the front; before a pass the active ones are swapped to the very front, so that the
    attention reads views and never gathers.
    """

    def __init__(self, model: Any):
        self.model = model
        self.device = model.device
        self.table = RowTable()
        self.contexts: list[Context] = []
        layers = [_Rows(self.table) for _ in range(model.config.num_hidden_layers)]
        self.layers = layers
        self.cache = Cache(layers=list(layers))

    def forward(self, contexts: Sequence[Context]) -> Tensor:
        """Read every context's unseen ids; logits of each next token, [B, V], in the order given."""
        for context in contexts:
            if context.row < 0:
                context.row = len(self.contexts)
                self.contexts.append(context)
        self._grow(max(len(c.ids) for c in contexts))
        self._front(contexts)
        batch = sorted(contexts, key=lambda c: c.row)
        ids, positions, mask = self._plan(batch)
        out = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        for context in batch:
            context.seen = len(context.ids)
        order = torch.tensor([c.row for c in contexts], device=self.device)
        logits: Tensor = out.logits[:, -1][order]
        return logits

    def free(self, context: Context) -> None:
        """Forget a context; the last row takes its place."""
        if context.row < 0:
            return
        last = self.contexts.pop()
        if last is not context:
            self._move([last.row], [context.row], last.seen)
            last.row = context.row
            self.contexts[last.row] = last
        context.row, context.seen = -1, 0

    def _plan(self, batch: list[Context]) -> tuple[Tensor, Tensor, Tensor]:
        """Ids, positions [B, C] and mask [B, 1, C, upto] of the unseen parts, padded on the left."""
        chunk = max(len(c.ids) - c.seen for c in batch)
        self.table.upto = upto = max(len(c.ids) for c in batch)
        width = self.table.positions + 1
        ids, positions, places = [], [], []
        for context in batch:
            new = len(context.ids) - context.seen
            pad = chunk - new
            ids.append([0] * pad + context.ids[context.seen :])
            positions.append([0] * pad + list(range(context.seen, len(context.ids))))
            start = context.row * width
            places += [start + width - 1] * pad + list(range(start + context.seen, start + len(context.ids)))
        self.table.places = torch.tensor(places, device=self.device)
        where = torch.tensor(positions, device=self.device)
        mask = torch.arange(upto, device=self.device)[None, None, None, :] <= where[:, None, :, None]
        return torch.tensor(ids, device=self.device), where, mask

    def _front(self, contexts: Sequence[Context]) -> None:
        active, count = set(map(id, contexts)), len(contexts)
        away = [c for c in contexts if c.row >= count]
        if not away:
            return
        idle = [c for c in self.contexts[:count] if id(c) not in active]
        rows = [c.row for c in away + idle]
        self._move(rows, [c.row for c in idle + away], max(c.seen for c in away + idle))
        for a, b in zip(away, idle, strict=True):
            a.row, b.row = b.row, a.row
            self.contexts[a.row], self.contexts[b.row] = a, b

    @torch.inference_mode()
    def _move(self, source: list[int], target: list[int], upto: int) -> None:
        if upto:
            from_, to = (torch.tensor(rows, device=self.device) for rows in (source, target))
            for layer in self.layers:
                layer.move(from_, to, upto)

    def _grow(self, longest: int) -> None:
        table, changed = self.table, False
        if len(self.contexts) > table.rows:
            table.rows, changed = _rounded(max(len(self.contexts), 2 * table.rows)), True
        if longest > table.positions:
            table.positions, changed = _rounded(max(longest, 2 * table.positions)), True
        if changed:
            for layer in self.layers:
                layer.resize()


class SingleMemory:
    """Memory for any other architecture (convolutions, recurrent states, windows): one context at a time.

    Slower than `RowMemory` and right for whatever cache the model itself makes.
    """

    def __init__(self, model: Any):
        self.model = model
        self.caches: dict[int, Cache] = {}

    def forward(self, contexts: Sequence[Context]) -> Tensor:
        """Read every context's unseen ids; logits of each next token, [B, V]."""
        return torch.cat([self._one(context) for context in contexts])

    def _one(self, context: Context) -> Tensor:
        cache = self.caches.setdefault(id(context), DynamicCache(config=self.model.config))
        ids = torch.tensor([context.ids[context.seen :]], device=self.model.device)
        out = self.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        context.seen, context.row = len(context.ids), 0
        logits: Tensor = out.logits[:, -1]
        return logits

    def free(self, context: Context) -> None:
        """Forget a context."""
        self.caches.pop(id(context), None)
        context.row, context.seen = -1, 0


Memory = RowMemory | SingleMemory


def memory_for(model: Any) -> Memory:
    """The batched memory where every layer's cache is plain keys and values, else the general one."""
    layers = DynamicCache(config=model.config).layers
    plain = all(type(layer) is DynamicLayer for layer in layers)
    return RowMemory(model) if plain else SingleMemory(model)


def _rounded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
