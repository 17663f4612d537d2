"""The reading half of the run store, for its writer and for other processes."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields
from itertools import groupby
from math import nan
from pathlib import Path
from typing import Any, Self

from wanderlust.errors import StoreError, one_line
from wanderlust.store.records import Codec, unpack
from wanderlust.store.scores import has_scores
from wanderlust.types import Group, Rollout, Status

STORE_FORMAT, STORE_VERSION = "wanderlust run", 2


class _Connection(sqlite3.Connection):
    """Is closed when nobody holds it any more: a run that was loaded is read for as long as somebody has it."""

    def __del__(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # in another thread, where it ends without
            self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRow:
    """Columns of a rollout that are readable without its record.

    `reward` and `advantage` are those of the first seat that learns.
    """

    id: int
    stage: str
    step: int
    group: int
    """`Group.index`."""
    sample_index: int
    env: str
    task: str
    seed: int
    status: str
    stop_reason: str
    reward: float | None
    advantage: float | None
    turns: int
    tokens_in: int
    tokens_out: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """An event of the run; ids only grow, so a viewer can continue after the last one."""

    id: int
    kind: str
    body: Any


_NAMES = tuple(field.name for field in fields(RolloutRow))
COLUMN_BY_FIELD = {name: name for name in _NAMES} | {"group": "grp", "sample_index": "sibling", "stop_reason": "stop"}
"""The column of each field of RolloutRow."""
ROW_COLUMNS = ", ".join(COLUMN_BY_FIELD.values())
FETCH_ROWS, BUSY_TIMEOUT_SECONDS = 5000, 5.0
"""Rows that are fetched together; seconds that another process's lock is waited for."""
_FULL = "select r.grp, r.id, r.dictionary, r.payload, t.body from rollouts r left join tokens t using (id)"
_STAGES = """with recursive stages(name) as (
    select min(stage) from rollouts union all
    select (select min(stage) from rollouts where stage > name) from stages where name is not null
) select name from stages where name is not null"""
"""`select distinct` by one index lookup for each stage, not for each rollout."""
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")


