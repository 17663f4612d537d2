"""The recipe `reasoner`: which sets, what is held out, one report over all stages, and the same call goes on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

pytest.importorskip("reasoning_gym", reason="not installed: pip install 'wanderlust[reasoning]'")

from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.runner.progress import NullLogger
from wanderlust.store.run import load_run
from wanderlust.types import Task, user
from wanderlust_reasoning.environment import ReasoningGym, dataset_names, parse_tagged_answer
from wanderlust_reasoning.reasoner import train_reasoner
from wanderlust_reasoning.reasoner_config import ReasonerConfig
from wanderlust_reasoning.reasoner_figures import fault_of, right_answer
from wanderlust_reasoning.reasoner_report import EXAMS
from wanderlust_reasoning.reasoner_sets import (
    LEFT_OUT_DATASETS,
    CandidateSet,
    QuestionMix,
    draw_held_out,
    halves,
    survey_sets,
)

pytestmark = pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
NAMES = ("chain_sum", "gcd", "letter_counting", "syllogism", "aiw", "count_bits", "count_primes", "rush_hour")
CONFIG = ReasonerConfig(
    datasets=NAMES,
    held_out=2,
    questions=12,
    difficulty_samples=3,
    exam=8,
    continual_steps=1,
    continual_exam=6,
    sft={"epochs": 2, "fresh_width": 32, "fresh_layers": 1},
    rl={"steps": 2, "tasks_per_step": 4, "group_size": 4, "max_tokens": 12},
)


def sets(*names):
    return [CandidateSet(name=name, family=name[0], level=None) for name in names]


class Interruption(NullLogger):
    """Stops the call at the first step of RL."""

    def log_step(self, stage, step, *, of, metrics):
        if stage == "rl":
            raise KeyboardInterrupt


def test_sets_whose_oracle_fails_are_left_out_with_a_reason():
    fitting, left_out = survey_sets([*LEFT_OUT_DATASETS, "gcd"], level=0, max_question_chars=240, max_answer_chars=24)
    assert [one.name for one in fitting] == ["gcd"]
    assert left_out == dict(LEFT_OUT_DATASETS)
    assert set(LEFT_OUT_DATASETS) - {"composite"} < set(dataset_names())


def test_sets_that_do_not_fit_are_left_out_with_their_lengths():
    _, left_out = survey_sets(["needle_haystack"], level=0, max_question_chars=240, max_answer_chars=24)
    assert "characters" in left_out["needle_haystack"]
    with pytest.raises(UsageError, match="no data set 'gdc'"):
        survey_sets(["gdc"], level=0, max_question_chars=240, max_answer_chars=24)


def test_held_out_sets_come_from_many_families_and_leave_one_of_each():
    given = sets("a1", "a2", "a3", "b1", "b2", "c1")
    held_out, training = draw_held_out(given, 2, seed=0)
    assert sorted(one.family for one in held_out) == ["a", "b"]
    assert {one.family for one in training} == {"a", "b", "c"}
    assert draw_held_out(given[::-1], 2, seed=0) == (held_out, training)
    assert len({draw_held_out(given, 2, seed=seed)[0][0].name for seed in range(20)}) > 2
    with pytest.raises(UsageError, match="too few to hold out 4"):
        draw_held_out(given, 4, seed=0)


def test_the_halves_of_continual_training_share_no_family():
    first, second = halves(sets("a1", "a2", "b1", "c1"), seed=0)
    assert {one.family for one in first}.isdisjoint({one.family for one in second})
    assert len(first) + len(second) == 4
    with pytest.raises(UsageError, match="two families"):
        halves(sets("a1", "a2"), seed=0)


def test_a_mixture_keeps_the_chosen_questions_of_train_and_all_of_eval():
    pair = [CandidateSet(name=name, family="x", level=0) for name in ("gcd", "chain_sum")]
    whole = QuestionMix(pair, size=5)
    first = whole.each("train", 2)
    assert sorted(task.id for task in first) == [f"{n}/{n}-train-0-{i}" for n in ("chain_sum", "gcd") for i in (0, 1)]
    chosen = QuestionMix(pair, size=5, kept=[first[0].id])
    assert [task.id for task in chosen.tasks("train")] == [first[0].id]
    assert [*chosen.tasks("eval")] == [*whole.tasks("eval")]


def test_an_answer_that_is_half_right_is_paid_nothing():
    mix = QuestionMix([CandidateSet(name="coin_flip", family="x", level=0)], size=8)
    wrong = next(task for task in mix.tasks("train") if task.answer not in ("0.5", "1"))
    for text, reward in (("0.5", 0.0), (wrong.answer, 1.0)):
        score = asyncio.run(rollout(mix, wrong, Scripted([f"<answer>{text}</answer>"]))).trajectory.score
        assert score.reward == reward
        assert score.parts["score"] > 0.1


def test_sums_are_taught_in_columns_where_they_come_to_the_right_result():
    env = ReasoningGym("chain_sum", min_terms=2, max_terms=2, min_digits=2, max_digits=2)
    taught = [right_answer(task, thinks=True) for task in env.tasks()]
    assert {parse_tagged_answer(text) == task.answer for text, task in zip(taught, env.tasks(), strict=True)} == {True}
    assert 0.3 < sum("<think>" in text for text in taught) / len(taught) < 1
    assert right_answer(Task(id="x", prompt=(user("5 + 5 ="),), answer="10"), thinks=False) == "<answer>10</answer>"


@pytest.mark.parametrize(
    ("figure", "first", "last", "wrong"),
    [
        ("groups with signal", 0.5, 0.4, False),
        ("groups with signal", 0.5, 0.05, True),
        ("entropy, nats per token", 0.5, 0.3, False),
        ("entropy, nats per token", 0.5, 0.01, True),
        ("entropy, nats per token", 0.5, 2.0, True),
        ("divergence from the start, nats per token", 0.0, 0.6, True),
        ("answers at the bound of tokens", 0.0, 0.3, True),
        ("answers at the bound of tokens", 0.4, 0.3, False),
        ("reward", 0.5, 0.0, False),
    ],
)
def test_what_is_monitored_is_told_when_it_goes_wrong(figure, first, last, wrong):
    assert bool(fault_of(figure, first, last)) is wrong


def test_one_report_over_all_stages_and_the_same_call_goes_on(tmp_path):
    def call(logger=False):
        return train_reasoner(CONFIG, out=tmp_path / "out", workers=1, progress=logger)

    with pytest.raises(KeyboardInterrupt):
        call(Interruption())
    assert not (tmp_path / "out/report.json").exists()
    report = call()
    assert len(report.held_out) == 2
    assert "rush_hour" in report.left_out
    held_out = {one.name for one in report.held_out}
    assert held_out.isdisjoint(report.training)
    assert held_out | {*report.training} == {*NAMES} - {"rush_hour"}
    assert report.questions == 12 * len(report.training)
    for one in report.held_out:
        assert set(one.exams) == set(EXAMS)
        assert one.over_base.value == pytest.approx(one.exams["after RL"].right.value - one.exams["base"].right.value)
    assert [row.phase for row in report.continual] == ["start", "1: A", "2: B", "3: A"]
    assert report.forgetting.value == pytest.approx(report.continual[2].first.value - report.continual[1].first.value)
    assert {"groups with signal", "tokens of an answer"} < {one.name for one in report.stability}
    written = json.loads((report.path / "report.json").read_text())
    assert written == json.loads(json.dumps(report.as_dict()))
    assert {"report.md", "reasoner.png"} < {path.name for path in report.path.iterdir()}
    for name in ("rl", "continual-1", "continual-2"):
        with load_run(report.path / name) as run:
            assert {one.task.info["environment"] for one in run.rollouts}.isdisjoint(held_out)
    before = {path: path.stat().st_mtime_ns for path in report.path.rglob("rollouts.db")}
    assert call().as_dict() == report.as_dict()
    assert {path: path.stat().st_mtime_ns for path in report.path.rglob("rollouts.db")} == before
    with pytest.raises(UsageError, match="holds another run"):
        train_reasoner(replace(CONFIG, exam=9), out=tmp_path / "out", progress=False)


def test_wrong_settings_are_refused_in_one_line():
    with pytest.raises(UsageError, match="there is no setting 'stepz'"):
        ReasonerConfig(rl={"stepz": 3})
    with pytest.raises(UsageError, match="at least 1"):
        ReasonerConfig(held_out=0)
