"""Panels of judges: how verdicts are combined, and what happens where some are missing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toys
from wanderlust.errors import RubricFailure, UsageError
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.choice_judge import ChoiceJudge
from wanderlust.rubrics.judge import Judge
from wanderlust.rubrics.panel import JudgePanel, majority
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Rollout, Task, Trajectory, Turn, assistant


def short(completion: str) -> float:
    return float(len(completion) < 5)


async def polite(completion: str) -> float:
    return 0.25 if "please" in completion else 0.0


def judge(*answers: str, name: str = "judge") -> Judge:
    return Judge(Scripted([*answers]), "Is it good? {completion}", name=name)


def judged(panel: JudgePanel, completion: str = "abc") -> Any:
    return asyncio.run(panel(completion=completion))


@pytest.mark.parametrize(("combine", "wanted"), [("mean", 0.6), ("majority", 1.0), ("median", 0.8)])
def test_verdicts_are_combined_and_each_is_recorded(combine: Any, wanted: float) -> None:
    panel = JudgePanel([judge('{"score": 8, "reason": "fine"}'), short, polite], combine=combine)
    found = judged(panel)
    assert found.value == pytest.approx(wanted)
    assert {name: found.metrics[name] for name in ("judge", "short", "polite")} == {
        "judge": 0.8,
        "short": 1.0,
        "polite": 0.0,
    }
    assert (found.metrics["spread"], found.metrics["absent"], found.metrics["calls"]) == (1.0, 0.0, 1.0)
    assert found.metrics["agreement"] == pytest.approx(2 / 3)
    assert found.note == 'judge 0.8: {"score": 8, "reason": "fine"}\nshort 1\npolite 0'


@given(st.lists(st.sampled_from([0.0, 0.4, 0.5, 1.0]), min_size=1))
def test_the_majority_is_that_of_a_count(values: list[float]) -> None:
    yes, no = sum(one >= 0.5 for one in values), sum(one < 0.5 for one in values)
    assert majority(values) == (1.0 if yes > no else 0.0 if no > yes else 0.5)


def test_a_judge_without_a_verdict_is_absent_and_says_why() -> None:
    def broken(completion: str) -> float:
        raise ValueError("no idea")

    judges = [judge(*["what?"] * 3), short, broken]
    found = judged(JudgePanel(judges, quorum=1))
    assert (found.value, found.metrics["absent"], found.metrics["agreement"]) == (1.0, 2.0, 1.0)
    assert "judge: no verdict: no verdict in 3 answers" in found.note
    assert "broken: no verdict: ValueError: no idea" in found.note
    with pytest.raises(RubricFailure, match="1 of 3 judges gave a verdict: ") as told:
        judged(JudgePanel(judges))
    assert "\n" not in str(told.value)
    for odd in (float("nan"), "good", None):
        with pytest.raises(RubricFailure, match=r"1 of 2 judges gave a verdict: .*not a finite number"):
            judged(JudgePanel([short, Returns(odd)]))


class Returns:
    def __init__(self, value: Any):
        self.value, self.name = value, "returns"

    def __call__(self, completion: str) -> Any:
        return self.value


def test_judges_with_other_fields_and_of_other_kinds_go_together() -> None:
    policy = LocalPolicy.of(toys.fresh(0), toys.TOKENIZER, SamplingOptions(max_tokens=1), seed=0)
    likely = ChoiceJudge(policy, "{completion}", verdicts={"a": 1.0, "b": 0.0}, name="likely")
    told = Judge(Scripted(['{"score": 10}']), "{prompt} {completion} {answer}", name="told")
    rubric = Rubric(JudgePanel([likely, told, short]))
    task = Task(id="t", answer="abc")
    trajectory = Trajectory(seat="agent", turns=[Turn(observation=(), action=assistant("abc"))])
    played = Rollout(task=task, trajectories=[trajectory], seed=0)
    score = asyncio.run(rubric.score(played, trajectory))
    alone = asyncio.run(likely(completion="abc")).value
    assert score.reward == pytest.approx((alone + 1 + 1) / 3)
    assert score.metrics["panel/told"] == 1.0
    assert score.metrics["panel/mass"] > 0


def test_what_cannot_be_a_panel_is_one_line() -> None:
    with pytest.raises(UsageError, match="two judges or more with names of their own, not short"):
        JudgePanel([short])
    with pytest.raises(UsageError, match="names of their own, not judge, judge"):
        JudgePanel([judge("1"), judge("2")])
    with pytest.raises(UsageError, match="cannot combine by 'best': mean, majority, median"):
        JudgePanel([short, polite], combine="best")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="has 2 judges, and cannot need 3 verdicts"):
        JudgePanel([short, polite], quorum=3)