class RunReader:
    """An open store for queries; a context manager that closes the file.

    Every failure of the file is a StoreError of one line that names it.
    """

    def __init__(self, path: str | Path, *, timeout: float = BUSY_TIMEOUT_SECONDS):
        """Open the file for reading only; another process may be writing it. `timeout`: seconds for a locked one."""
        self.path = Path(path).resolve()
        self._codec = Codec()
        self._db = connect_store(self.path, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._db.close()

    def rollouts(
        self,
        where: Mapping[str, Any] | None = None,
        *,
        order: str = "id",
        limit: int | None = None,
        offset: int = 0,
    ) -> list[RolloutRow]:
        """Rows without payload, e.g. `rollouts({"stage": "rl", "reward <": 0.5}, order="-reward", limit=20)`.

        Keys are fields of RolloutRow, with an operator unless it is `=`; None matches missing values. `order` is a
        field, descending with a minus before it. Raises StoreError for an unknown field or operator.
        """
        tests = []
        for key, value in (where or {}).items():
            name, _, operator = key.partition(" ")
            if (operator or "=") not in _OPERATORS:
                raise StoreError(f"no operator {operator!r} in {key!r}; there are {' '.join(_OPERATORS)}")
            missing = f"is {'not ' if operator == '!=' else ''}null"
            comparison = f"{operator or '='} ?"
            tests.append(f"{_column(name)} {missing if value is None else comparison}")
        by = f"{_column(order.removeprefix('-'))} {'desc' if order.startswith('-') else 'asc'}, id"
        sql = f"select {ROW_COLUMNS} from rollouts where {' and '.join(tests) or 'true'} order by {by} limit ? offset ?"
        values = [value for value in (where or {}).values() if value is not None]
        rows = self.select(sql, *values, -1 if limit is None else limit, offset)
        return [self.row(values) for values in rows]

    def get(self, id: int) -> Rollout:
        """The whole rollout, equal to the one that was added but for the exceptions of `pack`."""
        for _, *stored in self.select(f"{_FULL} where r.id = ?", id):
            return self._unpack(stored)
        raise StoreError(f"{self.path}: no rollout {id}")

    def groups(self, stage: str, step: int) -> list[Group]:
        """The whole groups of one step, by index, their rollouts by sibling."""
        return list(self.iter_groups(stage, step))

    def iter_groups(self, stage: str, step: int) -> Iterator[Group]:
        """Like `groups`, but one is in memory at a time; rows written meanwhile may be missing."""
        with store_errors(self.path):
            sql = f"{_FULL} where r.stage = ? and r.step = ? order by r.grp, r.sibling"
            for index, rows in groupby(self._db.execute(sql, (stage, step)), key=lambda row: row[0]):
                rollouts = [self._unpack(row) for _, *row in rows]
                yield Group(task=rollouts[0].task, rollouts=rollouts, index=index)

    def metrics(self, stage: str, name: str) -> list[tuple[int, float]]:
        """`(step, value)` by step."""
        sql = "select step, value from metrics where stage = ? and name = ? order by step"
        return [(step, nan if value is None else value) for step, value in self.select(sql, stage, name)]

    def metric_names(self, stage: str) -> list[str]:
        """Names of the metrics of a stage."""
        return [name for (name,) in self.select("select distinct name from metrics where stage = ?", stage)]

    def score_names(self) -> dict[str, int]:
        """The column's number of each part (`parts.format`), then of each metric (`metrics.win`).

        Empty for a store that was last written before there were such columns.
        """
        with store_errors(self.path):
            known = has_scores(self._db)
        sql = "select name, number from score_names order by name not like 'parts.%', name"
        return dict(self.select(sql)) if known else {}

    def events(self, after: int = 0) -> list[RunEvent]:
        """Events with an id above `after`, oldest first."""
        rows = self.select("select id, kind, body from events where id > ? order by id", after)
        return [RunEvent(id=id, kind=kind, body=json.loads(body)) for id, kind, body in rows]

    def meta(self) -> dict[str, Any]:
        """All facts about the run, `format` and `version` included."""
        return {key: json.loads(value) for key, value in self.select("select key, value from meta")}

    def stages(self) -> list[str]:
        """Stages that have rollouts or metrics, by name."""
        return [stage for (stage,) in self.select("select stage from metrics union select stage from rollouts")]

    def counts(self) -> dict[str, dict[str, int]]:
        """Number of rollouts by stage and status."""
        # With its sign, a column is not looked up in an index that lacks the others: this one scan is short.
        sql = "select status, count(*) from rollouts where +stage = ? and +status != ? group by +status"
        done, out = str(Status.DONE), dict[str, dict[str, int]]()
        for (stage,) in self.select(_STAGES):
            others = dict(self.select(sql, stage, done))
            ((every,),) = self.select("select count(*) from rollouts where stage = ?", stage)
            counts = {done: every - sum(others.values())} | others
            out[stage] = {status: counts[status] for status in map(str, Status) if counts.get(status)}
        return out

    def select(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a query of this library; all outside data must be in `values`."""
        with store_errors(self.path):
            return self._db.execute(sql, values).fetchall()

    def iter_select(self, sql: str, *values: Any) -> Iterator[list[tuple[Any, ...]]]:
        """Like `select`, some thousand rows at a time, for results that do not fit into memory."""
        with store_errors(self.path):
            cursor = self._db.execute(sql, values)
            while some := cursor.fetchmany(FETCH_ROWS):
                yield some

    @staticmethod
    def row(values: Sequence[Any]) -> RolloutRow:
        """Make the row of these ROW_COLUMNS."""
        return RolloutRow(**dict(zip(_NAMES, values, strict=True)))

    def record(self, payload: bytes, dictionary: int) -> bytes:
        """The msgpack of a stored payload. Raises StoreError when it is damaged."""
        if not self._codec.knows(dictionary):  # a writer may have added it since
            self._load_dictionaries()
        return self._codec.decompress(payload, dictionary)

    def _load_dictionaries(self) -> None:
        for number, body in self.select("select id, body from dictionaries order by id"):
            self._codec.adopt(number, body)

    def _unpack(self, stored: Sequence[Any]) -> Rollout:
        id, dictionary, payload, tokens = stored
        try:
            return unpack(self.record(payload, dictionary), tokens)
        except StoreError as error:
            raise StoreError(f"{self.path}: rollout {id}: {error}") from error


def _column(name: str) -> str:
    if name not in COLUMN_BY_FIELD:
        raise StoreError(f"no field {name!r} in a stored rollout; there are {', '.join(COLUMN_BY_FIELD)}")
    return COLUMN_BY_FIELD[name]


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into StoreErrors of one line."""
    try:
        yield
    except (sqlite3.Error, OverflowError) as error:
        raise StoreError(f"{path}: {one_line(str(error))}") from error


def connect_store(
    path: Path, mode: str = "ro", *, check: bool = False, timeout: float = BUSY_TIMEOUT_SECONDS
) -> sqlite3.Connection:
    """Connect with a store of our format; with `check` every page of it is checked first.

    Raises StoreError when the file is missing, foreign, damaged or of another version; it is not changed then.
    """
    if not path.is_file():
        raise StoreError(f"{path}: there is no run store")
    with store_errors(path):
        place = f"{path.as_uri()}?mode={mode}{_immutable_option(path, mode)}"
        db = sqlite3.connect(place, uri=True, timeout=timeout, factory=_Connection)
    with ExitStack() as failing:
        failing.callback(db.close)
        try:
            meta = dict(db.execute("select key, value from meta where key in ('format', 'version')"))
            verdict = db.execute("pragma quick_check(1)").fetchone()[0] if check else "ok"
        except sqlite3.Error as error:
            detail = "" if "no such table" in str(error) else f", or damaged: {one_line(str(error))}"
            raise StoreError(f"{path}: not a run store{detail}") from error
        if verdict != "ok":
            raise StoreError(f"{path}: damaged: {one_line(verdict)}")
        if meta.get("format") != json.dumps(STORE_FORMAT):
            raise StoreError(f"{path}: not a run store")
        if meta.get("version") != json.dumps(STORE_VERSION):
            raise StoreError(
                f"{path}: has format version {one_line(str(meta.get('version')))}, and this wanderlust reads "
                f"{STORE_VERSION} only: open it with the version that wrote it"
            )
        failing.pop_all()
    return db


def _immutable_option(path: Path, mode: str) -> str:
    """SQLite's option for a folder that cannot be written: otherwise it needs a log beside the file even to read.

    A log that is not empty belongs to a writer, whose index (`-shm`) is there too while it runs.
    """
    if mode != "ro" or os.access(path.parent, os.W_OK) or Path(f"{path}-shm").exists():
        return ""
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        raise StoreError(f"{path}: its newest rollouts lie in {log.name}, and the folder may not be written: copy it")
    return "&immutable=1"
