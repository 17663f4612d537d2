"""Reward parts and metrics as columns beside the rollouts' table, so that filters find them without opening records.

The table `scores` has a row for each scored rollout and a column for each name (`parts.format`, `metrics.win`); the
values are those of the first scored seat that learns, as the column `reward` is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import msgspec

from wanderlust.errors import StoreError
from wanderlust.types import Rollout

MAX_SCORE_NAMES = 1000
"""Names with a column; further ones stand in the records alone. SQLite allows 2,000 columns."""
SCORES_SCHEMA = """
create table score_names (number integer primary key, name text not null unique);
create table scores (rollout integer primary key references rollouts (id) on delete cascade);
"""
SCORES_JOIN = " indexed by narrow left join scores on scores.rollout = id"
"""Behind `from rollouts`: both tables are read in the order of their ids, a tenth of a second a million rows."""
BACKFILL_ROWS = 5000
"""Rollouts of an older store whose values are written together."""


class _Score(msgspec.Struct):
    parts: dict[str, float] = {}
    metrics: dict[str, float] = {}


class _Trajectory(msgspec.Struct):
    score: _Score | None = None
    trainable: bool = True


class _Record(msgspec.Struct):
    trajectories: list[_Trajectory]

    @property
    def main_trajectory(self) -> _Trajectory | None:
        """As of `Rollout`."""
        learning = [t for t in self.trajectories if t.trainable] or self.trajectories
        return next((t for t in learning if t.score is not None), None)


_decoder = msgspec.msgpack.Decoder(_Record)


def score_values(rollout: Rollout | _Record) -> dict[str, float]:
    """The values of a rollout by name; empty where no seat was scored."""
    scored = rollout.main_trajectory
    if scored is None or scored.score is None:
        return {}
    score = scored.score
    kinds = {"parts": score.parts, "metrics": score.metrics}
    # A lone surrogate, which no encoding has, is written as its escape, as in the record.
    return {
        f"{kind}.{name}".encode(errors="backslashreplace").decode(): float(value)
        for kind, values in kinds.items()
        for name, value in values.items()
    }


def has_scores(db: sqlite3.Connection) -> bool:
    """Whether the store has the table: those of before lack it until they are written again."""
    return bool(db.execute("select 1 from sqlite_master where name = 'scores'").fetchone())


def insert_scores(
    db: sqlite3.Connection, rows: Iterable[tuple[int, Mapping[str, float]]], names: Mapping[str, int]
) -> dict[str, int]:
    """Insert the values of rollouts by id, within a transaction; returns `names` with the new ones among them."""
    numbers = dict(names)
    by_columns: dict[tuple[int, ...], list[tuple[int | float, ...]]] = {}
    for id, values in rows:
        for name in values:
            if name not in numbers and len(numbers) < MAX_SCORE_NAMES:
                numbers[name] = number = len(numbers) + 1
                db.execute("insert into score_names values (?, ?)", (number, name))
                db.execute(f"alter table scores add column s{number} real")
        stored = {numbers[name]: value for name, value in values.items() if name in numbers}
        by_columns.setdefault(tuple(stored), []).append((id, *stored.values()))
    for columns, inserted in by_columns.items():
        into = ", ".join(["rollout", *(f"s{number}" for number in columns)])
        db.executemany(f"insert into scores ({into}) values ({', '.join('?' * (1 + len(columns)))})", inserted)
    return numbers


def backfill_scores(db: sqlite3.Connection, open_record: Callable[[bytes, int], bytes]) -> None:
    """Make the table in a store of before, with the values of its rollouts: all of it or, after an error, nothing."""
    names, last = dict[str, int](), 0
    sql = "select id, dictionary, payload from rollouts where id > ? order by id limit ?"
    with db:
        db.execute("begin")
        for statement in SCORES_SCHEMA.split(";")[:-1]:
            db.execute(statement)
        while some := db.execute(sql, (last, BACKFILL_ROWS)).fetchall():
            last, rows = some[-1][0], dict[int, dict[str, float]]()
            for id, dictionary, payload in some:
                with suppress(StoreError, msgspec.MsgspecError):  # opening the rollout raises it again
                    rows[id] = score_values(_decoder.decode(open_record(payload, dictionary)))
            names = insert_scores(db, rows.items(), names)
