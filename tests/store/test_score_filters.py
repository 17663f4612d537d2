"""Filters over reward parts and metrics: any name, in the store, in Python, over HTTP and in an export."""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from studios import served
from wanderlust.cli.main import main
from wanderlust.store import queries, scores
from wanderlust.store.filters import FilterError, field_text
from wanderlust.store.queries import RowOrder, RowTable, parse_row_filter, query_ids
from wanderlust.store.run import load_run
from wanderlust.store.store import RunStore
from wanderlust.types import Group, Rollout, Score, Task, Trajectory, Turn, assistant, user

NAMES = [
    "format",
    "constructor",
    "two words",
    "a.b",
    'quo"te',
    "it's",
    "back\\slash",
    "größe",
    "1st",
    "",
    "x; drop",
    "in",
]


def played(sample: int, *seats: Score | None, task: str = "t") -> Rollout:
    turn = Turn(observation=(user("?"),), action=assistant("!"))
    trajectories = [Trajectory(seat=f"seat-{n}", turns=[turn], score=score) for n, score in enumerate(seats)]
    return Rollout(task=Task(id=task), seed=0, sample_index=sample, trajectories=trajectories)


def filled(path: Path) -> Path:
    """A run of five: three scored, one that failed, one whose second seat alone was scored."""
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"recipe": "eval", "config": {"env": "toy"}}))
    parts = [{name: value + at for at, name in enumerate(NAMES)} for value in (0.0, 0.5)]
    rollouts = [
        played(0, Score(reward=0.0, parts=parts[0], metrics={"win": 0.0, "two words": 7.0})),
        played(1, Score(reward=1.0, parts=parts[1], metrics={"win": 1.0})),
        played(2, Score(reward=0.5, parts={"format": 0.25})),
        played(3, None),
        played(4, None, Score(reward=0.5, metrics={"win": 1.0})),
    ]
    with RunStore.create(path / "rollouts.db") as store:
        store.add([Group(task=Task(id="t"), rollouts=rollouts)], stage="eval", step=0, env="toy")
    return path


def found(path: Path, text: str) -> list[int]:
    with closing(load_run(path)) as run:
        return [row.sample_index for row in run.rollouts(text).rows()]


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        ("parts.format < 0.5", [0, 2]),
        ("parts.format == null", [3, 4]),
        ("parts.format != 0.5", [0, 2, 3, 4]),
        ("not (parts.format < 0.5)", [1, 3, 4]),
        ("parts.format in (0, 0.25)", [0, 2]),
        ("parts.format not in (0, 0.25)", [1, 3, 4]),
        ("metrics.win == 1", [1, 4]),
        ("metrics.win == 1 and parts.format >= 0.5 or reward == 0", [0, 1]),
        ("parts.format < reward", [1, 2]),
        ("parts.constructor < parts.format", []),
        ('metrics."two words" > 0 and status == "done"', [0]),
        ("parts.'format' == 0.25", [2]),
    ],
)
def test_a_part_is_a_field(text: str, samples: list[int], tmp_path: Path) -> None:
    assert found(filled(tmp_path / "run"), text) == samples


def test_any_name_can_be_asked_for_as_the_fields_write_it(tmp_path: Path) -> None:
    path = filled(tmp_path / "run")
    for at, name in enumerate(NAMES):
        assert found(path, f"{field_text(f'parts.{name}')} == {at + 0.5}") == [1], name
    assert field_text("parts.a.b") == "parts.a.b"
    assert field_text("parts.two words") == 'parts."two words"'


@pytest.mark.parametrize(
    ("text", "at", "why"),
    [
        ("parts.formt < 1", 0, "no field 'parts.formt'"),
        ("reward < 1 and parts < 1", 15, "no field 'parts'"),
        ("parts.format < 'low'", 15, "parts.format is a number and cannot be compared with a text"),
        ("parts. < 1", 5, "'.' means nothing"),
        ('parts."open < 1', 5, "'.' means nothing"),
        ("parts.format contains 'a'", 0, "contains needs a field of text"),
    ],
)
def test_a_wrong_one_is_one_line_with_the_names(text: str, at: int, why: str, tmp_path: Path) -> None:
    with pytest.raises(FilterError) as wrong:
        found(filled(tmp_path / "run"), text)
    assert wrong.value.at == at
    assert why in str(wrong.value)
    assert 'parts."two words"' in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_many_names_are_bounded_and_the_line_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "MAX_SCORE_NAMES", 100)
    many = Score(reward=0.0, parts={f"p{n}": 1.0 for n in range(150)})
    with RunStore.create(tmp_path / "run.db") as store:
        store.add([Group(task=Task(id="t"), rollouts=[played(0, many)])], stage="eval", step=0)
        assert len(store.score_names()) == 100
        assert store.get(1).trajectories[0].score == many
        with pytest.raises(FilterError) as wrong:
            parse_row_filter("nothing == 1", scores=store.score_names())
    assert str(wrong.value).endswith(" and 56 more")


