"""Rewards of the mail agent: ART·E's table to the last bit, the parts beside them, and the judge of a group."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from published_art_e import differing
from wanderlust.environment import Environment
from wanderlust.errors import RubricFailure, UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollouts
from wanderlust.types import Rollout, Task, Trajectory, Turn, assistant, user
from wanderlust_inbox.rewards import (
    RECORD_KEY,
    EpisodeRecord,
    art_e_reward,
    inbox_rubric,
)

ALL = {"found": True, "read": True, "sources_right": True}
RIGHT = {"answered": True, "right": True}


@pytest.mark.parametrize(
    ("facts", "reward"),
    [
        ({"unparseable": True, "invalid_id": True}, -2.0),
        ({"unparseable": True, **ALL}, -1.6),
        ({"unknown_tool": True, "invalid_id": True}, -1.9),
        ({"unknown_tool": True}, -1.8),
        ({"invalid_arguments": True, "found": True}, -1.6),
        ({"answered": True, "invalid_id": True}, -1.0),
        ({"answered": True, **ALL}, -0.6),
        ({"abstained": True}, 0.1),
        ({"abstained": True, "right": True}, 0.1),
        ({"out_of_turns": True, "turns": 11, "found": True, "read": True}, 0.3),
        ({**RIGHT, "turns": 10}, 1.0),
        ({**RIGHT, "turns": 4, "found": True, "read": True}, 1.06),
        ({**RIGHT, **ALL, "turns": 1, "source_count": 1}, 1.39),
    ],
)
def test_the_table_of_art_e(facts, reward):
    assert art_e_reward(EpisodeRecord(**facts)) == pytest.approx(reward, abs=1e-12)


def test_equal_to_the_published_function_on_every_rubric():
    assert differing() == (0, 90_112)


def test_few_sources_are_paid_as_the_text_says_only_when_asked_for():
    record = EpisodeRecord(**RIGHT, **ALL, turns=10, source_count=2)
    assert art_e_reward(record) == pytest.approx(1.3)
    assert art_e_reward(record, few_sources=True) == pytest.approx(1.35)
    facts = {**RIGHT, **ALL, "turns": 10, "source_count": 2}
    assert scored(inbox_rubric("art-e-few-sources"), **facts).reward == pytest.approx(1.35)


def test_a_record_without_an_outcome_has_no_reward():
    with pytest.raises(UsageError, match="no outcome"):
        art_e_reward(EpisodeRecord(turns=3))


def scored(rubric, **facts):
    trajectory = Trajectory(turns=[Turn(observation=(user("?"),), action=assistant("x"))])
    rollout = Rollout(
        task=Task(id="q"),
        seed=0,
        trajectories=[trajectory],
        state={RECORD_KEY: EpisodeRecord(**facts).as_state()},
    )
    return asyncio.run(rubric.score(rollout, trajectory))


def test_all_parts_are_shown_beside_the_reward():
    score = scored(inbox_rubric("art-e"), **RIGHT, **ALL, turns=3, source_count=1)
    assert score.reward == pytest.approx(1.37)
    assert set(score.parts) == {"art-e"}
    assert score.metrics["right"] == score.metrics["found"] == score.metrics["sources"] == 1
    assert score.metrics["turns"] == 3
    assert score.metrics["turns_saved"] == pytest.approx(0.7)
    assert score.metrics["invented"] == 0


@pytest.mark.parametrize(
    ("facts", "reward"),
    [
        ({**RIGHT, "turns": 2}, 1 + 0.5 * 0.8),
        ({"answered": True, "turns": 2}, -0.25),
        ({"abstained": True, "turns": 1}, 0),
        ({"abstained": True, "right": True, "turns": 5}, 1 + 0.5 * 0.5),
        ({"out_of_turns": True, "turns": 11}, 0),
    ],
)
def test_terms_for_turns_and_hallucination(facts, reward):
    score = scored(inbox_rubric("correct", turns=0.5, hallucination=0.25), **facts)
    assert score.reward == pytest.approx(reward)
    assert set(score.parts) == {"right", "turns_saved", "invented"}


@pytest.mark.parametrize(("facts", "reward"), [({**RIGHT, "sources_read": 1.0}, 1.2), ({"sources_read": 0.5}, 0.1)])
def test_reading_the_sources_can_be_paid(facts, reward):
    score = scored(inbox_rubric("correct", sources=0.2), **facts)
    assert score.reward == pytest.approx(reward)
    assert set(score.parts) == {"right", "sources_read"}


def test_a_record_of_before_that_has_no_share_read():
    state = EpisodeRecord(abstained=True, right=True).as_state()
    del state["sources_read"]
    assert EpisodeRecord.from_state({RECORD_KEY: state}).sources_read == 0


def test_an_episode_that_another_limit_ended_counts_as_out_of_turns():
    score = scored(inbox_rubric("art-e"), found=True, turns=2)
    assert score.reward == pytest.approx(0.2)
    assert score.metrics["out_of_turns"] == 1


def test_an_episode_without_a_record_is_a_failure():
    rubric = inbox_rubric()
    trajectory = Trajectory(turns=[])
    for state in ({}, {RECORD_KEY: None}, {RECORD_KEY: {"found": True}}):
        rollout = Rollout(task=Task(id="q"), seed=0, trajectories=[trajectory], state=state)
        with pytest.raises(RubricFailure, match="no record"):
            asyncio.run(rubric.score(rollout, trajectory))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"reward": "arte"}, "did you mean art-e"),
        ({"turns": -1}, "turns=-1 is no weight"),
        ({"hallucination": float("nan")}, "is no weight"),
        ({"turns": True}, "is no weight"),
        ({"sources": -0.1}, "sources=-0.1 is no weight"),
        ({"reward": "relative"}, "needs a judge"),
        ({"reward": "correct", "judge": "http://localhost:1/v1"}, "asks no judge"),
        ({"reward": "relative", "judge": "http://localhost:1/v1"}, "judge_model"),
        ({"reward": "relative", "judge": 3}, "expected a policy"),
    ],
)
def test_wrong_settings_are_one_line(settings, words):
    with pytest.raises(UsageError, match=words) as refused:
        inbox_rubric(**settings)
    assert "\n" not in str(refused.value)


class InboxQuestion(Environment):
    """One answer; right where it says so."""

    def tasks(self, split="train"):
        return [Task(id="q", prompt=(user("When is the meeting?"),))]

    async def run(self, episode):
        answer = await episode.agent.act(*episode.task.prompt)
        record = EpisodeRecord(answered=True, right="10:00" in answer.content, turns=1)
        episode.state[RECORD_KEY] = record.as_state()


def longest_first(messages, rng):
    shown = re.findall(r"<attempt (\d+)>\n(.*?)\n</attempt>", messages[-1].content, re.DOTALL)
    longest = max(len(text) for _, text in shown)
    return json.dumps([{"attempt": int(n), "score": len(text) / longest} for n, text in shown])


def test_the_relative_judge_compares_the_group_and_the_truth_is_recorded():
    rubric = inbox_rubric("relative", judge=Scripted(longest_first), hallucination=0.5)
    lengths = iter(("at 10:00", "at noon, says the longest attempt of all"))
    policy = Scripted(lambda messages, rng: next(lengths))

    async def played():
        env = InboxQuestion()
        async with rollouts(env, env.tasks(), policy, rubric=rubric, group_size=2) as groups:
            return [group async for group in groups]

    (group,) = asyncio.run(played())
    scores = [rollout.trajectory.score for rollout in group.rollouts]
    longest = max(scores, key=lambda score: score.parts["relative"])
    assert longest.parts["relative"] == 1
    assert longest.metrics["right"] == 0
    assert longest.reward == pytest.approx(0.5)
    assert min(scores, key=lambda score: score.parts["relative"]).metrics["right"] == 1
