"""Worlds in few words: what is shown, what is understood, who grades."""

from __future__ import annotations

import asyncio

import pytest

from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.types import Policy, Rollout
from wanderlust_life.brief_life import BriefLife, careless_teacher
from wanderlust_life.brief_worlds import Handles
from wanderlust_worlds.wrap.world_environment import log_of

ENV = BriefLife("no-answer", evaluated=12)
TASKS = list(ENV.tasks("eval"))


def play(policy: Policy, at: int = 0) -> Rollout:
    done = asyncio.run(rollout(ENV, TASKS[at], policy))
    assert done.error is None
    return done


def reward(done: Rollout) -> float:
    score = done.trajectories[0].score
    assert score is not None
    return score.reward


def test_calls_stand_in_the_log_alone() -> None:
    done = play(careless_teacher(care=1.0))
    assert reward(done) == 1.0
    assert all(not said.tool_calls for said in done.trajectories[0].messages)
    assert [line.action for line in log_of(done) if line.by == "agent"][:2] == ["get_user_id", "send_message"]


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
