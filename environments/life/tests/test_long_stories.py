"""Long stories: several turns over several apps, each composed anew; only who does all of it is accepted."""

from __future__ import annotations

import asyncio
from statistics import median

import pytest

from wanderlust import rollout
from wanderlust.tasks.registry import resolve_environment
from wanderlust_life.families.family import LEVELS
from wanderlust_life.long_stories import LONG_STORY, PARTS
from wanderlust_worlds.engine.scenario import play_oracle
from wanderlust_worlds.verification.grading import FactGrader, missing_facts

SEEDS = range(4)


def scenarios(level, split="train", seeds=SEEDS):
    return [LONG_STORY.scenario(seed, LEVELS[level], split=split) for seed in seeds]


@pytest.mark.parametrize("split", ["train", "held"])
@pytest.mark.parametrize("level", LEVELS)
def test_all_of_it_is_accepted_and_nothing_less(level, split):
    for seed, scenario in enumerate(scenarios(level, split)):
        assert missing_facts(scenario) == []
        grader, log = FactGrader(scenario), play_oracle(scenario, seed).log
        assert grader.verdict(log).accepted, (seed, str(grader.verdict(log)))
        assert not grader.verdict([line for line in log if line.by != "agent"]).accepted
        for act in scenario.oracle:
            assert not grader.verdict([line for line in log if line.event != act.id]).accepted, act.id


@pytest.mark.parametrize(("level", "turns", "acts"), [(1, 2, 6), (2, 3, 12), (3, 5, 20)])
def test_there_are_turns_acts_and_apps(level, turns, acts):
    found = scenarios(level, seeds=range(12))
    reports = [sum(act.action == "send_message_to_user" for act in one.oracle) for one in found]
    assert set(reports) == {turns}
    assert median(len(one.oracle) for one in found) >= acts
    assert min(len({act.app for act in one.oracle}) for one in found) >= 3


def shape(scenario):
    """The graph of events: who does what after which."""
    place = {event.id: number for number, event in enumerate(scenario.events)}
    return tuple(
        (getattr(one, "by", ""), getattr(one, "action", ""), tuple(place[after] for after in one.after))
        for one in scenario.events
    )


def test_every_seed_has_a_graph_of_its_own_and_the_same_again():
    first, again = ([shape(one) for one in scenarios(2, seeds=range(40))] for _ in range(2))
    assert first == again
    assert len(set(first)) == 40


def test_every_part_comes_and_wishes_are_changed():
    said = " ".join(
        str(event.args.get("content", "")) for one in scenarios(2, seeds=range(30)) for event in one.events
        if getattr(event, "action", "") == "send_message_to_agent"
    )  # fmt: skip
    for words in ("Put an hour", "Order one", "Get me a cab", "Ask ", "Remind me", "is going to mail me", "new phone"):
        assert words in said
    for words in ("has to be on", "cancel the order", "One more thing"):
        assert words in said
    assert len(PARTS) == 7


def test_the_environment_plays_it_by_name_alone():
    env = resolve_environment("life,families=long-story,levels=1").env
    task = next(iter(env.tasks("eval")))
    assert task.id == "long-story/eval-0/1"
    best, idle = (rollout(env, task, policy) for policy in (env.oracle(task), env.players["nothing"]()))
    assert asyncio.run(best).trajectory.score.reward == 1.0
    assert asyncio.run(idle).trajectory.score.reward == 0.0
    assert "long-story" not in {one.name for one in resolve_environment("life").env.families}
