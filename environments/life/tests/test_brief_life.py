"""Six families of a life in few words: who makes no mistake is accepted, who is careless errs in each."""

from __future__ import annotations

import asyncio

import pytest

from wanderlust import evaluate_sync, rollout
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.tasks.curriculum.uniform import resolve_curriculum
from wanderlust.tasks.registry import resolve_environment
from wanderlust.types import Group
from wanderlust_life.assistant_life import AssistantLife
from wanderlust_life.brief_life import BRIEF_FAMILIES, BriefLife, careless_teacher
from wanderlust_worlds.wrap.world_environment import log_of

ENV = BriefLife(evaluated=12)


def rewards(care):
    """The mean reward of each family."""
    report = evaluate_sync(ENV, careless_teacher(care=care), progress=False)
    return {name: part.reward.value for name, part in report.breakdown.items()}


def test_who_makes_no_mistake_is_accepted_in_every_family():
    assert rewards(1.0) == dict.fromkeys(BRIEF_FAMILIES, 1.0)


def test_who_makes_no_mistake_asks_three_in_turn_at_the_second_level():
    report = evaluate_sync(BriefLife("ask-around", level=2, evaluated=8), careless_teacher(care=1.0), progress=False)
    assert report.reward.value == 1


def test_a_ladder_goes_from_level_to_level():
    env = BriefLife("no-answer", level=[1, 2], evaluated=2)
    assert [task.info["level"] for task in env.tasks("eval")] == [1, 2, 1, 2]
    ladder = resolve_curriculum("ladder,over=2,raise_at=0.5,review=0", env, seed=0)
    easy = ladder.next(0, 4)
    assert {task.info["level"] for task in easy} == {1}
    for task in easy[:2]:
        done = asyncio.run(rollout(env, task, careless_teacher(care=1.0)))
        ladder.observe(Group(task=task, rollouts=[done]))
    assert {task.info["level"] for task in ladder.next(1, 4)} == {2}


def test_a_careless_teacher_is_often_wrong_in_every_family():
    assert max(rewards(0.3).values()) < 0.6


@pytest.mark.parametrize("family", BRIEF_FAMILIES)
def test_the_scenario_and_the_verdict_are_those_of_life(family):
    env = BriefLife(family, evaluated=2)
    for task in env.tasks("eval"):
        for care in (0.4, 1.0):
            done = asyncio.run(rollout(env, task, careless_teacher(care=care)))
            _, grader = AssistantLife([family], levels=1).scenario_and_grader(task.id)
            assert done.trajectory.score.reward == float(grader.verdict(log_of(done)).accepted)


@pytest.mark.parametrize(
    "said", ["forward #1", "cab #9 #9", "add", "mail #1", "newest 3", "say #1", "group ", "buy", ""]
)
def test_any_answer_is_answered_or_said(said):
    for family in BRIEF_FAMILIES:
        env = BriefLife(family, evaluated=1)
        done = asyncio.run(rollout(env, next(iter(env.tasks("eval"))), Scripted(lambda _messages, _rng: said)))
        assert (done.error, done.trajectory.score.reward) == (None, 0.0)


def test_an_address_in_a_list_of_one_reaches_the_tool():
    env = BriefLife("watch-for", evaluated=8)
    logs = [log_of(asyncio.run(rollout(env, task, careless_teacher(care=1.0)))) for task in env.tasks("eval")]
    sent = [line.args["recipients"] for log in logs for line in log if line.by == "agent" and "recipients" in line.args]
    assert len(sent) == 8
    assert all(len(one) == 1 and "@" in one[0] for one in sent)


def test_a_family_without_a_form_in_few_words_is_refused():
    with pytest.raises(UsageError, match="invite has no form in few words: one of no-answer, "):
        resolve_environment("brief-life,families=invite")
