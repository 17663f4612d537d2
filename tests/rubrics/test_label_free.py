"""Rewards without labels: what a group is taught by, and what is only watched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from random import Random

import pytest

from wanderlust.environment import Environment, Episode, SingleTurnEnvironment
from wanderlust.errors import RubricFailure
from wanderlust.policies.base import TokenPrices
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.answers import extract_answer
from wanderlust.rubrics.generated import Checklist, ChecklistReward, Criterion
from wanderlust.rubrics.judge import JudgeOptions
from wanderlust.rubrics.label_free import (
    LabelFreeReward,
    LabelFreeRubric,
    Majority,
    Synthesis,
    environment_check,
)
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.engine import rollouts
from wanderlust.types import Group, Task, Trajectory, Turn, assistant, user

SAID = ("It is 4. Answer: 4", "I get \\boxed{4}", "<answer>5</answer>", "no idea")
PROMPT = (user("What is 2 + 2?"),)
TASK = Task(id="sum", prompt=PROMPT, answer="4")


def right(completion: str, answer: object) -> float:
    if answer is None:
        raise ValueError("nobody knows")
    return float(extract_answer(completion) == answer)


class Paying(Environment):
    """Pays by itself, without a rubric."""

    def tasks(self, split: str = "train") -> list[Task]:
        return [TASK]

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act(*PROMPT)
        episode.reward("right", right(said.content, "4"))


def sums(answer: object = "4") -> SingleTurnEnvironment:
    return SingleTurnEnvironment([Task(id="sum", prompt=PROMPT, answer=answer)], rubric=Rubric(right))


def play(env: Environment, taught: LabelFreeReward, said: Sequence[str] = SAID) -> Group:
    """A group whose siblings say these, by their number."""
    lines = Scripted(lambda messages, rng: said[0])

    class Numbered:
        async def complete(self, messages, tools=(), *, key=""):
            return await Scripted([said[int(key.split("/")[-2])]]).complete(messages, key=key)

    async def whole() -> Group:
        rubric = LabelFreeRubric(env, taught)
        policy = Numbered() if len(said) > 1 else lines
        async with rollouts(env, env.tasks(), policy, rubric=rubric, group_size=len(said)) as stream:
            (group,) = [group async for group in stream]
            return group

    return asyncio.run(whole())


def majority(env: Environment) -> LabelFreeReward:
    return LabelFreeReward(estimator=Majority(), check=environment_check(env))


@pytest.mark.parametrize("env", [sums(), Paying()], ids=["rubric", "paying"])
def test_a_group_is_rewarded_without_its_label_and_watched_by_it(env):
    group = play(env, majority(env))
    scores = [rollout.trajectories[0].score for rollout in group.rollouts]
    assert [score.reward for score in scores] == [1.0, 1.0, 0.0, 0.0]
    assert [score.metrics["truth"] for score in scores] == [1.0, 1.0, 0.0, 0.0]
    assert scores[0].metrics["truth/right"] == 1.0
    watched = {name: value for name, value in scores[0].metrics.items() if name.startswith("label_free/")}
    assert watched == {
        "label_free/disagrees": 0.0,
        "label_free/diversity": pytest.approx(2 / 3),
        "label_free/flat": 0.0,
        "label_free/truth": 1.0,
        "label_free/gain": 0.5,
        "label_free/unchecked": 0.0,
    }
    assert scores[0].notes["label_free"] == SAID[0]


@pytest.mark.parametrize("answer", ["4", "5", None], ids=["right", "wrong label", "no label"])
def test_the_label_has_no_part_in_the_reward(answer):
    group = play(sums(answer), majority(sums(answer)))
    assert group.rewards == [1.0, 1.0, 0.0, 0.0]
    metrics = group.rollouts[0].trajectories[0].score.metrics
    assert (metrics.get("truth"), metrics.get("truth/unknown")) == {
        "4": (1.0, 0.0),
        "5": (0.0, 0.0),
        None: (None, 1.0),
    }[answer]


def test_a_synthesis_may_overrule_the_majority_and_is_checked_by_saying_it():
    env = sums()
    group = play(
        env, LabelFreeReward(estimator=Synthesis(synthesizer=Scripted(["Answer: 5"])), check=environment_check(env))
    )
    assert group.rewards == [0.0, 0.0, 1.0, 0.0]
    metrics = group.rollouts[0].trajectories[0].score.metrics
    assert (metrics["label_free/disagrees"], metrics["label_free/truth"], metrics["label_free/gain"]) == (
        1.0,
        0.0,
        -0.5,
    )
    nobody = play(
        env, LabelFreeReward(estimator=Synthesis(synthesizer=Scripted(["4"])), check=environment_check(env)), ("5", "6")
    )
    metrics = nobody.rollouts[0].trajectories[0].score.metrics
    assert (nobody.rewards, metrics["label_free/flat"], metrics["label_free/gain"]) == ([0.0, 0.0], 1.0, 1.0)


def test_where_the_truth_cannot_be_told_it_is_counted_and_the_reward_stays():
    class Talkative(Environment):
        def tasks(self, split: str = "train") -> list[Task]:
            return [TASK]

        async def run(self, episode: Episode) -> None:
            await episode.agent.act(*PROMPT)
            await episode.agent.act(user("Sure?"))

    with pytest.raises(RubricFailure, match="more than one answer"):
        asyncio.run(environment_check(Talkative())(TASK, 0, "4"))
    taught = LabelFreeReward(estimator=Synthesis(synthesizer=Scripted(["4"])), check=environment_check(Talkative()))
    judged = siblings(taught)
    assert [one.value for one in judged] == [1.0, 1.0, 0.0, 0.0]
    assert judged[0].metrics["unchecked"] == 1.0


def siblings(taught: LabelFreeReward, said: Sequence[str] = SAID):
    trajectories = [Trajectory(turns=[Turn(observation=PROMPT, action=assistant(text))]) for text in said]
    return asyncio.run(taught(task=TASK, seed=0, completions=said, trajectories=trajectories))


def test_siblings_that_agree_are_all_right_and_said_to_be_flat():
    judged = siblings(LabelFreeReward(estimator=Majority()), ("4", "4", "4"))
    assert [one.value for one in judged] == [1.0, 1.0, 1.0]
    assert judged[0].metrics == {"disagrees": 0.0, "diversity": 0.0, "flat": 1.0}


@pytest.mark.parametrize(
    ("said", "anchor", "why"),
    [
        (SAID[:1], None, "a group of one has no reference"),
        (("hm", "well"), None, "no majority"),
        (SAID, Scripted([" "]), "empty text"),
        (SAID, Scripted(["who knows"]), "no answer to compare with"),
        (SAID, Scripted(lambda messages, rng: str(1 / 0)), "division by zero"),
    ],
    ids=["alone", "no answers", "empty", "no answer", "broken anchor"],
)
def test_a_group_without_a_reference_fails_and_is_no_zero(said, anchor, why):
    taught = LabelFreeReward(estimator=Majority() if anchor is None else Synthesis(synthesizer=anchor))
    group = play(sums(), taught, said)
    assert group.rewards == []
    assert all(rollout.trajectories[0].score is None for rollout in group.rollouts)
    assert why in (group.rollouts[0].error or "")


@pytest.mark.parametrize("seed", range(30))
def test_hostile_siblings_break_nothing(seed):
    rng = Random(seed)
    said = [
        "".join(chr(rng.choice((0, 10, 123, 125, 92, 60, 62, 0xD800, 0x202E))) for _ in range(300)) for _ in range(4)
    ]
    said.append("Answer: 4")
    assert [one.value for one in siblings(LabelFreeReward(estimator=Majority()), said)][-1] == 1.0
    anchored = LabelFreeReward(estimator=Synthesis(synthesizer=Scripted(["Answer: 4"])))
    assert [one.value for one in siblings(anchored, said)][-1] == 1.0
    judge = Scripted(lambda m, rng: '{"score": 1}')
    assert Checklist(judge=judge, dropout=0.5, model="s").select_criteria([Criterion(text="Is it?")], said)


@pytest.mark.parametrize("examples", [0, 1, 3])
@pytest.mark.parametrize("sees_question", [False, True])
def test_a_reference_is_worth_the_same_however_many_examples_the_prompt_has(examples, sees_question):
    shown = [message for n in range(examples) for message in (user(f"{n} + 1?"), assistant(f"{n + 1}"))]
    task = Task(id="sum", prompt=(*shown, *PROMPT), answer="4")
    env = SingleTurnEnvironment([task], rubric=Rubric(right))
    synthesis = Synthesis(synthesizer=Scripted(["Answer: 4"]), sees_question=sees_question)
    group = play(env, LabelFreeReward(estimator=synthesis, check=environment_check(env)))
    metrics = [rollout.trajectory.score.metrics for rollout in group.rollouts]
    assert [one["label_free/truth"] for one in metrics] == [1.0] * 4
    assert [one["label_free/unchecked"] for one in metrics] == [0.0] * 4
    assert asyncio.run(environment_check(env)(task, 0, "5")) == 0.0


def test_a_rubric_without_labels_leaves_its_criteria_ticks_and_costs_in_the_scores():
    words = [{"criterion": f"Is it {n}?", "importance": "essential"} for n in range(4, 9)]

    def judge(messages, rng):
        criterion, said = messages[-1].content.split("<answer>", 1)
        return json.dumps({"score": int(criterion.split("Is it ")[1][0] in said)})

    options = JudgeOptions(prices=TokenPrices(input=1.0, output=1.0))
    to_reward = ChecklistReward(
        writer=Scripted([json.dumps(words)]), checklist=Checklist(judge=Scripted(judge), options=options)
    )
    group = play(sums(), LabelFreeReward(estimator=Majority(), to_reward=to_reward))
    scores = [rollout.trajectory.score for rollout in group.rollouts]
    reference, *lines = scores[0].notes["label_free"].split("\n")
    assert reference == SAID[0]
    assert lines[:2] == ["", "[x] essential: Is it 4? (1 of 1)"]
    assert len(lines) == 6
    met = [score.metrics["label_free/met"] for score in scores]
    assert met == [1.0, 1.0, 1.0, 0.0]
    assert [score.reward for score in scores] == [one / 5 for one in met]
    calls = [score.metrics["label_free/calls"] + score.metrics["label_free/cached"] for score in scores]
    assert calls == [5.25] * 4  # the writer's one call is shared by four
    assert scores[0].metrics["label_free/cost"] == 0.0
