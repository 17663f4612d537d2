"""A student is made of a teacher's right answers and examined beside it; the same call goes on where it stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from wanderlust import Rubric, Scripted, SingleTurnEnvironment, Task, exact, user
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.evals.statistics import Estimate
from wanderlust.policies.base import TokenPrices
from wanderlust.runner.progress import NullLogger
from wanderlust.store.run import load_run
from wanderlust_data import DistilConfig, Teacher, distil
from wanderlust_data.distillation_report import AFTER_SFT, STUDENT, TEACHER, Distillation, Side

pytestmark = pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
COLOURS = {"sky": "blue", "grass": "green", "coal": "black", "snow": "white"}
SMALL = {"fresh_width": 32, "fresh_layers": 1, "batch_tokens": 300, "epochs": 12}
SHORT = {"steps": 2, "tasks_per_step": 8, "group_size": 4, "max_tokens": 4, "eval_every": 2, "eval_tasks": 4}
CONFIG = DistilConfig(questions=60, exam=24, sft=SMALL, rl=SHORT)


def asked(first, last):
    return [
        Task(id=f"{thing}-{n}", prompt=(user(f"colour of {thing} number {n}"),), answer=colour)
        for n in range(first, last)
        for thing, colour in COLOURS.items()
    ]


class Colours(SingleTurnEnvironment):
    def __init__(self):
        super().__init__({"train": asked(0, 20), "eval": asked(20, 30)}, rubric=Rubric(exact()))


def guesser(messages, rng):
    right = COLOURS[messages[0].content.split()[2]]
    return right if rng.random() < 0.5 else rng.choice(["red", "pink"])


class Interruption(NullLogger):
    """Stops the call at the first step of a stage."""

    def __init__(self, stage):
        self.stage = stage

    def log_step(self, stage, step, *, of, metrics):
        if stage == self.stage:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A distillation that nobody interrupted."""
    out = tmp_path_factory.mktemp("whole") / "out"
    return distil(Colours(), Scripted(guesser), config=CONFIG, out=out, workers=1, progress=False)


def test_a_student_is_better_than_a_teacher_that_is_right_half_the_time(whole):
    report = whole
    teacher, student = report[TEACHER], report[STUDENT]
    assert student.reward.value > teacher.reward.value + 0.2
    assert student.over_teacher.value == pytest.approx(student.reward.value - teacher.reward.value)
    assert [side.priced_by for side in report.sides] == ["processor time"] * 3
    assert student.tokens_out > 0
    assert student.latency > 0
    rows = [json.loads(line) for line in (report.path / "data/sft.jsonl").read_text().splitlines()]
    assert len(rows) == report.rows
    assert {row["reward"] for row in rows} == {1.0}
    assert {path.name for path in report.path.iterdir()} >= {"report.json", "report.md", "distil.png", "sft", "rl"}
    assert json.loads((report.path / "report.json").read_text())["rows"] == report.rows
    with load_run(report.path / "exams/exam-student") as run:
        assert {one.task.id for one in run.rollouts}.isdisjoint(task.id for task in asked(0, 20))


def test_the_same_call_goes_on_and_says_that_costs_are_a_lower_bound(whole, tmp_path):
    def call(logger=False):
        return distil(Colours(), Scripted(guesser), config=CONFIG, out=tmp_path, workers=1, progress=logger)

    with pytest.raises(KeyboardInterrupt):
        call(Interruption("rl"))
    assert not (tmp_path / "report.json").exists()
    report = call()
    assert report.at_least
    assert "at least" in " ".join(report.findings)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("rollouts.db")}
    assert call().as_dict() == report.as_dict()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("rollouts.db")} == before
    assert [side.reward for side in whole.sides] == [side.reward for side in report.sides]
    assert not whole.at_least


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"questions": 61}, "questions was 60 and is 61"),
        ({"sft": SMALL | {"epochs": 3}}, "sft was"),
    ],
)
def test_another_distillation_in_the_folder_is_refused(tmp_path, changes, line):
    with pytest.raises(KeyboardInterrupt):
        distil(Colours(), Scripted(guesser), config=CONFIG, out=tmp_path, progress=Interruption("evaluate"))
    with pytest.raises(UsageError, match=line):
        distil(Colours(), Scripted(guesser), config=replace(CONFIG, **changes), out=tmp_path, progress=False)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"sft": {"epoch": 3}}, "there is no setting 'epoch'; did you mean epochs"),
        ({"rl": {"steps": 0}}, "steps is 0, and must be at least 1"),
        ({"exam": 0}, "must be at least 1"),
    ],
)
def test_wrong_settings_are_refused_before_the_teacher_is_asked(settings, line):
    with pytest.raises(UsageError, match=line):
        DistilConfig(**settings)