def test_values_go_with_their_rollouts(tmp_path: Path) -> None:
    path = filled(tmp_path / "run")
    with RunStore.open(path / "rollouts.db") as store:
        again = played(0, Score(reward=0.0, parts={"format": 9.0, "new": 1.0}))
        store.add([Group(task=Task(id="t"), rollouts=[again])], stage="eval", step=0, env="toy")
    assert found(path, "parts.format == 9 and parts.new == 1") == [0]
    assert found(path, "parts.format == 0") == []
    with RunStore.open(path / "rollouts.db") as store:
        store.truncate(["eval"], 0)
        assert store.select("select count(*) from scores") == [(0,)]


def test_a_failed_commit_leaves_no_names(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run.db") as store:
        store._db.execute("create trigger full before insert on scores begin select raise(abort, 'disk full'); end")
        new = Group(task=Task(id="t"), rollouts=[played(0, Score(reward=0.0, parts={"late": 1.0}))])
        with pytest.raises(Exception, match="disk full"):
            store.add([new], stage="eval", step=0)
        store._db.execute("drop trigger full")
        assert store.score_names() == {}
        store.add([new], stage="eval", step=0)
        assert store.score_names() == {"parts.late": 1}


def test_a_store_of_before_has_its_values_once_it_is_written_again(tmp_path: Path) -> None:
    path = filled(tmp_path / "run")
    with closing(sqlite3.connect(path / "rollouts.db")) as db, db:
        db.executescript("drop table scores; drop table score_names")
    db.close()
    with pytest.raises(FilterError, match=r"no field 'parts\.format'"):
        found(path, "parts.format < 1")
    RunStore.open(path / "rollouts.db").close()
    assert found(path, "parts.format < 0.5") == [0, 2]
    assert found(path, "parts.'' == 9") == [0]


def test_pages_of_a_sorted_table_keep_the_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "SORTED", 100)
    monkeypatch.setattr(queries, "DRAWN", 400)
    with RunStore.create(tmp_path / "run.db") as store:
        rollouts = [played(n, Score(reward=n * 7 % 100 / 100, parts={"odd": n % 2})) for n in range(3000)]
        store.add([Group(task=Task(id="t"), rollouts=rollouts)], stage="eval", step=0)
        where, order = parse_row_filter("parts.odd == 1", scores=store.score_names()), RowOrder.of("-reward")
        table = RowTable(reader=store, where=where, order=order, total=1500)
        with ThreadPoolExecutor(1) as executor:
            stretch = table.around(700, 50, executor)
        assert len(stretch.ids) < 1500
        assert stretch.page(700, 50) == query_ids(store, where, order)[700:750]


def test_the_studio_and_its_export_have_the_names(tmp_path: Path) -> None:
    path = filled(tmp_path / "runs/run")
    with served(tmp_path / "runs") as studio:
        fields = {field["name"]: field for field in studio.get("runs/run")["fields"]}
        assert fields["parts.two words"] == {
            "name": "parts.two words", "text": 'parts."two words"', "type": "number", "example": None,
        }  # fmt: skip
        page = studio.get("runs/run/rollouts", filter='parts."two words" == 2.5 and metrics.win == 1')
        assert [row["sample_index"] for row in page["rows"]] == [1]
        refused = studio.ask("/api/runs/run/rollouts?filter=parts.formt%3C1")
        assert (refused.status, refused.json["at"]) == (400, 0)
    with pytest.raises(SystemExit) as end:
        main(["studio", str(path), "--export", str(tmp_path / "site")])
    assert end.value.code == 0
    rows = json.loads((tmp_path / "site/data/run/rows.json").read_text())
    assert rows["columns"][rows["names"].index("parts.format")] == [0, 0.5, 0.25, None, None]
    assert len(rows["names"]) == len(rows["columns"])
