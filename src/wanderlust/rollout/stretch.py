"""A place far behind in a sorted table, found without sorting the table.

Some thousand rows are drawn and sorted: they say between which two of them the place must lie. What comes before the
one is counted, what lies between both is sorted, and whether the place is among it is then known, not guessed.
"""

from __future__ import annotations

from array import array
from concurrent.futures import Executor
from dataclasses import dataclass
from math import ceil, sqrt
from random import Random
from typing import Any, TypeAlias

from wanderlust.rollout.filters import Condition
from wanderlust.rollout.reader import RunReader
from wanderlust.rollout.table import Order, count, ids

Key: TypeAlias = tuple[Any, int]
"""A row's value in the column, and its id."""
Sql: TypeAlias = tuple[str, tuple[str | int | float, ...]]

SORTED, DRAWN, LOOKED_UP, SPREADS = 50_000, 4_000, 40_000, 4.5
"""Rows that are sorted as a whole; rows drawn, and looked up for them at most where a filter lets few through; standard
deviations that the drawn may be off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Some of a table's ids, as they follow each other."""

    first: int
    """Rows before them."""
    ids: array[int]
    ends: bool
    """Whether nothing comes after them."""

    def has(self, offset: int, limit: int) -> bool:
        """Whether that page lies within."""
        last = self.first + len(self.ids)
        return self.first <= offset and (self.ends or offset + limit <= last)

    def page(self, offset: int, limit: int) -> array[int]:
        """The ids of a page that lies within."""
        return self.ids[offset - self.first : offset - self.first + limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A filtered and sorted table of about `total` rows."""

    reader: RunReader
    where: Condition
    order: Order
    total: int

    def around(self, offset: int, limit: int, beside: Executor) -> Stretch:
        """A stretch that has that page. `beside` counts meanwhile."""
        ends = self._ends(offset, limit) if self.total > SORTED else None
        if ends is not None:
            low, high = ends
            before = beside.submit(self._before, low)
            found = ids(self.reader, self._between(low, high), self.order)
            stretch = Stretch(first=before.result(), ids=found, ends=high is None)
            if stretch.has(offset, limit):
                return stretch
        return Stretch(first=0, ids=ids(self.reader, self.where, self.order), ends=True)

    def _ends(self, offset: int, limit: int) -> tuple[Key | None, Key | None] | None:
        """Rows before and after the page in all likelihood, None for the table's own ends; None when too few were
        drawn."""
        drawn = self._drawn(f"{self.total}/{offset}")
        if len(drawn) < DRAWN // 8:
            return None
        share = min(offset / self.total, 1.0)
        off = SPREADS * sqrt(len(drawn) * max(share * (1 - share), 1 / len(drawn))) + 1
        low, high = int(share * len(drawn) - off), ceil((share + limit / self.total) * len(drawn) + off)
        return (drawn[low] if low > 0 else None), (drawn[high] if high < len(drawn) else None)

    def _drawn(self, seed: str) -> list[Key]:
        """Some thousand rows, in order."""
        ((newest,),) = self.reader.select("select coalesce(max(id), 0) from rollouts")
        most = min(newest, LOOKED_UP, DRAWN * newest // self.total)
        looked = Random(seed).sample(range(1, newest + 1), most)
        marks, order = ", ".join("?" * len(looked)), self.order
        sql = f"select {order.column}, id from rollouts where id in ({marks}) and {self.where.sql} order by {order.sql}"
        return [(value, id) for value, id in self.reader.select(sql, *looked, *self.where.values)]

    def _before(self, key: Key | None) -> int:
        """Rows that come before `key`."""
        if key is None:
            return 0
        with RunReader(self.reader.path) as other:  # on another core, without the interpreter's lock
            return count(other, _and(self.where, *_upto(self.order, key, "<")))

    def _between(self, low: Key | None, high: Key | None) -> Condition:
        """The condition, and from `low` on, and up to `high`."""
        where = self.where if low is None else _and(self.where, *_from(self.order, low))
        return where if high is None else _and(where, *_upto(self.order, high, "<="))


def _and(where: Condition, sql: str, values: tuple[str | int | float, ...]) -> Condition:
    return Condition(sql=f"({where.sql}) and ({sql})", values=(*where.values, *values))


def _upto(order: Order, key: Key, sign: str) -> Sql:
    """Rows before `key`, and it too where the sign says so; most rows are decided by their first comparison."""
    column, (value, id) = f"+{order.column}", key
    if value is None:  # missing values come last
        return f"{column} is not null or +id {sign} ?", (id,)
    less = ">" if order.falling else "<"
    return f"{column} {less}= ? and ({column} {less} ? or +id {sign} ?)", (value, value, id)


def _from(order: Order, key: Key) -> Sql:
    """`key`, and the rows after it."""
    column, (value, id) = f"+{order.column}", key
    if value is None:
        return f"{column} is null and +id >= ?", (id,)
    more = "<" if order.falling else ">"
    return f"{column} {more}= ? and ({column} {more} ? or +id >= ?) or {column} is null", (value, value, id)
