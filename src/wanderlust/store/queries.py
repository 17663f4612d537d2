"""The table of a run's rollouts: filtered, sorted by any column, in pages; quick at any place of a million rows.

The first pages are queried directly. For a later page, some thousand rows are drawn and sorted; two of them bound the
page in all likelihood. The rows before the first are counted, those between both are sorted, which shows for certain
whether the page is among them. This stretch is cached while nothing is written, or else for some seconds.
"""

from __future__ import annotations

import time
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import ceil, sqrt
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any, TypeAlias

import msgspec
import zstandard

from wanderlust.errors import StoreError, UsageError
from wanderlust.store.filters import FilterField, SqlCondition, compile_filter
from wanderlust.store.reader import COLUMN_BY_FIELD, ROW_COLUMNS, RolloutRow, RunReader
from wanderlust.store.scores import SCORES_JOIN

TEXT_COLUMNS = ("stage", "env", "task", "status", "stop_reason")
ROW_FIELDS = {
    name: FilterField(column=f"+{column}", text=name in TEXT_COLUMNS) for name, column in COLUMN_BY_FIELD.items()
}
"""Fields of RolloutRow for filters and orders. The sign keeps SQLite from looking half a million rows up one by one
because an index has one of the columns: a scan of the narrow index takes a tenth of a second a million rows."""
MAX_PREVIEW_PACKED_BYTES, MAX_PREVIEW_BYTES = 64 * 2**10, 512 * 2**10
"""Largest records, packed and unpacked, that are opened for a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrder:
    """By a column, and by id among equals; missing values come last."""

    column: str = "id"
    descending: bool = False

    @classmethod
    def of(cls, text: str) -> RowOrder:
        """Parse `reward`, or `-reward` for descending. Raises UsageError for anything but a field of RolloutRow."""
        name = text.removeprefix("-")
        if name not in ROW_FIELDS:
            raise UsageError(f"cannot sort by {name!r}; there are {', '.join(ROW_FIELDS)}")
        return cls(column=COLUMN_BY_FIELD[name], descending=text.startswith("-"))

    @property
    def sql(self) -> str:
        """The text after `order by`."""
        way = "desc" if self.descending else "asc"
        return f"{self.column} {way}" if self.column == "id" else f"{self.column} {way} nulls last, id"


def parse_row_filter(
    text: str, *, environment: str = ROW_FIELDS["env"].column, scores: Mapping[str, int] | None = None
) -> SqlCondition:
    """Compile a filter over the fields of RolloutRow, and over parts and metrics as `parts.format`. Raises FilterError.

    `environment` is the SQL for `env`, `scores` are the store's `score_names`.
    """
    fields = {**ROW_FIELDS, "env": FilterField(column=environment, text=True)}
    for name, number in (scores or {}).items():
        fields[name] = FilterField(column=f"scores.s{number}", text=False, join=SCORES_JOIN)
    return compile_filter(text, fields)


def count_rows(reader: RunReader, where: SqlCondition) -> int:
    """Count the rows."""
    ((total,),) = reader.select(f"select count(*) from rollouts{where.join} where {where.sql}", *where.values)
    return int(total)


def query_page(
    reader: RunReader, where: SqlCondition, order: RowOrder, *, offset: int = 0, limit: int = 200
) -> list[RolloutRow]:
    """Rows without payload, in order."""
    sql = f"select {ROW_COLUMNS} from rollouts{where.join} where {where.sql} order by {order.sql} limit ? offset ?"
    return [reader.row(values) for values in reader.select(sql, *where.values, limit, offset)]


def query_ids(reader: RunReader, where: SqlCondition, order: RowOrder) -> array[int]:
    """All ids in order, eight bytes each."""
    out = array("q")
    sql = f"select id from rollouts{where.join} where {where.sql} order by {order.sql}"
    for some in reader.iter_select(sql, *where.values):
        out.extend([id for (id,) in some])
    return out


def rows_by_id(reader: RunReader, ids: Sequence[int]) -> list[RolloutRow]:
    """The rows of these ids, in their order, without deleted ones."""
    marks = ", ".join("?" * len(ids))
    selected = reader.select(f"select {ROW_COLUMNS} from rollouts where id in ({marks})", *ids)
    rows = {values[0]: reader.row(values) for values in selected}
    return [rows[id] for id in ids if id in rows]


def neighbours(reader: RunReader, id: int) -> tuple[int | None, int | None]:
    """The rollouts before and after this one, by id."""
    sql = "select (select max(id) from rollouts where id < ?), (select min(id) from rollouts where id > ?)"
    ((before, after),) = reader.select(sql, id, id)
    return before, after


class _PreviewMessage(msgspec.Struct):
    content: str


class _Turn(msgspec.Struct):
    action: _PreviewMessage


class _PreviewTrajectory(msgspec.Struct):
    turns: list[_Turn]


class _PreviewTask(msgspec.Struct):
    answer: object = None


class _Record(msgspec.Struct):
    """The parts of a stored rollout that a list shows."""

    task: _PreviewTask
    trajectories: list[_PreviewTrajectory]


_decoder = msgspec.msgpack.Decoder(_Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The parts of a record that a list shows."""

    answer: str | None
    """Text of its last answer."""
    target: object
    """`Task.answer`."""


