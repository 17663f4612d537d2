"""Samples to packed lines: one sequence behind the other without padding, each looking at itself alone.

Our own pass over Llamas reads a beginning that samples have in common once: later ones look at it where it stands.
`transformers` reads every sample whole, and keeps them apart by their positions, which begin at 0 again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from wanderlust.errors import PolicyFailure, boundary
from wanderlust.policies.local.fast_llama import Attend, FastLlama
from wanderlust.policies.local.products import missing_rows
from wanderlust.policies.local.rows import common_prefix_length
from wanderlust.training.batch.collate import ModelInput, episode_units, hidden_states, row_input
from wanderlust.training.batch.samples import Sample
from wanderlust.training.batch.token_tree import MIN_SHARED_TOKENS

PACKING_TOLERANCE = 1e-4
"""Largest difference of hidden states in the trial, as a share of their size; at least four times the rounding."""


def packed_lines(samples: Sequence[Sample], *, tokens: int, shares: bool, size: int = 0) -> Iterator[list[Sample]]:
    """The samples of each line, in the order that `packed_input` takes; at least one a line.

    A line has about `tokens` tokens, or where that is 0 at most `size` samples. Samples that begin alike follow each
    other, and those of one episode are in one line. With `shares` a common beginning counts once.
    """
    line: list[Sample] = []
    filled = 0
    units = [sorted(unit, key=lambda sample: sample.ids) for unit in episode_units(samples)]
    for unit in sorted(units, key=lambda unit: unit[0].ids):
        new = sum(len(s.ids) - 1 for s in unit)
        if shares:
            new -= sum(_shared(one, other) for one, other in pairwise([*line[-1:], *unit]))
        if line and (filled + new > tokens if tokens else len(line) + len(unit) > size):
            yield sorted(line, key=lambda sample: sample.ids)
            new += _shared(line[-1], unit[0]) if shares else 0
            line, filled = [], 0
        line, filled = line + unit, filled + new
    if line:
        yield sorted(line, key=lambda sample: sample.ids)


def _shared(one: Sample, other: Sample) -> int:
    """Tokens at the beginning that are read once for both; the last token of a sample is not read."""
    common = min(common_prefix_length(one.ids, other.ids), len(one.ids) - 1, len(other.ids) - 1)
    return common if common >= MIN_SHARED_TOKENS else 0


def packed_input(samples: Sequence[Sample], *, shares: bool) -> ModelInput:
    """One line of the samples, which come in lexicographic order; trained tokens in their order."""
    shared = [0, *(_shared(*pair) if shares else 0 for pair in pairwise(samples))]
    new = [len(s.ids) - 1 - common for s, common in zip(samples, shared, strict=True)]
    order = sorted((n for n in range(len(samples)) if new[n]), key=lambda n: (new[n], shared[n]))  # alike go together
    starts = dict(zip(order, accumulate((new[n] for n in order), initial=0), strict=False))
    paths: list[list[int]] = []
    for n in range(len(samples)):
        start = starts.get(n, 0)
        paths.append([*(paths[-1][: shared[n]] if shared[n] else ()), *range(start, start + new[n])])
    wanted = [path[i - 1] for sample, path in zip(samples, paths, strict=True) for i in sample.trained_positions]
    places, back = torch.unique(torch.tensor(wanted, dtype=torch.long), return_inverse=True)
    read = sum(new)
    rest = range(missing_rows(read)) if shares else range(0)  # a sequence of its own that nobody looks at
    return ModelInput(
        ids=torch.tensor([[i for n in order for i in samples[n].ids[shared[n] : -1]] + [0] * len(rest)]),
        positions=places,
        position_of_token=back,
        position_ids=torch.tensor([[p for n in order for p in range(shared[n], shared[n] + new[n])] + [*rest]]),
        segments=(*((new[n], shared[n]) for n in order), *([(len(rest), 0)] if rest else [])),
        keys=torch.tensor([place for n in order for place in paths[n]] + [read + p for p in rest])
        if any(shared)
        else None,
    )


def packed_states(trunk: Any, line: ModelInput) -> Tensor:
    """The last hidden states at the line's places, [U, W], of a model's trunk or of our own pass over it."""
    assert line.segments is not None
    assert line.position_ids is not None
    own = isinstance(trunk, FastLlama)
    device = next((trunk.trunk if own else trunk).parameters()).device
    ids, depths, places = (x.to(device) for x in (line.ids, line.position_ids, line.positions))
    if own:
        attend = _segment_attention(trunk, line.segments, None if line.keys is None else line.keys.to(device))
        own_states: Tensor = trunk.states(ids[0], depths[0], attend, keep=places)
        return own_states
    states: Tensor = trunk(input_ids=ids, position_ids=depths, use_cache=False).last_hidden_state[0]
    return states.index_select(0, places)


def _segment_attention(trunk: FastLlama, segments: Sequence[tuple[int, int]], keys: Tensor | None) -> Attend:
    """Causal attention of every segment over its shared beginning and itself; equal ones in one call."""
    kinds = [(kind, len(list(equal))) for kind, equal in groupby(segments)]
    widths = [count * new for (new, _), count in kinds]
    spans = [count * (new + shared) for (new, shared), count in kinds]
    masks: dict[tuple[int, int], Tensor] = {}

    def mask_of(new: int, shared: int, like: Tensor) -> Tensor:
        if (new, shared) not in masks:
            blind = torch.full((new, new + shared), torch.finfo(like.dtype).min, dtype=like.dtype, device=like.device)
            masks[new, shared] = blind.triu_(shared + 1)
        return masks[new, shared]

    def attend(_: int, projections: Sequence[Tensor]) -> Tensor:
        q, k, v = projections  # [N, heads, D]
        if keys is not None:
            k, v = k.index_select(0, keys), v.index_select(0, keys)
        out = []
        pieces = zip(kinds, *(x.split_with_sizes(n) for x, n in ((q, widths), (k, spans), (v, spans))), strict=True)
        for ((new, shared), count), *parts in pieces:
            queries, own_keys, values = (part.unflatten(0, (count, -1)).transpose(1, 2) for part in parts)
            attended = functional.scaled_dot_product_attention(
                queries,
                own_keys,
                values,
                attn_mask=mask_of(new, shared, q) if shared else None,
                is_causal=not shared,
                enable_gqa=trunk.grouped,
            )
            out.append(attended.transpose(1, 2).flatten(0, 1))
        return torch.cat(out)

    return attend


@torch.no_grad()
def supports_packing(model: Any) -> bool:
    """Whether `transformers` keeps packed sequences of this model apart: tried on three short ones.

    Models with convolutions or states do not; for those with windows it makes the masks itself.
    """
    top = min(int(model.config.vocab_size), 64)
    samples = [
        Sample(ids=[(7 * n + place) % top for n in range(length)], mask=[True] * length, logprobs=[0.0] * length)
        for place, length in enumerate((9, 21, 14))
    ]
    samples.sort(key=lambda sample: sample.ids)
    line = packed_input(samples, shares=False)
    try:
        with boundary(PolicyFailure):
            packed = packed_states(model.base_model, line)[line.position_of_token]
            rows = torch.cat([hidden_states(model.base_model, row_input([sample])) for sample in samples])
    except PolicyFailure:  # a model that takes no positions
        return False
    bound = max(PACKING_TOLERANCE, 4 * torch.finfo(rows.dtype).eps)
    return bool((rows - packed).float().norm() <= bound * rows.float().norm())
