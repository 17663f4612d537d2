"""Pages of a table that is filtered and sorted: quick at any place of a million rows.

The first pages are asked of the store as they are. For those far behind, the stretch around them is put in order, and
kept while nothing is written, or for some seconds where something is.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from wanderlust.rollout.filters import Condition
from wanderlust.rollout.reader import Row, RunReader
from wanderlust.rollout.stretch import Stretch, Table
from wanderlust.rollout.table import Order, count, page, rows_of

NEAR, KEPT, FRESH = 2000, 4, 10.0
"""Rows that are asked of the store directly; tables that are known; seconds that a stretch is good for while a run
writes."""


@dataclass(slots=True)
class _Kept:
    """What is known of one table."""

    stamp: object = None
    total: int = 0
    stretch: Stretch | None = None
    since: float = 0.0
    lock: Lock = field(default_factory=Lock)


class Orders:
    """Of all runs; safe to ask from several threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Path, str, tuple[object, ...], str], _Kept] = OrderedDict()
        self._lock = Lock()

    def page(
        self, reader: RunReader, where: Condition, order: Order, *, stamp: object, offset: int, limit: int
    ) -> tuple[int, list[Row]]:
        """How many rows there are, and those of the page; `stamp` changes whenever the store does."""
        kept = self._of(reader.path, where, order)
        near = order.column == "id" or offset + limit <= NEAR
        with kept.lock, ThreadPoolExecutor(1) as beside:
            if kept.stamp != stamp and (kept.stretch is None or time.monotonic() - kept.since > FRESH):
                kept.stamp, kept.stretch = stamp, None
                counted = beside.submit(_counted, reader.path, where)  # on another core, without the interpreter's lock
                rows = page(reader, where, order, offset=offset, limit=limit) if near else []
                kept.total = counted.result()
                if near:
                    return kept.total, rows
            if near:
                return kept.total, page(reader, where, order, offset=offset, limit=limit)
            if kept.stretch is None or not kept.stretch.has(offset, limit):
                table = Table(reader=reader, where=where, order=order, total=kept.total)
                kept.stretch, kept.since = table.around(offset, limit, beside), time.monotonic()
            found = kept.stretch.page(offset, limit)
        return kept.total, rows_of(reader, found)

    def _of(self, path: Path, where: Condition, order: Order) -> _Kept:
        key = path, where.sql, where.values, order.sql
        with self._lock:
            kept = self._kept.setdefault(key, _Kept())
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return kept


def _counted(path: Path, where: Condition) -> int:
    with RunReader(path) as reader:
        return count(reader, where)
