"""The ids of one conversation, and the rows of keys and values that `transformers` and our own pass both write.

Rows are kept in pools by their number of positions, so that a long conversation takes a long row and the others short
ones. `TransformersPass` reads the rows at the front by the model itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer, LinearAttentionLayer


@dataclass(slots=True, eq=False)
class Context:
    """One conversation's ids as the model has read them."""

    ids: list[int] = field(default_factory=list)
    """Every id of the context, sampled ones included; grows by `append` only."""
    digest: int = 0
    """Hash of `ids`: two contexts of one digest and length hold the same ids."""
    cached_length: int = 0
    """Number of ids whose keys and values are cached."""
    capacity: int = 0
    """Positions of its row, which name the pool that has it; 0 when it has none."""
    row: int = -1
    """Row in that pool; -1 when it has none."""
    draft: tuple[int, ...] = ()
    """Guesses of the ids that follow, read along by the next pass."""

    @property
    def end(self) -> int:
        """Length of ids and draft, where the next pass stops reading."""
        return len(self.ids) + len(self.draft)

    def append(self, ids: Sequence[int]) -> None:
        """Append ids and update the digest."""
        for token in ids:
            self.digest = hash((self.digest, token))
        self.ids += ids


def common_prefix_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common beginning."""
    for n, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return n
    return min(len(one), len(other))


MIN_ROW_POSITIONS = 128
"""Positions of the shortest rows; those of every next pool are twice as long."""
MIN_ADDED_POSITIONS = 2048
"""Rows are added so many that they have this number of positions, or a quarter of the rows that there are."""


@dataclass(slots=True)
class RowTable:
    """Places that the next forward pass reads and writes; shared by all layers of a pool."""

    rows: int
    positions: int
    slots: Tensor = field(default_factory=lambda: torch.empty(0, 0, dtype=torch.long))
    """[B, C] positions of the new tokens in the front rows."""
    upto: int = 0
    """Positions that any active row may look at."""
    places: dict[int, Tensor] = field(default_factory=dict)
    """By number of heads: the slots as indices of single places [B x heads x C]; emptied before a pass."""


class KVRows(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values, [rows, heads, positions, size]; the last position takes the padding."""

    def __init__(self, table: RowTable):
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write [B, H, C, D] at the table's places; returns the visible keys and values of the front rows."""
        if not self.is_initialized or self.keys is None or self.values is None:
            self._allocate(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        batch, heads = key_states.shape[:2]
        places = self.table.places.get(heads)
        if places is None:
            starts = torch.arange(batch * heads, device=key_states.device).view(batch, heads, 1) * self.keys.shape[2]
            places = self.table.places[heads] = (starts + self.table.slots[:, None]).flatten()
        self._put(self.keys, key_states, places)
        self._put(self.values, value_states, places)
        return self.keys[:batch, :, : self.table.upto], self.values[:batch, :, : self.table.upto]

    def write(self, keys: Tensor, values: Tensor, places: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Write [N, heads, size] at places, rows and positions [N]; returns all, [rows * heads, positions, size]."""
        if self.keys is None or self.values is None:
            self._allocate(keys[..., None, :], values[..., None, :])
        assert self.keys is not None
        assert self.values is not None
        self.keys.transpose(1, 2).index_put_(places, keys)
        self.values.transpose(1, 2).index_put_(places, values)
        return self.keys.flatten(0, 1), self.values.flatten(0, 1)

    @staticmethod
    def _put(memory: Tensor, new: Tensor, places: Tensor) -> None:
        memory.view(-1, new.shape[-1]).index_copy_(0, places, new.reshape(-1, new.shape[-1]))

    def _allocate(self, keys: Tensor, values: Tensor) -> None:
        rows, positions = self.table.rows, self.table.positions + 1
        self.keys, self.values = (x.new_zeros(rows, x.shape[1], positions, x.shape[3]) for x in (keys, values))
        self.is_initialized = True

    def resize(self) -> None:
        """Take the table's number of rows; the first ones stay."""
        if not self.is_initialized or self.keys is None or self.values is None:
            return
        for name in ("keys", "values"):  # one after the other, so that one is held twice at most
            old: Tensor = getattr(self, name)
            kept = min(len(old), self.table.rows)
            new = old.new_zeros(self.table.rows, *old.shape[1:])
            new[:kept] = old[:kept]
            setattr(self, name, new)

    def tensors(self) -> Iterator[Tensor]:
        """What is held."""
        if self.keys is not None and self.values is not None:
            yield from (self.keys, self.values)

    def move(self, other: KVRows, source: Tensor, target: Tensor, *, upto: int) -> None:
        """Copy rows `source` of a layer of this or another pool over rows `target` (both [n])."""
        if self.keys is None and other.keys is not None and other.values is not None:
            self._allocate(other.keys, other.values)
        for own, theirs in zip(KVRows.tensors(self), KVRows.tensors(other), strict=True):
            own[:, :, :upto].index_copy_(0, target, theirs[:, :, :upto].index_select(0, source))


class StateRows(LinearAttentionLayer):
    """One layer's convolution and recurrent states, a row for each conversation.

    The model updates them in place: `open` shows it the front rows before a pass, `close` keeps them after it.
    """

    def __init__(self, table: RowTable):
        super().__init__()
        self.table = table
        self.memory: dict[str, Tensor] = {}
        """[rows, ...] by kind, `conv` or `recurrent`, for the kinds that the layer has."""

    def open(self, count: int, *, known: bool) -> None:
        """Begin a pass over the first `count` rows; without `known` they begin from nothing."""
        for kind, states, initialized in self._kinds():
            rows = self.memory.get(kind)
            states[0] = rows[:count] if known and rows is not None else None
            initialized[0] = states[0] is not None
        self.has_previous_state[0] = known

    def close(self, count: int) -> None:
        """Keep the states of the first `count` rows."""
        for kind, states, _ in self._kinds():
            if (state := states[0]) is None:
                continue
            if kind not in self.memory:
                self.memory[kind] = state.new_zeros(self.table.rows, *state.shape[1:])
            if state.data_ptr() != self.memory[kind].data_ptr():
                self.memory[kind][:count] = state

    def _kinds(self) -> tuple[tuple[str, Any, Any], ...]:
        return (
            ("conv", self.conv_states, self.is_conv_states_initialized),
            ("recurrent", self.recurrent_states, self.is_recurrent_states_initialized),
        )

    def resize(self) -> None:
        """Take the table's number of rows; the first states stay."""
        for kind, old in self.memory.items():
            kept = min(len(old), self.table.rows)
            self.memory[kind] = old.new_zeros(self.table.rows, *old.shape[1:])
            self.memory[kind][:kept] = old[:kept]

    def tensors(self) -> Iterator[Tensor]:
        """What is held."""
        yield from self.memory.values()

    def move(self, other: StateRows, source: Tensor, target: Tensor, *, upto: int) -> None:
        """Copy rows `source` of a layer of this or another pool over rows `target`, both [n], whatever `upto` says."""
        self.conv_kernel_size, self.device, self.dtype = other.conv_kernel_size, other.device, other.dtype
        for kind, rows in other.memory.items():
            if kind not in self.memory:
                self.memory[kind] = rows.new_zeros(self.table.rows, *rows.shape[1:])
            self.memory[kind].index_copy_(0, target, rows.index_select(0, source))


class StateAndKVRows(StateRows, KVRows):  # type: ignore[misc, override, no-untyped-call]
    """A layer that has both."""

    def __init__(self, table: RowTable):
        KVRows.__init__(self, table)
        StateRows.__init__(self, table)

    def resize(self) -> None:
        """Take the table's number of rows."""
        StateRows.resize(self)
        KVRows.resize(self)

    def tensors(self) -> Iterator[Tensor]:
        """What is held."""
        yield from KVRows.tensors(self)
        yield from StateRows.tensors(self)

    def move(self, other: Any, source: Tensor, target: Tensor, *, upto: int) -> None:
        """Copy rows."""
        StateRows.move(self, other, source, target, upto=upto)
        KVRows.move(self, other, source, target, upto=upto)


class RowPool:
    """Rows with equally many positions, in all layers; contexts have one in common as long as their ids are the same.

    Before a pass the active rows are swapped to the front, so that the attention reads views and never gathers.
    """

    def __init__(self, kinds: Sequence[type[KVRows] | type[StateRows]], capacity: int):
        """`kinds` are those of the layers; `capacity` is the number of positions of a row."""
        self.table = RowTable(rows=0, positions=capacity)
        self.layers: list[Any] = [kind(self.table) for kind in kinds]
        self.states: list[StateRows] = [layer for layer in self.layers if isinstance(layer, StateRows)]
        self.contexts: list[list[Context]] = []
        """By row; nobody's is a free row. What each has cached begins with what any other one of its row has."""

    @property
    def size(self) -> int:
        """Bytes held."""
        return sum(t.numel() * t.itemsize for layer in self.layers for t in layer.tensors())

    def resize(self, rows: int) -> None:
        """Have so many rows, not fewer than are taken."""
        if rows < len(self.contexts):  # no holes
            self.front([row for row, held in enumerate(self.contexts) if held])
            self._trim()
        self.table.rows = max(rows, len(self.contexts))
        for layer in self.layers:
            layer.resize()

    def add(self, groups: Sequence[Sequence[Context]]) -> None:
        """Give every group a free row; there must be as many."""
        free = iter([row for row, held in enumerate(self.contexts) if not held])
        for group in groups:
            row = next(free, len(self.contexts))
            self.contexts[row : row + 1] = [[*group]]
            for context in group:
                context.row, context.capacity = row, self.table.positions

    def drop(self, context: Context, row: int) -> None:
        """Let a row be without a context."""
        self.contexts[row].remove(context)
        self._trim()

    def _trim(self) -> None:
        while self.contexts and not self.contexts[-1]:
            self.contexts.pop()

    @torch.inference_mode()
    def front(self, rows: Sequence[int]) -> None:
        """Swap these rows with whatever is in those at the front."""
        active = set(rows)
        away = [row for row in rows if row >= len(rows)]
        swaps = list(zip(away, (row for row in range(len(rows)) if row not in active), strict=True))
        moves = [*swaps, *((row, to) for to, row in swaps if self.contexts[row])]
        self.move(self, moves, upto=max((c.cached_length for row, _ in moves for c in self.contexts[row]), default=0))
        for one, other in swaps:
            self.contexts[one], self.contexts[other] = self.contexts[other], self.contexts[one]
            for row in (one, other):
                for context in self.contexts[row]:
                    context.row = row

    def move(self, other: RowPool, rows: Sequence[tuple[int, int]], *, upto: int) -> None:
        """Copy rows of this or another pool, each given by its number there and here, up to a position."""
        device = next((tensor.device for layer in other.layers for tensor in layer.tensors()), None)
        if device is None or not upto or not rows:
            return
        from_, to = (torch.tensor(numbers, device=device) for numbers in zip(*rows, strict=True))
        for own, theirs in zip(self.layers, other.layers, strict=True):
            own.move(theirs, from_, to, upto=upto)


FULL_TYPES = ("full_attention", "sliding_attention", "linear_attention", "conv")
STATE_TYPES = frozenset({"linear_attention", "conv", "mamba", "recurrent"})
"""Types of layers that keep a state: nothing is masked, as their rows are never padded."""


class TransformersPass:
    """Read by the model's own forward pass, in rows that are padded on the left.

    Where layers keep states, all contexts of a pass have equally many new ids, and all or none have been read before.
    """

    def __init__(self, model: Any, *, by_type: bool = False, by_token: bool = False):
        """`by_type`: the model takes a mask for each type of its layers. Else one mask is for all of them.

        `by_token`: the model goes on from a state with one token at a time only.
        """
        self.model, self.by_type, self.by_token = model, by_type, by_token
        takes = signature(model.forward).parameters
        self.cache_argument = "cache_params" if "cache_params" in takes else "past_key_values"
        config = model.config
        self.window = int(getattr(config, "sliding_window", None) or 0)
        self.types = {*FULL_TYPES, *(getattr(config, "layer_types", None) or ())}
        self.adds = config._attn_implementation == "eager"

    def read(self, parts: Sequence[tuple[RowPool, Sequence[Context]]]) -> Tensor:
        """Read the unread ids and the drafts of contexts, which occupy the front rows of their pools in their order.

        Returns logits [N, V]: for each context those after its ids and after each id of its draft. Every pool is a
        pass.
        """
        logits = [[self._read(pool, step) for step in self._steps(batch)][-1] for pool, batch in parts]
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def _steps(self, batch: Sequence[Context]) -> list[Sequence[Context]]:
        """What is read in one call of the model each."""
        if not (self.by_token and batch[0].cached_length):
            return [batch]
        return [  # all have equally many new ids and no drafts
            [Context(ids=c.ids[: c.end - left], row=c.row, cached_length=c.end - left - 1) for c in batch]
            for left in range(batch[0].end - batch[0].cached_length - 1, -1, -1)
        ]

    def _read(self, pool: RowPool, batch: Sequence[Context]) -> Tensor:
        device, table = self.model.device, pool.table
        for layer in pool.states:
            layer.open(len(batch), known=batch[0].cached_length > 0)
        ends, cached = (
            torch.tensor(numbers, device=device)[:, None]
            for numbers in ([c.end for c in batch], [c.cached_length for c in batch])
        )
        chunk = max(c.end - c.cached_length for c in batch)
        table.upto = max(c.end for c in batch)
        ids = [[0] * (chunk - c.end + c.cached_length) + c.ids[c.cached_length :] + [*c.draft] for c in batch]
        positions = ends - chunk + torch.arange(chunk, device=device)  # [B, C]
        new = positions >= cached
        table.slots = torch.where(new, positions, table.positions)
        table.places.clear()
        positions = torch.where(new, positions, 0)
        masked = len(pool.states) < len(pool.layers) or isinstance(pool.layers[0], KVRows)
        mask = self._mask(positions[:, None, :, None], table.upto) if masked else None
        counts = [1 + len(c.draft) for c in batch]
        width = max(counts)
        logits: Tensor = self.model(
            input_ids=torch.tensor(ids, device=device),
            position_ids=positions,
            attention_mask=mask,
            use_cache=True,
            logits_to_keep=width,
            **{self.cache_argument: Cache(layers=pool.layers)},
        ).logits
        for layer in pool.states:
            layer.close(len(batch))
        places = [row * width + column for row, n in enumerate(counts) for column in range(width - n, width)]
        return logits.flatten(0, 1)[torch.tensor(places, device=logits.device)]

    def _mask(self, positions: Tensor, upto: int) -> Any:
        """Who sees whom, for queries at `positions` [B, 1, C, 1]; by the layers' type where the model asks for that."""
        keys = torch.arange(upto, device=positions.device)
        full = keys <= positions  # [B, 1, C, upto]
        near = full & (keys > positions - self.window) if self.window else full
        if self.adds:
            least = torch.finfo(self.model.dtype).min
            full, near = (torch.zeros(m.shape, dtype=self.model.dtype).masked_fill(~m, least) for m in (full, near))
        if not self.by_type:
            return near
        return {kind: None if kind in STATE_TYPES else near if "sliding" in kind else full for kind in self.types}
