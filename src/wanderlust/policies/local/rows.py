"""The ids of one conversation, and the rows of keys and values that `transformers` and our own pass both write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
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
    row: int = -1
    """Row in the cache; -1 when it has none."""
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


BLOCK = 64
"""Rows and positions are added in multiples of this."""


@dataclass(slots=True)
class RowTable:
    """Places that the next forward pass reads and writes; shared by all layers."""

    rows: int = BLOCK
    positions: int = 4 * BLOCK
    slots: Tensor = field(default_factory=lambda: torch.empty(0, 0, dtype=torch.long))
    """[B, C] positions of the new tokens in the front rows."""
    upto: int = 0
    """Positions that any active row may look at."""


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
        starts = torch.arange(batch * heads, device=key_states.device).view(batch, heads, 1) * self.keys.shape[2]
        self._put(self.keys, key_states, (starts + self.table.slots[:, None]).flatten())
        self._put(self.values, value_states, (starts + self.table.slots[:, None]).flatten())
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
        """Grow to the table's new size; cached keys and values stay."""
        if not self.is_initialized or self.keys is None or self.values is None:
            return
        old = (self.keys, self.values)
        self._allocate(*old)
        for was, now in zip(old, (self.keys, self.values), strict=True):
            now[: was.shape[0], :, : was.shape[2] - 1] = was[:, :, :-1]

    def copy(self, source: tuple[Tensor, Tensor], target: tuple[Tensor, Tensor]) -> None:
        """Copy single places, each given by rows and positions [n]."""
        for memory in (self.keys, self.values):
            if memory is not None:
                memory[target[0], :, target[1]] = memory[source[0], :, source[1]]

    def move(self, source: Tensor, target: Tensor, upto: int) -> None:
        """Copy rows `source` over rows `target` (both [n])."""
        for memory in (self.keys, self.values):
            if memory is not None:
                part = memory[:, :, :upto]
                part.index_copy_(0, target, part.index_select(0, source))


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
        """Grow to the table's rows; the states stay."""
        for kind, old in self.memory.items():
            self.memory[kind] = old.new_zeros(self.table.rows, *old.shape[1:])
            self.memory[kind][: len(old)] = old

    def copy_rows(self, source: Tensor, target: Tensor) -> None:
        """Copy rows `source` over rows `target`, both [n]."""
        for rows in self.memory.values():
            rows.index_copy_(0, target, rows.index_select(0, source))

    def move(self, source: Tensor, target: Tensor, upto: int) -> None:
        """The same; `upto` bounds what has positions, and states have none."""
        self.copy_rows(source, target)


class StateAndKVRows(StateRows, KVRows):  # type: ignore[misc, override, no-untyped-call]
    """A layer that has both."""

    def __init__(self, table: RowTable):
        KVRows.__init__(self, table)
        StateRows.__init__(self, table)

    def resize(self) -> None:
        """Grow to the table's size."""
        StateRows.resize(self)
        KVRows.resize(self)

    def move(self, source: Tensor, target: Tensor, upto: int) -> None:
        """Copy rows."""
        StateRows.move(self, source, target, upto)
        KVRows.move(self, source, target, upto)
