"""The table of a run's rollouts: filtered, sorted by any column, a page at a time."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import zstandard

from wanderlust.core.errors import StoreError, UsageError
from wanderlust.rollout.filters import Condition, Field, compiled
from wanderlust.rollout.reader import COLUMN_OF, COLUMNS, Row, RunReader

TEXTS = ("stage", "env", "task", "status", "stop")
FIELDS = {name: Field(column=f"+{column}", text=name in TEXTS) for name, column in COLUMN_OF.items()}
"""What filters and orders may name: the fields of Row. The sign keeps SQLite from looking half a million rows up one by
one because an index knows one of the columns: reading the narrow index through takes a tenth of a second a million."""
PACKED_BYTES, GLANCED_BYTES = 64 * 2**10, 512 * 2**10
"""Records larger than this, packed and unpacked, are not opened for a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """By a column, and by id among equals; missing values come last."""

    column: str = "id"
    falling: bool = False

    @classmethod
    def of(cls, text: str) -> Order:
        """`reward`, or `-reward` when it falls. Raises UsageError for anything but a field of Row."""
        name = text.removeprefix("-")
        if name not in FIELDS:
            raise UsageError(f"cannot sort by {name!r}; there are {', '.join(FIELDS)}")
        return cls(column=COLUMN_OF[name], falling=text.startswith("-"))

    @property
    def sql(self) -> str:
        """What goes behind `order by`."""
        way = "desc" if self.falling else "asc"
        return f"{self.column} {way}" if self.column == "id" else f"{self.column} {way} nulls last, id"


def condition(text: str) -> Condition:
    """A filter over the fields of Row. Raises FilterError."""
    return compiled(text, FIELDS)


def count(reader: RunReader, where: Condition) -> int:
    """How many rows there are."""
    ((found,),) = reader.select(f"select count(*) from rollouts where {where.sql}", *where.values)
    return int(found)


def page(reader: RunReader, where: Condition, order: Order, *, offset: int = 0, limit: int = 200) -> list[Row]:
    """Rows without payload, in order."""
    sql = f"select {COLUMNS} from rollouts where {where.sql} order by {order.sql} limit ? offset ?"
    return [reader.row(found) for found in reader.select(sql, *where.values, limit, offset)]


def ids(reader: RunReader, where: Condition, order: Order) -> array[int]:
    """All ids in order, eight bytes each."""
    out = array("q")
    sql = f"select id from rollouts where {where.sql} order by {order.sql}"
    for some in reader.each(sql, *where.values):
        out.extend([id for (id,) in some])
    return out


def rows_of(reader: RunReader, wanted: Sequence[int]) -> list[Row]:
    """The rows of these ids, in their order; those that are not there any more are left out."""
    marks = ", ".join("?" * len(wanted))
    found = reader.select(f"select {COLUMNS} from rollouts where id in ({marks})", *wanted)
    rows = {values[0]: reader.row(values) for values in found}
    return [rows[id] for id in wanted if id in rows]


def neighbours(reader: RunReader, id: int) -> tuple[int | None, int | None]:
    """The rollouts before and after this one, by id."""
    sql = "select (select max(id) from rollouts where id < ?), (select min(id) from rollouts where id > ?)"
    ((before, after),) = reader.select(sql, id, id)
    return before, after


class _Said(msgspec.Struct):
    content: str


class _Turn(msgspec.Struct):
    action: _Said


class _Seat(msgspec.Struct):
    turns: list[_Turn]


class _Asked(msgspec.Struct):
    answer: object = None


class _Record(msgspec.Struct):
    """As much of a stored rollout as a list shows."""

    task: _Asked
    trajectories: list[_Seat]


_decoder = msgspec.msgpack.Decoder(_Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """What a list shows of a record."""

    answer: str | None
    """The last thing that was said in it."""
    target: object
    """`Task.answer`."""


def glances(reader: RunReader, ids: Sequence[int]) -> dict[int, Glance]:
    """By id; large and damaged records are left out."""
    marks = ", ".join("?" * len(ids))
    sql = f"select id, dictionary, payload from rollouts where id in ({marks}) and length(payload) <= {PACKED_BYTES}"
    out = {}
    for id, dictionary, payload in reader.select(sql, *ids):
        try:
            if zstandard.frame_content_size(payload) > GLANCED_BYTES:
                continue
            record = _decoder.decode(reader.record(payload, dictionary))
        except (StoreError, msgspec.MsgspecError, zstandard.ZstdError):  # whoever opens it is told
            continue
        turns = [turn for seat in record.trajectories for turn in seat.turns[-1:]]
        out[id] = Glance(answer=turns[-1].action.content if turns else None, target=record.task.answer)
    return out
