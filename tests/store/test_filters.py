"""The filter language: it finds what it says, and what means nothing is one line with the place and the fields."""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanderlust.errors import UsageError
from wanderlust.store.filters import FilterError
from wanderlust.store.queries import ROW_FIELDS, RowOrder, parse_row_filter

ROWS = [
    {"task": task, "stop_reason": stop, "reward": reward, "turns": turns}
    for task in ("t1", 'qu"ote', "a'b")
    for stop in ("done", "max_turns")
    for reward in (None, 0.0, 0.5, 1)
    for turns in (0, 3)
]
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def found(text: str) -> list[int]:
    """The places of the rows that SQLite finds."""
    where = parse_row_filter(text)
    with closing(sqlite3.connect(":memory:")) as db, db:
        db.execute(
            "create table rollouts (id integer, task text, stop text, reward real, turns integer, grp int, env text)"
        )
        rows = [(i, *row.values()) for i, row in enumerate(ROWS)]
        db.executemany("insert into rollouts values (?, ?, ?, ?, ?, 0, null)", rows)
        ids = [id for (id,) in db.execute(f"select id from rollouts where {where.sql} order by id", where.values)]
    db.close()
    return ids


@dataclass(frozen=True, slots=True)
class Said:
    """An expression and what it means."""

    text: str
    holds: Callable[[dict[str, Any]], bool]


def compare(name: str, sign: str, value: Any) -> Said:
    def holds(row: dict[str, Any]) -> bool:
        if sign in ("==", "!="):
            return SIGNS[sign](row[name], value)
        return row[name] is not None and SIGNS[sign](row[name], value)

    shown = (
        "null"
        if value is None
        else repr(value)
        if not isinstance(value, str)
        else '"' + value.replace('"', '\\"') + '"'
    )
    return Said(f"{name} {sign} {shown}", holds)


def has(part: str) -> Said:
    return Said(f"task contains '{part}'", lambda row: part in row["task"])


def among(some: list[float]) -> Said:
    return Said(f"reward in ({', '.join(map(str, some))})", lambda row: row["reward"] in some)


numbers = st.sampled_from([0, 0.5, 1, -1, 3, 1e3])
texts = st.sampled_from(["t1", 'qu"ote', "a'b", "done", "e"])
tests = st.one_of(
    st.builds(compare, st.sampled_from(["reward", "turns"]), st.sampled_from([*SIGNS]), numbers),
    st.builds(compare, st.sampled_from(["task", "stop_reason"]), st.sampled_from([*SIGNS]), texts),
    st.builds(compare, st.sampled_from(["task", "reward"]), st.sampled_from(["==", "!="]), st.none()),
    st.builds(has, st.sampled_from(["t", "o", "1"])),
    st.builds(among, st.lists(numbers, min_size=1, max_size=3)),
)  # fmt: skip
expressions = st.recursive(
    tests,
    lambda inner: st.one_of(
        st.builds(lambda a: Said(f"not ({a.text})", lambda row: not a.holds(row)), inner),
        st.builds(lambda a, b: Said(f"({a.text}) and {b.text}", lambda r: a.holds(r) and b.holds(r)), inner, tests),
        st.builds(lambda a, b: Said(f"({a.text} or {b.text})", lambda r: a.holds(r) or b.holds(r)), inner, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=150)
@given(expressions)
def test_what_is_found_is_what_is_said(said: Said) -> None:
    assert found(said.text) == [i for i, row in enumerate(ROWS) if said.holds(row)], said.text


@settings(max_examples=300)
@given(st.text(st.sampled_from("rewadtkn <>=!()'\",.0129-\\\nornotinéxlcs;%_"), max_size=40))
def test_any_text_is_a_filter_or_one_line(text: str) -> None:
    wrong = None
    try:
        found(text)
    except FilterError as error:
        wrong = error
    assert wrong is None or (0 <= wrong.at <= len(text) and "\n" not in str(wrong))


WRONG = {
    "rewerd < 0.2": (0, "no field 'rewerd'"),
    "reward = 0.2": (7, "equal is =="),
    'reward < "low"': (9, "reward is a number and cannot be compared with a text"),
    "env == wordle": (7, "a text needs quotes"),
    "reward < 0.2 and": (16, "a field or a value is missing"),
    "(reward < 0.2": (13, "a closing bracket is missing"),
    "reward < 0.2 env": (13, "where and, or, or the end was expected"),
    "1 == 1": (0, "one side must be a field"),
    "task contains turns": (0, "contains needs a field of text"),
    "reward in 1": (10, "in needs brackets"),
    "turns < null": (8, "null can only be compared"),
    'env == "open': (7, "without its closing quote"),
    "reward; drop table rollouts": (6, "';' means nothing"),
    "(" * 60 + "reward < 1" + ")" * 60: (41, "brackets within brackets"),
    "not " * 100 + "reward < 1": (164, "brackets"),
    "reward < " + "9" * 3000: (2000, "longer than 2000"),
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:20])
def test_a_wrong_filter_names_the_place_and_the_fields(text: str) -> None:
    at, why = WRONG[text]
    with pytest.raises(FilterError) as wrong:
        parse_row_filter(text)
    assert (wrong.value.at, wrong.value.fields) == (at, tuple(ROW_FIELDS))
    assert why in str(wrong.value)
    assert "reward" in str(wrong.value)


def test_nothing_of_the_text_gets_into_the_sql() -> None:
    where = parse_row_filter('task == "x\' or 1=1; --" and group in (1, 2) and seed == 99999999999999999999')
    assert where.values == ("x' or 1=1; --", 1, 2, 99999999999999999999.0)
    assert "or 1=1" not in where.sql
    assert "grp is ?" in where.sql
    with pytest.raises(UsageError, match="cannot sort by 'id; drop'"):
        RowOrder.of("-id; drop")