def test_a_teacher_that_is_never_right_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"nothing is left: .* answers left 0 rows"):
        distil(Colours(), Scripted(["red"]), config=CONFIG, out=tmp_path, progress=False)


def side(name, dollars, priced_by="processor time"):
    reward = Estimate(value=0.5, low=0.4, high=0.6, count=9, clusters=9)
    return Side(
        name=name,
        policy="x",
        reward=reward,
        over_teacher=None if name == TEACHER else reward,
        failed=0,
        latency=1.0,
        tokens_in=9.0,
        tokens_out=1.0,
        processor_seconds=0.1,
        dollars=dollars,
        priced_by=priced_by,
    )


def report_of(teacher, student, making):
    return Distillation(
        path=Path("x"),
        student=Path("x/rl"),
        tasks=9,
        rows=9,
        sides=(side(TEACHER, teacher, "tokens"), side(AFTER_SFT, student), side(STUDENT, student)),
        making=making,
        at_least=False,
        core_price=0.04,
    )


def test_the_break_even_is_the_making_over_the_saving():
    report = report_of(2.0, 0.5, {"answers": 2.0, "sft": 0.5, "rl": 0.5})
    assert (report.making_dollars, report.cost_ratio, report.break_even) == (3.0, 0.25, 2000.0)
    assert "The student costs 1/4 of the teacher." in report.findings
    assert any("paid back after 2,000 tasks" in line for line in report.findings)
    assert report_of(0.5, 2.0, {"answers": 1.0}).break_even is None
    assert report_of(None, 2.0, {"answers": None, "sft": 1.0}).making_dollars is None


def test_a_priced_teacher_costs_its_tokens(tmp_path):
    config = replace(CONFIG, prices=TokenPrices(input=1.0, output=2.0))
    report = distil(
        Colours(), Teacher(policy=Scripted(guesser)), config=config, out=tmp_path, progress=False, workers=1
    )
    assert report[TEACHER].priced_by == "tokens"
    assert report.making["answers"] == report[TEACHER].dollars == 0.0  # a script reports no tokens


FILE = """
from wanderlust import Rubric, SingleTurnEnvironment, Task, exact, user

COLOURS = {"sky": "blue", "coal": "black"}

class Colours(SingleTurnEnvironment):
    rubric = Rubric(exact())

    def tasks(self, split="train"):
        numbers = range(20) if split == "train" else range(20, 30)
        return [
            Task(id=f"{t}-{n}", prompt=(user(f"colour of {t} number {n}"),), answer=c)
            for t, c in COLOURS.items() for n in numbers
        ]

def guesser(messages, rng):
    return COLOURS[messages[0].content.split()[2]] if rng.random() < 0.5 else "red"
"""


def test_the_command_prints_the_report_and_refuses_unknown_settings(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "colours.py").write_text(FILE)
    words = ["distil", "colours.py:Colours", "--teacher", "colours.py:guesser", "--out", "out", "--exam", "8"]
    sft = ",".join(f"{name}={value}" for name, value in SMALL.items())
    rl = ",".join(f"{name}={value}" for name, value in SHORT.items())
    with pytest.raises(SystemExit) as ended:
        main([*words, "--sft", f"{sft},speed=2"])
    assert ended.value.code == 2
    assert "there is no setting 'speed'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main([*words, "--sft", sft, "--rl", rl, "--workers", "1", "--json"])
    assert ended.value.code == 0
    body = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in body["sides"]] == [TEACHER, AFTER_SFT, STUDENT]
    assert body["student"] == "out/rl"
