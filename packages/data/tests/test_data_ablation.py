"""Recipes and teachers are ranked by what small students learn, at equal cost; planted truths are found again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from wanderlust import Rubric, Scripted, SingleTurnEnvironment, Task, exact, user
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.evals.statistics import Difference, Estimate, difference_over_seeds
from wanderlust.rubrics.moments import student_quantile
from wanderlust_data import (
    AnswerFilters,
    DataPlan,
    HeldOut,
    Source,
    Student,
    Teacher,
    Variant,
    ablate_data,
    compare_teachers,
)
from wanderlust_data.ablation import RecipeComparison, RecipeResult, stage_variants

COLOURS = {"sky": "blue", "grass": "green", "coal": "black", "snow": "white"}
SETTINGS = {"epochs": 12, "batch_tokens": 300, "fresh_width": 32, "fresh_layers": 1}


def colours(first: int, last: int, wrong: bool = False) -> SingleTurnEnvironment:
    answers = [*COLOURS.values()]
    tasks = [
        Task(
            id=f"{thing}-{n}",
            prompt=(user(f"colour of {thing} number {n}"),),
            answer=answers[(place + wrong) % 4],
        )
        for place, thing in enumerate(COLOURS)
        for n in range(first, last)
    ]
    return SingleTurnEnvironment(tasks, rubric=Rubric(exact()))


def knows(messages, rng):
    return COLOURS[messages[0].content.split()[2]]


def shifted(messages, rng):
    """Wrong in a way that one source pays for."""
    answers = [*COLOURS.values()]
    return answers[(answers.index(knows(messages, rng)) + 1) % 4]


EXAM = colours(200, 212)
PLAN = DataPlan(
    name="colours",
    sources=(
        Source(name="clean", env=colours(0, 20)),
        Source(name="poisoned", env=colours(20, 70, wrong=True)),
        Source(name="leak", env=colours(205, 208)),
    ),
    duplicates=("exact",),
    teachers=(Teacher(name="knows", policy=Scripted(knows)), Teacher(name="shifted", policy=Scripted(shifted))),
    answers=AnswerFilters(min_reward=1.0),
    student=Student(env=EXAM, questions=48, max_tokens=4, seeds=(0, 1), tokens=1200, settings=SETTINGS),
    variants=(Variant(name="without poisoned", without_sources=("poisoned",)),),
)


def test_a_poisoned_source_and_a_leak_are_found(tmp_path):
    report = ablate_data(PLAN, tmp_path / "out", progress=False)
    assert report.best.name == "without poisoned"
    assert report["without poisoned"].over_plan.low > 0
    assert {one.name: len(one.leaked) for one in report.recipes} == {"without poisoned": 12, "the plan": 12}
    assert report.exam == 36
    assert any("leaks the exam" in line for line in report.findings)
    assert any(line.startswith("without poisoned: better than the plan by") for line in report.findings)
    stored = json.loads((tmp_path / "out/ablation.json").read_text())
    assert stored["best"] == "without poisoned"
    before = (tmp_path / "out/ablation.json").read_bytes()
    (tmp_path / "out/ablation.json").unlink()
    ablate_data(PLAN, tmp_path / "out", progress=False)
    assert (tmp_path / "out/ablation.json").read_bytes() == before


def test_a_teacher_is_chosen_by_its_students(tmp_path):
    plan = DataPlan(
        name="teachers",
        sources=(Source(name="clean", env=colours(0, 20)),),
        teachers=(Teacher(name="knows", policy=Scripted(knows)), Teacher(name="shifted", policy=Scripted(shifted))),
        student=Student(env=EXAM, questions=48, max_tokens=4, seeds=(0,), settings=SETTINGS),
    )
    report = compare_teachers(plan, tmp_path / "out", progress=False)
    assert [(one.name, one.teacher_reward) for one in report.recipes] == [("knows", 1.0), ("shifted", 0.0)]
    assert report.best.reward.value > 0.9
    assert (tmp_path / "out/teachers.json").is_file()


def test_stages_are_varied_one_at_a_time():
    plan = DataPlan(
        sources=PLAN.sources,
        teachers=(Teacher(name="a", policy="x", samples=3), Teacher(name="b", policy="y")),
        held_out=(HeldOut(name="exam", env=EXAM),),
        ablate=("sources", "teachers", "duplicates", "held_out", "samples", "answers", "questions"),
    )
    assert [one.name for one in stage_variants(plan)] == [
        "without clean",
        "without poisoned",
        "without leak",
        "only a",
        "only b",
        "with duplicates",
        "not decontaminated",
        "one answer a question",
        "verified answers",
        "majority answers",
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"student": None}, "there is no student"),
        ({"variants": ()}, "nothing to vary"),
        ({"student": Student(env=colours(0, 2))}, "every exam question is among some recipe's questions"),
    ],
)
def test_what_cannot_be_compared_is_one_line(changes, line, tmp_path):
    plan = replace(PLAN, **changes)
    if plan.student is not None and plan.variants:
        plan = replace(plan, student=replace(plan.student, settings=SETTINGS, seeds=(0,), tokens=100, max_tokens=4))
    with pytest.raises(UsageError, match=line):
        ablate_data(plan, tmp_path / "out", progress=False)
    with pytest.raises(UsageError, match="needs two or more"):
        compare_teachers(DataPlan(sources=PLAN.sources), tmp_path / "other", progress=False)


def test_the_command_compares(tmp_path, monkeypatch, capsys):
    rows = [
        {"prompt": f"colour of {thing} number {n}", "answer": colour}
        for thing, colour in COLOURS.items()
        for n in range(9)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    exam = [{"prompt": f"colour of {thing} number {n}", "answer": c} for thing, c in COLOURS.items() for n in (71, 72)]
    (tmp_path / "exam.jsonl").write_text("".join(json.dumps(row) + "\n" for row in exam))
    (tmp_path / "exam.py").write_text(
        "from wanderlust import Rubric, SingleTurnEnvironment, exact, load_tasks\n"
        "env = SingleTurnEnvironment(load_tasks('exam.jsonl', answer='answer'), rubric=Rubric(exact()))\n"
    )
    (tmp_path / "plan.toml").write_text(
        'name = "c"\nablate = ["duplicates"]\n[[sources]]\nfile = "rows.jsonl"\n'
        '[student]\nenv = "exam.py:env"\nseeds = [0]\nmax_tokens = 4\n'
        "[student.settings]\nepochs = 2\nfresh_width = 32\nfresh_layers = 1\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["data", "ablate", "plan.toml", "--json"])
    assert ended.value.code == 0
    body = json.loads(capsys.readouterr().out)
    assert {one["name"] for one in body["recipes"]} == {"the plan", "with duplicates"}


def test_an_interval_covers_questions_and_seeds():
    steady = [{str(n): 1.0 for n in range(50)}] * 3
    worse = [{str(n): float(n % 2) for n in range(50)}] * 3
    difference = difference_over_seeds(steady, worse, [str(n) for n in range(50)])
    assert difference.value == 0.5
    assert 0.3 < difference.low < 0.4
    moody = [{str(n): seed / 2 for n in range(50)} for seed in range(3)]
    assert difference_over_seeds(steady, moody, [str(n) for n in range(50)]).low < 0
    assert [round(student_quantile(n), 2) for n in (2, 5, 30)] == [4.3, 2.57, 2.04]


def test_of_many_variants_without_a_difference_none_is_a_finding() -> None:
    """Ten variants, of which one is at 3% by chance: 26% of such comparisons have one."""

    def recipe(name: str, value: float, p_value: float) -> RecipeResult:
        over = Difference(value=value, low=value - 0.05, high=value + 0.05, count=60, clusters=20, p_value=p_value)
        same = Estimate(value=0.5, low=0.4, high=0.6, count=60, clusters=20)
        settings = {"questions": 9, "rows": 9, "tokens": 9, "leaked": (), "by_seed": {0: 0.5}}
        return RecipeResult(name=name, reward=same, over_plan=over, **settings)

    def found(*variants: RecipeResult) -> list[str]:
        return RecipeComparison(folder="f", exam=20, tokens=9, seeds=(0,), recipes=list(variants)).findings

    chance, others = recipe("a", 0.06, 0.03), [recipe(f"v{n}", 0.01, 0.6) for n in range(9)]
    assert found(chance) == ["a: better than the plan by 0.060 [0.010, 0.110]."]
    assert found(chance, *others) == ["None of 10 variants is clearly better or worse than the plan."]
    assert found(recipe("a", 0.2, 1e-5), *others) == ["a: better than the plan by 0.200 [0.150, 0.250]."]
