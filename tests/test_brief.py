"""Worlds in few words: what is shown, what is understood, who grades; and a tiny model that lives in one."""

from __future__ import annotations

import asyncio

import pytest

from wanderlust.environments.assistant_life import AssistantLife
from wanderlust.environments.brief_life import BriefNoAnswer, Handles, hasty
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout, rollouts
from wanderlust.types import Policy, Rollout
from wanderlust.worlds.wrap.world_environment import log_of

ENV = BriefNoAnswer(evaluated=12)
TASKS = list(ENV.tasks("eval"))


def play(policy: Policy, at: int = 0) -> Rollout:
    done = asyncio.run(rollout(ENV, TASKS[at], policy))
    assert done.error is None
    return done


def reward(done: Rollout) -> float:
    score = done.trajectories[0].score
    assert score is not None
    return score.reward


def test_who_reads_the_few_words_and_does_what_is_right_is_accepted() -> None:
    for at in range(len(TASKS)):
        done = play(hasty(care=1.0), at)
        assert reward(done) == 1.0
        assert all(not said.tool_calls for said in done.trajectories[0].messages)  # calls stand in the log alone


def test_the_reward_is_the_verdict_on_the_log_as_in_any_life() -> None:
    for care in (0.3, 0.6, 1.0):
        for at in range(4):
            done = play(hasty(care=care), at)
            _, grader = AssistantLife(["no-answer"], levels=(1,)).scenario_and_grader(TASKS[at].id)
            assert reward(done) == float(grader.verdict(log_of(done)).accepted)


def test_a_hasty_teacher_fails_more_often_than_not_and_not_always() -> None:
    async def mean(care: float) -> float:
        env = BriefNoAnswer(evaluated=40)
        async with rollouts(env, env.tasks("eval"), hasty(care=care)) as stream:
            return sum([reward(group.rollouts[0]) async for group in stream]) / env.evaluated

    assert 0.02 < asyncio.run(mean(0.5)) < 0.4
    assert asyncio.run(mean(1.0)) == 1.0


def test_doing_nothing_is_rejected() -> None:
    assert reward(play(Scripted(lambda _messages, _rng: ""))) == 0.0


HOSTILE = ["wait", "wait soon", "wait 999999999999", "chat #9", "read #99 #1", "id", "#0 \ud800", "chat " * 50]


@pytest.mark.parametrize("said", HOSTILE)
def test_any_answer_is_answered_or_said(said: str) -> None:
    assert reward(play(Scripted(lambda _messages, _rng: said))) == 0.0


def test_handles_stand_for_what_is_long_and_come_back() -> None:
    handles = Handles({"Ann Archer": "Ann Archer", "Ann": "Ann Archer"})
    text = "Tell Ann Archer (ann@post.example, +1 555 0190 8240) of c6f4b001640872bd; Ann waits."
    assert handles.shorten(text) == "Tell #1 (#2, #3) of #4; #1 waits."
    assert handles.expand("#4 #3 #2 of #1, not #5 or #0") == (
        "c6f4b001640872bd +1 555 0190 8240 ann@post.example of Ann Archer, not #5 or #0"
    )
    assert Handles({}).shorten("nobody here") == "nobody here"


def test_time_and_news_stand_in_what_is_read() -> None:
    lines = ["id #1", "chat #3 the thing", "wait 600", ""]
    read = [said.content for said in play(Scripted(lines)).trajectories[0].messages if said.role == "user"]
    assert read[0].startswith("0:00\nAsk #1 in Chats")
    assert read[3].startswith("0:30\ndone\nChats: New message received in conversation ID: #5")
