"""Parts of long lists, as actions with `offset` and `limit` give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, TypeVar

from wanderlust.tools.errors import ToolError

T = TypeVar("T")


class Extent(TypedDict):
    """Which part of how many."""

    range: tuple[int, int]
    total: int


def part(rows: Sequence[T], offset: int, limit: int) -> Sequence[T]:
    """The rows from `offset` on, at most `limit`. Raises ToolError when there is no such part."""
    if offset < 0 or limit < 0:
        raise ToolError("offset and limit must not be negative")
    if offset > len(rows):
        raise ToolError(f"offset must be at most {len(rows)}, which is how many there are")
    return rows[offset : offset + limit]


def extent(rows: Sequence[object], offset: int, limit: int) -> Extent:
    """Where that part lies."""
    return Extent(range=(offset, min(offset + limit, len(rows))), total=len(rows))
