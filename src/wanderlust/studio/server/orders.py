"""Pages of a table that is filtered and sorted: quick at any place of a million rows.

The first pages are asked of the store as they are. For those far behind, the ids are put in order once (a second for a
million rows, eight bytes each) and kept while nothing is written, or for some seconds where something is.
"""

from __future__ import annotations

import time
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread

from wanderlust.core.errors import StoreError
from wanderlust.rollout.filters import Condition
from wanderlust.rollout.reader import Row, RunReader
from wanderlust.rollout.table import Order, count, ids, page, rows_of

NEAR, KEPT, FRESH = 2000, 4, 10.0
"""Rows that are asked of the store directly; orders that are kept; seconds that one is good for while a run writes."""


@dataclass(slots=True)
class _Kept:
    """What is known of one table; its lock is held while the rows are counted."""

    where: Condition
    order: Order
    stamp: object = None
    total: int = 0
    ids: array[int] | None = None
    since: float = 0.0
    lock: Lock = field(default_factory=Lock)
    making: Lock = field(default_factory=Lock)
    """Held while the ids are put in order; near pages do not wait for it."""


class Orders:
    """Of all runs; safe to ask from several threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Path, str, tuple[object, ...], str], _Kept] = OrderedDict()
        self._lock, self._ahead = Lock(), Lock()

    def page(
        self, reader: RunReader, where: Condition, order: Order, *, stamp: object, offset: int, limit: int
    ) -> tuple[int, list[Row]]:
        """How many rows there are, and those of the page; `stamp` changes whenever the store does."""
        kept = self._of(reader.path, where, order)
        near = order.column == "id" or offset + limit <= NEAR
        with kept.lock, ThreadPoolExecutor(1) as beside:
            if kept.stamp != stamp and (kept.ids is None or time.monotonic() - kept.since > FRESH):
                kept.stamp, kept.ids = stamp, None
                counted = beside.submit(_counted, reader.path, where)  # on another core, without the interpreter's lock
                rows = page(reader, where, order, offset=offset, limit=limit) if near else []
                kept.total = counted.result()
            elif kept.ids is None and near:
                rows = page(reader, where, order, offset=offset, limit=limit)
            known = kept.ids
        if known is None and near:
            if order.column != "id" and kept.total > NEAR:
                Thread(target=self._prepare, args=(reader.path, kept), daemon=True).start()
            return kept.total, rows
        return kept.total, rows_of(reader, _ordered(reader, kept)[offset : offset + limit])

    def _prepare(self, path: Path, kept: _Kept) -> None:
        """Whoever sorts a table will scroll in it; one after the other."""
        with self._ahead:
            try:
                with RunReader(path) as reader:
                    _ordered(reader, kept)
            except StoreError:  # whoever asks for it is told
                return

    def _of(self, path: Path, where: Condition, order: Order) -> _Kept:
        key = path, where.sql, where.values, order.sql
        with self._lock:
            kept = self._kept.setdefault(key, _Kept(where, order))
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return kept


def _counted(path: Path, where: Condition) -> int:
    with RunReader(path) as reader:
        return count(reader, where)


def _ordered(reader: RunReader, kept: _Kept) -> Sequence[int]:
    """The ids in order, put so if nobody has."""
    with kept.making:
        found = kept.ids
        if found is None:
            found = kept.ids = ids(reader, kept.where, kept.order)
            kept.total, kept.since = len(found), time.monotonic()
        return found
