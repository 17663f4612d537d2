"""One reading of what is new in the conversations of the front rows: by our own pass, or by `transformers`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional
from transformers import Cache

from wanderlust.policies.local.context import Context
from wanderlust.policies.local.fused import Fused
from wanderlust.policies.local.llama import Attend, Llama
from wanderlust.policies.local.placing import kind_of
from wanderlust.policies.local.rows import Rows, RowTable

Search: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From queries [N, heads, D] and all keys and values [rows x groups, upto, D] to what was found, as queries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """New tokens, one after the other."""

    rows: Tensor
    """[N]"""
    positions: Tensor
    """[N]"""
    counts: list[int]
    """How many each row has."""
    upto: int
    """Positions that any of them may look at."""


class TransformersPass:
    """By the model's own forward, in rows that are padded on the left."""

    def __init__(self, model: Any, layers: Sequence[Rows]):
        self.model, self.table = model, layers[0].table
        self.cache = Cache(layers=list(layers))

    def read(self, batch: Sequence[Context]) -> Tensor:
        """Read what the contexts, one a front row in their order, have not seen, drafts included.

        Logits [N, V]: for each context those after its ids and after each id of its draft.
        """
        ids, positions, mask = self._plan(batch)
        counts = [1 + len(c.draft) for c in batch]
        width = max(counts)
        logits: Tensor = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=width,
        ).logits
        places = [row * width + column for row, n in enumerate(counts) for column in range(width - n, width)]
        return logits.flatten(0, 1)[torch.tensor(places, device=logits.device)]

    def _plan(self, batch: Sequence[Context]) -> tuple[Tensor, Tensor, Tensor]:
        """Ids, positions [B, C] and mask [B, 1, C, upto] of the unseen parts."""
        device = self.model.device
        ends, seen = (
            torch.tensor(numbers, device=device)[:, None]
            for numbers in ([c.end for c in batch], [c.seen for c in batch])
        )
        chunk = max(c.end - c.seen for c in batch)
        self.table.upto = max(c.end for c in batch)
        ids = [[0] * (chunk - c.end + c.seen) + c.ids[c.seen :] + [*c.draft] for c in batch]
        positions = ends - chunk + torch.arange(chunk, device=device)
        new = positions >= seen
        self.table.places = torch.where(new, positions, self.table.positions)
        positions = torch.where(new, positions, 0)
        mask = torch.arange(self.table.upto, device=device) <= positions[:, None, :, None]
        return torch.tensor(ids, device=device), positions, mask


class OwnPass:
    """By our own pass: new tokens stand in one line, without padding but for the attention of several at once."""

    def __init__(self, model: Any, own: Llama, layers: Sequence[Rows]):
        self.own = Fused(model) if Fused.suits(model) else own
        self.layers, self.head = layers, model.get_output_embeddings()
        self.table: RowTable = layers[0].table
        self.groups = int(model.config.num_key_value_heads)
        self.kind, self.device = kind_of(model.base_model), model.device

    def read(self, batch: Sequence[Context]) -> Tensor:
        """As `TransformersPass.read`."""
        ids = [token for c in batch for token in (*c.ids[c.seen :], *c.draft)]
        counts = [c.end - c.seen for c in batch]
        rows = torch.tensor([row for row, n in enumerate(counts) for _ in range(n)], device=self.device)
        positions = torch.tensor([p for c in batch for p in range(c.seen, c.end)], device=self.device)
        line = _Line(rows=rows, positions=positions, counts=counts, upto=max(c.end for c in batch))
        plain = max(counts) == 1 and self.kind == torch.float32  # else scores would be rounded before the softmax
        attend = self._attend(self._each(line) if plain else self._several(line), line)
        hidden = self.own.states(torch.tensor(ids, device=self.device), positions, attend)
        wanted = [
            end - 1 - n for c, end in zip(batch, accumulate(counts), strict=True) for n in range(len(c.draft), -1, -1)
        ]
        if len(wanted) < len(hidden):
            hidden = hidden[torch.tensor(wanted, device=self.device)]
        logits: Tensor = self.head(hidden)
        return logits

    def _attend(self, search: Search, line: _Line) -> Attend:
        """Remember the line's keys and values, then search for what its queries ask."""
        many, upto = len(line.counts) * self.groups, line.upto

        def attend(number: int, asked: Sequence[Tensor]) -> Tensor:
            q, k, v = asked
            keys, values = self.layers[number].write(k, v, (line.rows, line.positions))
            return search(q, keys[:many, :upto], values[:many, :upto])

        return attend

    def _each(self, line: _Line) -> Search:
        """One query a row: plain products, which cost less than `scaled_dot_product_attention` has to set up."""
        many, scale, size = len(line.rows) * self.groups, self.own.scale, self.own.size
        blind = self._blind(line.positions[:, None], line.upto).expand(-1, self.groups, -1).reshape(many, 1, -1)

        def search(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            scores = torch.baddbmm(blind, q.reshape(many, -1, size), keys.transpose(1, 2), alpha=scale)
            return torch.bmm(scores.softmax(-1), values).view(q.shape)

        return search

    def _several(self, line: _Line) -> Search:
        """Some queries a row, padded to the most; the heads of a group are further queries."""
        many, width, groups, size = len(line.counts), max(line.counts), self.groups, self.own.size
        rows, columns = line.rows, torch.cat([torch.arange(n, device=self.device) for n in line.counts])
        depths = rows.new_zeros(many, width).index_put_((rows, columns), line.positions)
        blind = self._blind(depths, line.upto)[:, None]  # [B, 1, C, upto]

        def search(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            padded = q.new_zeros(many, width, groups, q.shape[1] // groups, size)
            padded[rows, columns] = q.reshape(len(q), groups, -1, size)
            queries = padded.permute(0, 2, 3, 1, 4).flatten(2, 3)  # [B, G, heads of a group x C, D]
            mask = blind.repeat(1, 1, padded.shape[3], 1)
            past, said = (x.view(many, groups, -1, size) for x in (keys, values))
            found = functional.scaled_dot_product_attention(queries, past, said, attn_mask=mask, scale=self.own.scale)
            found = found.reshape(many, groups, -1, width, size).permute(0, 3, 1, 2, 4)
            out: Tensor = found[rows, columns].flatten(1, 2)
            return out

        return search

    def _blind(self, positions: Tensor, upto: int) -> Tensor:
        """What is added to scores, [B, C, upto]: nothing up to each position [B, C], and all but infinity after it."""
        ahead = torch.arange(upto, device=self.device) > positions[..., None]
        return torch.zeros(ahead.shape, dtype=self.kind, device=self.device).masked_fill_(
            ahead, torch.finfo(self.kind).min
        )
