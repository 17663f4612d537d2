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
    """The rows from `offset` on, at most `limit`; none beyond the end. Raises ToolError for what is negative."""
    if offset < 0 or limit < 0:
        raise ToolError("offset and limit must not be negative")
    return rows[offset : offset + limit]


def extent(rows: Sequence[object], offset: int, limit: int) -> Extent:
    """Where that part lies."""
    return Extent(range=(offset, offset + len(part(rows, offset, limit))), total=len(rows))
