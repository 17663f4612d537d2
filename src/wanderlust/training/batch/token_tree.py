"""Samples to token trees: prefixes that rollouts of a group share are computed once, forwards and backwards.

A row holds a tree of tokens in the order of a depth-first walk. Each token attends to those on its way from the root
and stands at its depth, so hidden states are those of the sequences read one by one (to rounding).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from wanderlust.errors import PolicyFailure, boundary
from wanderlust.policies.local.rows import common_prefix_length
from wanderlust.training.batch.collate import (
    Batch,
    ModelInput,
    collate,
    expand_to_tokens,
    hidden_states,
    microbatches,
    row_input,
)
from wanderlust.training.batch.samples import Sample
from wanderlust.training.losses import PolicyLoss

ROW_TOKENS = 1024
"""A row is full with so many: attention's work grows with the square."""
MIN_SHARED_TOKENS = 16
"""Samples that begin with at least so many equal tokens go into one row."""
TREE_PADDING_TOKENS = 512
"""Tokens of padding that cost more than another batch."""
TREE_LOGPROB_TOLERANCE = 1e-3
"""Largest difference of hidden states in the trial."""


@dataclass(slots=True)
class TokenTree:
    """One row."""

    samples: list[Sample] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    paths: list[list[int]] = field(default_factory=list)
    """Of every sample, the place of each of its tokens in the row."""

    def shared_length(self, sample: Sample) -> int:
        """How many tokens of the sample the row has already, where the last one went."""
        return common_prefix_length(self.samples[-1].ids, sample.ids) if self.samples else 0

    def add(self, sample: Sample, shared: int) -> None:
        """Grow by the tokens after the first `shared` ones, which the row has; samples come in lexicographic order."""
        path = self.paths[-1][:shared] if shared else []
        path += range(len(self.ids), len(self.ids) + len(sample.ids) - shared)
        self.ids += sample.ids[shared:]
        self.depths += range(shared, len(sample.ids))
        self.samples.append(sample)
        self.paths.append(path)

    def last_below(self) -> list[int]:
        """Of each token, the last place of those whose way leads through it: they follow it without a gap."""
        last = [*range(len(self.ids))]
        for path in self.paths:
            for place in path:
                last[place] = path[-1]
        return last


def prefix_trees(samples: Sequence[Sample]) -> list[TokenTree]:
    """Every sample in one tree, together with those that begin like it; depends on the samples alone."""
    out: list[TokenTree] = []
    for sample in sorted(samples, key=lambda s: s.ids):
        shared = out[-1].shared_length(sample) if out else 0
        if not out or shared < MIN_SHARED_TOKENS or len(out[-1].ids) + len(sample.ids) - shared > ROW_TOKENS:
            out.append(TokenTree())
            shared = 0
        out[-1].add(sample, shared)
    return out


def prefix_tree_batches(samples: Sequence[Sample], loss: PolicyLoss, *, size: int) -> Iterator[Batch]:
    """Trees of alike sizes, shortest first, for one pass each: at most `size` samples where trees are small enough.

    Samples that share an episode's ratio have to be in one batch: then all are read in rows.
    """
    if any(s.episode >= 0 for s in samples):
        yield from microbatches(samples, loss, size=size)
        return
    batch: list[TokenTree] = []
    for tree in sorted(prefix_trees([s for s in samples if s.ids]), key=lambda t: len(t.ids)):
        padding = len(batch) * len(tree.ids) - sum(len(t.ids) for t in batch)
        if batch and (sum(len(t.samples) for t in [*batch, tree]) > size or padding > TREE_PADDING_TOKENS):
            yield collate([s for t in batch for s in t.samples], loss, tree_input(batch))
            batch = []
        batch.append(tree)
    if batch:
        yield collate([s for t in batch for s in t.samples], loss, tree_input(batch))


def tree_input(batch: Sequence[TokenTree], *, pad: int = 0) -> ModelInput:
    """One row per tree; trained tokens in the order of the trees, their samples, and the samples' tokens."""
    longest = max(len(tree.ids) for tree in batch)
    row = torch.arange(longest)
    last = torch.tensor([[*tree.last_below(), *range(len(tree.ids), longest)] for tree in batch])[:, None]
    wanted = [
        number * longest + path[i - 1]
        for number, tree in enumerate(batch)
        for sample, path in zip(tree.samples, tree.paths, strict=True)
        for i in sample.trained_positions
    ]
    places, back = torch.unique(torch.tensor(wanted, dtype=torch.long), return_inverse=True)
    return ModelInput(
        ids=torch.tensor([t.ids + [pad] * (longest - len(t.ids)) for t in batch]),
        positions=places,
        position_of_token=back,
        position_ids=torch.tensor([t.depths + [0] * (longest - len(t.ids)) for t in batch]),
        attention_mask=((row <= row[:, None]) & (row[:, None] <= last))[:, None],
    )


@torch.no_grad()
def supports_trees(model: Any) -> bool:
    """Whether the model reads trees as it reads rows: tried on three short siblings.

    Models with windows or convolutions do not; those whose window is longer than the trial are told by their config.
    """
    config = model.config
    if getattr(config, "sliding_window", None) or getattr(config, "layer_types", None) not in (
        None,
        ["full_attention"] * config.num_hidden_layers,
    ):
        return False
    top = min(int(config.vocab_size), 64)
    siblings = [
        [n % top for n in (*range(MIN_SHARED_TOKENS), *tail)] for tail in ((20, 21, 22), (20, 30), (40, 41, 42, 43))
    ]
    samples = [Sample(ids=ids, mask=[n >= MIN_SHARED_TOKENS for n in range(len(ids))]) for ids in siblings]
    (tree,) = prefix_trees(samples)
    try:
        with boundary(PolicyFailure):
            rows, branches = (
                expand_to_tokens(hidden_states(model.base_model, r), r)
                for r in (row_input(tree.samples), tree_input([tree]))
            )
    except PolicyFailure:  # a model that takes no mask of its own making
        return False
    rounding = torch.finfo(rows.dtype).eps
    if rounding > TREE_LOGPROB_TOLERANCE:  # single numbers are apart by as much as many layers make of it
        return bool((rows - branches).float().norm() <= 16 * rounding * rows.float().norm())
    return bool(torch.allclose(rows, branches, rtol=TREE_LOGPROB_TOLERANCE, atol=TREE_LOGPROB_TOLERANCE))
