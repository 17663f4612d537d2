"""How a batch is cut into pieces, the same ones whoever works on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from wanderlust.train.samples import Sample

SHARDS = 2
"""Pieces that every batch is cut into, whatever the number of workers; part of what a seed determines."""

T = TypeVar("T")


def dealt(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The shards: a group goes to the one of its number, a sample of no group to that of its place, modulo SHARDS."""
    out: list[list[Sample]] = [[] for _ in range(SHARDS)]
    for place, sample in enumerate(samples):
        out[(sample.group if sample.group >= 0 else place) % SHARDS].append(sample)
    return out


def part_of(samples: Sequence[Sample], part: int, parts: int) -> list[Sample]:
    """One of `parts` equal slices of every shard."""
    return [sample for shard in dealt(samples) for sample in shard[part::parts]] if parts > 1 else list(samples)


def split(numbered: Sequence[T], first: int) -> list[Sequence[T]]:
    """What is numbered from `first`, by shard."""
    return [numbered[(shard - first) % SHARDS :: SHARDS] for shard in range(SHARDS)]


def joined(shards: Sequence[Sequence[T]], first: int) -> list[T]:
    """What `split` cut apart, in order."""
    passing = [iter(shard) for shard in shards]
    return [next(passing[number % SHARDS]) for number in range(first, first + sum(map(len, shards)))]