def load_previews(reader: RunReader, ids: Sequence[int]) -> dict[int, Preview]:
    """Load previews by id; large and damaged records are left out."""
    where = f"id in ({', '.join('?' * len(ids))}) and length(payload) <= {MAX_PREVIEW_PACKED_BYTES}"
    sql = f"select id, dictionary, payload from rollouts where {where}"
    out = {}
    for id, dictionary, payload in reader.select(sql, *ids):
        try:
            if zstandard.frame_content_size(payload) > MAX_PREVIEW_BYTES:
                continue
            record = _decoder.decode(reader.record(payload, dictionary))
        except (StoreError, msgspec.MsgspecError, zstandard.ZstdError):  # opening the record raises it again
            continue
        turns = [turn for seat in record.trajectories for turn in seat.turns[-1:]]
        out[id] = Preview(answer=turns[-1].action.content if turns else None, target=record.task.answer)
    return out


Key: TypeAlias = tuple[Any, int]
"""A row's value in the column, and its id."""
Sql: TypeAlias = tuple[str, tuple[str | int | float, ...]]

SORTED, DRAWN, LOOKED_UP, SPREADS = 50_000, 4_000, 40_000, 4.5
"""Largest table that is sorted as a whole; rows drawn; most rows looked up for them under a narrow filter; standard
deviations by which the drawn rows may be off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Consecutive ids of a table."""

    first: int
    """Number of rows before them."""
    ids: array[int]
    ends: bool
    """Whether they are the last ones."""

    def has(self, offset: int, limit: int) -> bool:
        """Whether that page lies within."""
        last = self.first + len(self.ids)
        return self.first <= offset and (self.ends or offset + limit <= last)

    def page(self, offset: int, limit: int) -> array[int]:
        """The ids of a page that lies within."""
        return self.ids[offset - self.first : offset - self.first + limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTable:
    """A filtered and sorted table of about `total` rows."""

    reader: RunReader
    where: SqlCondition
    order: RowOrder
    total: int

    def around(self, offset: int, limit: int, beside: Executor) -> Stretch:
        """Query a stretch that has that page. `beside` counts the rows before it meanwhile."""
        ends = self._ends(offset, limit) if self.total > SORTED else None
        if ends is not None:
            (low, high), before, where = ends, None, self.where
            if low is not None:
                before = beside.submit(_counted, self.reader.path, _and(where, *_upto(self.order, low, "<")))
                where = _and(where, *_from(self.order, low))
            if high is not None:
                where = _and(where, *_upto(self.order, high, "<="))
            found = query_ids(self.reader, where, self.order)
            stretch = Stretch(first=before.result() if before else 0, ids=found, ends=high is None)
            if stretch.has(offset, limit):
                return stretch
        return Stretch(first=0, ids=query_ids(self.reader, self.where, self.order), ends=True)

    def _ends(self, offset: int, limit: int) -> tuple[Key | None, Key | None] | None:
        """Rows that bound the page in all likelihood, None for the table's own ends; None when too few were drawn."""
        ((newest,),) = self.reader.select("select coalesce(max(id), 0) from rollouts")
        most = min(newest, LOOKED_UP, DRAWN * newest // self.total)
        ids = Random(f"{self.total}/{offset}").sample(range(1, newest + 1), most)
        marks, order = ", ".join("?" * len(ids)), self.order
        source = f"rollouts{self.where.join} where id in ({marks}) and {self.where.sql}"
        sql = f"select {order.column}, id from {source} order by {order.sql}"
        drawn = [(value, id) for value, id in self.reader.select(sql, *ids, *self.where.values)]
        if len(drawn) < DRAWN // 8:
            return None
        share = min(offset / self.total, 1.0)
        off = SPREADS * sqrt(len(drawn) * max(share * (1 - share), 1 / len(drawn))) + 1
        low, high = int(share * len(drawn) - off), ceil((share + limit / self.total) * len(drawn) + off)
        return (drawn[low] if low > 0 else None), (drawn[high] if high < len(drawn) else None)


def _and(where: SqlCondition, sql: str, values: tuple[str | int | float, ...]) -> SqlCondition:
    return replace(where, sql=f"({where.sql}) and ({sql})", values=(*where.values, *values))


def _upto(order: RowOrder, key: Key, sign: str) -> Sql:
    """Condition for rows before `key` (`<`), or up to it (`<=`); most rows are decided by the first comparison."""
    column, (value, id) = f"+{order.column}", key
    if value is None:  # missing values come last
        return f"{column} is not null or +id {sign} ?", (id,)
    less = ">" if order.descending else "<"
    return f"{column} {less}= ? and ({column} {less} ? or +id {sign} ?)", (value, value, id)


def _from(order: RowOrder, key: Key) -> Sql:
    """Condition for `key` and the rows after it."""
    column, (value, id) = f"+{order.column}", key
    if value is None:
        return f"{column} is null and +id >= ?", (id,)
    more = "<" if order.descending else ">"
    return f"{column} {more}= ? and ({column} {more} ? or +id >= ?) or {column} is null", (value, value, id)


NEAR_ROWS, PAGE_WINDOW_CACHE_ENTRIES, COUNT_FRESH_SECONDS = 2000, 4, 10.0
"""First rows that are queried directly; tables in the cache; seconds that a stretch is used while a run writes."""


@dataclass(slots=True)
class _CachedTable:
    """Total and last stretch of one table."""

    stamp: object = None
    total: int = 0
    window: Stretch | None = None
    since: float = 0.0
    lock: Lock = field(default_factory=Lock)


class SortedPages:
    """Pages of the tables of all runs; safe to use from several threads."""

    def __init__(self) -> None:
        self._cached: OrderedDict[tuple[Path, str, tuple[object, ...], str], _CachedTable] = OrderedDict()
        self._lock = Lock()

    def page(
        self, reader: RunReader, where: SqlCondition, order: RowOrder, *, stamp: object, offset: int, limit: int
    ) -> tuple[int, list[RolloutRow]]:
        """The number of all rows, and the rows of the page; `stamp` changes whenever the store does."""
        key = reader.path, where.sql, where.values, order.sql
        with self._lock:
            cached = self._cached.setdefault(key, _CachedTable())
            self._cached.move_to_end(key)
            while len(self._cached) > PAGE_WINDOW_CACHE_ENTRIES:
                self._cached.popitem(last=False)
        near = order.column == "id" or offset + limit <= NEAR_ROWS
        with cached.lock, ThreadPoolExecutor(1) as executor:
            if cached.stamp != stamp and (
                cached.window is None or time.monotonic() - cached.since > COUNT_FRESH_SECONDS
            ):
                cached.stamp, cached.window = stamp, None
                counted = executor.submit(_counted, reader.path, where)
                rows = query_page(reader, where, order, offset=offset, limit=limit) if near else []
                cached.total = counted.result()
                if near:
                    return cached.total, rows
            if near:
                return cached.total, query_page(reader, where, order, offset=offset, limit=limit)
            if cached.window is None or not cached.window.has(offset, limit):
                table = RowTable(reader=reader, where=where, order=order, total=cached.total)
                cached.window, cached.since = table.around(offset, limit, executor), time.monotonic()
            rows_found = cached.window.page(offset, limit)
        return cached.total, rows_by_id(reader, rows_found)


def _counted(path: Path, where: SqlCondition) -> int:
    """Count rows over a connection of its own, for another thread: SQLite releases the interpreter's lock."""
    with RunReader(path) as reader:
        return count_rows(reader, where)
