"""What the model remembers of each conversation: key-value rows, batched, ragged, kept across turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer

BLOCK = 64
"""Rows and positions are added in multiples of this."""
OPENING = 64
"""New contexts that begin with at least so many equal ids have them read once for all: examples, rules, a prompt."""


@dataclass(slots=True, eq=False)
class Context:
    """One conversation's ids as the model has read them."""

    ids: list[int] = field(default_factory=list)
    """Every id of the context, sampled ones included; grows by `append` only."""
    digest: int = 0
    """Stands for `ids`: two contexts of one digest and length hold the same ids."""
    seen: int = 0
    """How many of them are in the memory."""
    row: int = -1
    """Place in the memory; -1 when it has none."""
    draft: tuple[int, ...] = ()
    """Guesses of the ids that follow, to be read along by the next pass."""

    @property
    def end(self) -> int:
        """Where the next pass stops reading."""
        return len(self.ids) + len(self.draft)

    def append(self, ids: Sequence[int]) -> None:
        """Let the context grow."""
        for token in ids:
            self.digest = hash((self.digest, token))
        self.ids += ids


class _Rows(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values, [rows, heads, positions, size]; the last position takes the padding."""

    def __init__(self, table: RowTable):
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write [B, H, C, D] at the table's places; return what the front rows may look at."""
        if not self.is_initialized or self.keys is None or self.values is None:
            self._allocate(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        batch, heads = key_states.shape[:2]
        starts = torch.arange(batch * heads, device=key_states.device).view(batch, heads, 1) * self.keys.shape[2]
        places = (starts + self.table.places[:, None]).flatten()
        out = []
        for memory, new in ((self.keys, key_states), (self.values, value_states)):
            memory.view(-1, new.shape[3]).index_copy_(0, places, new.reshape(-1, new.shape[3]))
            out.append(memory[:batch, :, : self.table.upto])
        return out[0], out[1]

    def _allocate(self, keys: Tensor, values: Tensor) -> None:
        rows, positions = self.table.rows, self.table.positions + 1
        self.keys, self.values = (x.new_zeros(rows, x.shape[1], positions, x.shape[3]) for x in (keys, values))
        self.is_initialized = True

    def resize(self) -> None:
        """Make room for the table's new size; what is remembered stays."""
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


@dataclass(slots=True)
class RowTable:
    """Where the next forward pass reads and writes; shared by all layers."""

    rows: int = BLOCK
    positions: int = 4 * BLOCK
    places: Tensor = field(default_factory=lambda: torch.empty(0, 0, dtype=torch.long))
    """[B, C] positions of the new tokens in the front rows."""
    upto: int = 0
    """Positions that any active row may look at."""


class RowMemory:
    """Batched memory for models whose cache is keys and values only.

    Before a pass the active rows are swapped to the front, so that the attention reads views and never gathers.
    """

    drafts = True
    """Whether a pass can read drafts and forget the wrong ones."""

    def __init__(self, model: Any):
        self.model = model
        self.device = model.device
        self.table = RowTable()
        self.contexts: list[Context | None] = []
        """By row; None is a free row."""
        layers = [_Rows(self.table) for _ in range(model.config.num_hidden_layers)]
        self.layers = layers
        self.cache = Cache(layers=list(layers))

    def forward(self, contexts: Sequence[Context]) -> Tensor:
        """Read every context's unseen ids and its draft; logits [B, D + 1, V] in the order given.

        D is the longest draft. A context's last columns are those after its ids and after each id of its draft.
        Contexts with the same ids are read once: siblings cost one until they part.
        """
        self._seat(contexts)
        self._grow(max(c.end for c in contexts))
        self._begin([c for c in contexts if not c.seen and len(c.ids) > OPENING])
        twins: dict[tuple[int, int, int, tuple[int, ...]], list[Context]] = {}
        for context in contexts:
            twins.setdefault((context.digest, len(context.ids), context.seen, context.draft), []).append(context)
        firsts = [same[0] for same in twins.values()]
        self._front(firsts)
        logits = self._read(sorted(firsts, key=lambda c: c.row))
        self._share(twins.values())
        first_of = {id(c): same[0] for same in twins.values() for c in same}
        order = torch.tensor([first_of[id(c)].row for c in contexts], device=self.device)
        for context in contexts:
            context.seen = len(context.ids)
        return logits[order]

    def _read(self, batch: list[Context]) -> Tensor:
        """One pass over the front rows; logits [B, D + 1, V] by row."""
        ids, positions, mask = self._plan(batch)
        out = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1 + max(len(c.draft) for c in batch),
        )
        logits: Tensor = out.logits
        return logits

    def _begin(self, contexts: Sequence[Context]) -> None:
        """Read once what several of these new contexts begin with; what is equal to its end is for `twins`."""
        found = list(_families(contexts))
        if not found:
            return
        self._front([family[0] for family, _ in found])
        stubs = [Context(ids=family[0].ids[:common], row=family[0].row) for family, common in found]
        self._read(sorted(stubs, key=lambda stub: stub.row))
        self._share([stub, *family[1:]] for stub, (family, _) in zip(stubs, found, strict=True))
        for family, common in found:
            for context in family:
                context.seen = common

    def _share(self, twins: Iterable[list[Context]]) -> None:
        """Give the others what the first of each group of twins has just read."""
        source, target, positions = list[int](), list[int](), list[int]()
        for first, *others in twins:
            new = range(first.seen, first.end)
            for other in others:
                source += [first.row] * len(new)
                target += [other.row] * len(new)
                positions += new
        if source:
            from_, to, at = (torch.tensor(places, device=self.device) for places in (source, target, positions))
            for layer in self.layers:
                layer.copy((from_, at), (to, at))

    def free(self, context: Context) -> None:
        """Forget a context."""
        if context.row >= 0:
            self.contexts[context.row] = None
            context.row, context.seen = -1, 0
            while self.contexts and self.contexts[-1] is None:
                self.contexts.pop()

    def _plan(self, batch: list[Context]) -> tuple[Tensor, Tensor, Tensor]:
        """Ids, positions [B, C] and mask [B, 1, C, upto] of the unseen parts, padded on the left."""
        ends, seen = (
            torch.tensor(numbers, device=self.device)[:, None]
            for numbers in ([c.end for c in batch], [c.seen for c in batch])
        )
        chunk = max(c.end - c.seen for c in batch)
        self.table.upto = max(c.end for c in batch)
        ids = [[0] * (chunk - c.end + c.seen) + c.ids[c.seen :] + [*c.draft] for c in batch]
        positions = ends - chunk + torch.arange(chunk, device=self.device)
        new = positions >= seen
        self.table.places = torch.where(new, positions, self.table.positions)
        positions = torch.where(new, positions, 0)
        mask = torch.arange(self.table.upto, device=self.device) <= positions[:, None, :, None]
        return torch.tensor(ids, device=self.device), positions, mask

    def _seat(self, contexts: Sequence[Context]) -> None:
        """A row for everyone."""
        free = (row for row, context in enumerate(self.contexts) if context is None)
        for context in contexts:
            if context.row < 0:
                context.row = next(free, len(self.contexts))
                self.contexts[context.row : context.row + 1] = [context]

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
        self._move([c.row for c, _ in moves], [row for _, row in moves], max(c.seen for c, _ in moves))
        for context, _ in moves:
            self.contexts[context.row] = None
        for context, row in moves:
            context.row, self.contexts[row] = row, context

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


def _families(contexts: Sequence[Context]) -> Iterator[tuple[list[Context], int]]:
    """Contexts with one opening, and its length; each leaves at least one id to be read."""
    family: list[Context] = []
    for context in [*sorted(contexts, key=lambda c: c.ids), None]:
        if family and (context is None or _common(family[-1].ids, context.ids) < OPENING):
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


class SingleMemory:
    """Memory for any other architecture (convolutions, recurrent states, windows): one context at a time.

    Slower than `RowMemory` and right for whatever cache the model itself makes.
    """

    drafts = False

    def __init__(self, model: Any):
        self.model = model
        self.caches: dict[int, Cache] = {}

    def forward(self, contexts: Sequence[Context]) -> Tensor:
        """Read every context's unseen ids; logits of each next token, [B, 1, V]."""
        return torch.cat([self._one(context) for context in contexts])

    def _one(self, context: Context) -> Tensor:
        cache = self.caches.setdefault(id(context), DynamicCache(config=self.model.config))
        ids = torch.tensor([context.ids[context.seen :]], device=self.model.device)
        out = self.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        context.seen, context.row = len(context.ids), 0
        logits: Tensor = out.logits[:, -1:]
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
