"""Rubrics: functions ask by name; parts, gates, hidden parts and groups; failures name their function."""

import asyncio
import pickle
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderlust.environment import Environment
from wanderlust.errors import PolicyFailure, RubricFailure, StopEpisode, UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Reward, RewardResult, Rubric, gate, held_out
from wanderlust.runner.engine import rollout, rollouts
from wanderlust.store.store import RunStore
from wanderlust.types import Rollout, Score, Status, Task, Trajectory, Turn, assistant, user

TASK = Task(id="t", prompt=(user("1 + 1?"),), answer="2", info={"level": 3})


class Ask(Environment):
    """Shows the prompt, takes one answer, pays for having come."""

    async def run(self, episode):
        said = await episode.agent.act(*episode.task.prompt)
        if said.content == "crash":
            raise OSError("gone")
        episode.reward("came", 1.0)
        episode.state["said"] = said.content


class Duel(Environment):
    seats = ("left", "right")

    async def run(self, episode):
        for agent in episode.agents.values():
            await agent.act(user("go"))


def judged(rubric, *, said="2", task=TASK):
    """A Score for one answer; whatever goes wrong is raised."""
    trajectory = Trajectory(turns=[Turn(observation=task.prompt, action=assistant(said))])
    played = Rollout(task=task, seed=0, trajectories=[trajectory], state={"said": said})
    return asyncio.run(rubric.score(played, trajectory))


def play(rubric, *, said="2", env=None):
    return asyncio.run(rollout(env or Ask(), TASK, Scripted(lambda messages, rng: said), rubric=rubric, seed=7))


async def collect(rubric, *, say, size=4, env=None, tasks=(TASK,)):
    async with rollouts(env or Ask(), tasks, Scripted(say), rubric=rubric, group_size=size, seed=1) as groups:
        return [group async for group in groups]


def half(completion):
    return 0.5


def one():
    return 1


def test_parts_weigh_gates_multiply_hidden_ones_are_recorded():
    async def style(completion):
        await asyncio.sleep(0)
        return 0.5

    def closed(completion):
        return 0.25

    def length(completion):
        return len(completion)

    rubric = Rubric(one, Reward(style, 0.2), gate(closed), held_out(length))
    assert judged(rubric) == Score(
        reward=1.1 * 0.25, parts={"one": 1.0, "style": 0.5, "closed": 0.25}, metrics={"length": 1.0}
    )
    assert [part.name for part in rubric.parts] == ["one", "style", "closed", "length"]


def test_functions_get_what_they_ask_for():
    seen = {}

    def episode(completion, messages, trajectory, rollout, state, rewards, ruler, own=5):
        seen.update(locals())
        return 1

    def problem(task, prompt, answer, info, seed, seat):
        seen.update(locals())
        return 1

    played = play(Rubric(episode, problem, ruler="30 cm"))
    assert played.error is None
    assert seen.pop("seen") is seen
    assert (seen.pop("trajectory"), seen.pop("rollout")) == (played.trajectory, played)
    assert seen.pop("messages") == [*TASK.prompt, assistant("2")]
    expected = {"completion": "2", "state": {"said": "2"}, "rewards": {"came": 1.0}, "seed": 7, "seat": "agent"}
    expected |= {"task": TASK, "prompt": TASK.prompt, "answer": "2", "info": {"level": 3}, "ruler": "30 cm", "own": 5}
    assert seen == expected


def scale(completion, factor):
    return factor * len(completion)


class Callable:
    def __call__(self, completion):
        return 3.0

    async def method(self, answer):
        return float(answer)


def test_methods_partials_and_objects_are_functions_too():
    thing = Callable()
    rubric = Rubric(partial(scale, factor=4), thing, thing.method, Reward(lambda **rest: 1, name="rest"))
    assert judged(rubric).parts == {"scale": 4.0, "Callable": 3.0, "method": 2.0, "rest": 1.0}


def asks_wrongly(completon):
    return 1.0


def asks_both(group, state):
    return []


def by_position(completion, /):
    return 1.0


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Rubric(asks_wrongly), r"'asks_wrongly' asks for 'completon', .*nearest names are completion"),
        (lambda: Rubric(asks_both), "'asks_both' asks for 'group', which is of the whole group, and for 'state'"),
        (lambda: Rubric(by_position), "'by_position' takes 'completion' by position only"),
        (lambda: Rubric(min), "the parameters of the reward function 'min' cannot be read"),
        (lambda: Rubric(lambda: 1), "a lambda has no name"),
        (lambda: Rubric("exact"), "a reward is a function, not 'exact'"),
        (lambda: Rubric(one, one), "two rewards are called 'one'"),
        (lambda: Rubric(one) + Rubric(one), "two rewards are called 'one'"),
        (lambda: Rubric(Reward(one, float("nan"))), "the weight of 'one' is nan"),
        (lambda: Rubric(gate(one)), "nothing to multiply"),
        (lambda: Rubric(one, task=1), "cannot be called 'task'"),
    ],
)
def test_mistakes_are_told_when_the_rubric_is_made(make, told):
    with pytest.raises(UsageError, match=told) as caught:
        make()
    assert "\n" not in str(caught.value)


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=2, max_size=6), st.floats(0, 2))
def test_rubrics_add_up(values, door):
    parts = [Reward(lambda v=value: v, weight, name=f"p{n}") for n, (value, weight) in enumerate(values)]
    left, right = Rubric(parts[0], gate(lambda: door, name="door")), Rubric(*parts[1:])
    both = judged(left + right)
    assert both.reward == pytest.approx(judged(left).reward + judged(right).reward)
    assert both.parts == {**judged(left).parts, **judged(right).parts}


def test_rubrics_that_add_up_keep_their_own_resources():
    def small(ruler):
        return ruler

    def large(ruler):
        return ruler

    assert judged(Rubric(small, ruler=1) + Rubric(large, ruler=10)).parts == {"small": 1.0, "large": 10.0}


def test_a_function_may_say_more_than_a_number():
    def wordy(completion):
        return RewardResult(value=0.5, metrics={"words": 3}, note="I had my doubts.")

    score = judged(Rubric(wordy, held_out(wordy, name="again")))
    assert (score.reward, score.parts) == (0.5, {"wordy": 0.5})
    assert score.metrics == {"wordy/words": 3.0, "again": 0.5, "again/words": 3.0}
    assert score.notes == {"wordy": "I had my doubts.", "again": "I had my doubts."}


class Strange:
    def __repr__(self):
        raise AssertionError


BAD = [
    (None, "returned None"),
    (float("nan"), "returned nan"),
    (float("inf"), "returned inf"),
    ("0.5", "returned '0.5'"),
    ([1.0], "returned a list"),
    (Strange(), "returned a Strange"),
    (10**400, "returned a whole number too large"),
    (RewardResult(value=None), "returned None"),
    (RewardResult(value=1.0, metrics={"x": float("nan")}), "returned nan"),
    (ZeroDivisionError("oh\nno"), r"ZeroDivisionError: oh\nno"),
    (PolicyFailure("the judge is away", transient=True), "PolicyFailure: the judge is away"),
    (StopEpisode("enough"), "StopEpisode: enough"),
]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("value", "told"), BAD, ids=[told for _, told in BAD])
def test_what_is_no_number_is_a_failure_of_the_rubric(value, told, asynchronous):
    def give():
        if isinstance(value, Exception):
            raise value
        return value

    async def later():
        return give()

    played = play(Rubric(half, later if asynchronous else give, Reward(later, name="x") if asynchronous else one))
    assert (played.status, played.stop_reason) == (Status.ERROR, "RubricFailure")
    assert played.error.startswith(f"{'later' if asynchronous else 'give'} on task 't': {told}")
    assert "\n" not in played.error
    assert played.trajectory.score is None
    assert played.transient == ("away" in told)


@pytest.mark.parametrize("value", [True, 3, 2.5, Fraction(1, 2)])
def test_every_real_number_will_do(value):
    assert judged(Rubric(Reward(lambda: value, name="x"))).parts == {"x": float(value)}


def test_a_sum_that_overflows_is_a_failure():
    with pytest.raises(RubricFailure, match="the weighted sum on task 't' is no finite number"):
        judged(Rubric(Reward(lambda: 1e308, 1e10, name="x")))


def test_one_failure_leaves_the_others_alone():
    def picky(completion):
        if completion == "0":
            raise ValueError("not this one")
        return 1.0

    tasks = [Task(id=str(n), prompt=(user(str(n)),)) for n in range(4)]
    groups = asyncio.run(collect(Rubric(picky), say=lambda messages, rng: messages[-1].content, size=1, tasks=tasks))
    by_task = {group.task.id: group.rollouts[0].status for group in groups}
    assert by_task == {"0": Status.ERROR, "1": Status.DONE, "2": Status.DONE, "3": Status.DONE}


def test_the_first_failing_function_is_blamed_whatever_is_faster():
    async def slow():
        await asyncio.sleep(0.01)
        raise ValueError("slow")

    async def fast():
        raise ValueError("fast")

    with pytest.raises(RubricFailure, match="slow on task 't'"):
        judged(Rubric(slow, fast))


# ---- groups


def numbered(messages, rng):
    return str(rng.random())


def rank(completions):
    """The share of siblings that each one is larger than."""
    return [sum(mine > other for other in completions) / len(completions) for mine in completions]


def test_a_function_of_the_group_sees_all_siblings_in_their_order():
    seen = []

    async def spread(group, rollouts, trajectories, completions, answer, seat, task):
        assert (group.rollouts, answer, seat, task) == (rollouts, "2", "agent", TASK)
        assert [r.sample_index for r in rollouts] == [0, 1, 2, 3]
        assert [t.turns[0].action.content for t in trajectories] == completions
        seen.append(completions)
        return (n for n in range(4))

    def ok():
        return 1

    rubric = Rubric(half, Reward(rank, 2.0), gate(ok), held_out(spread))
    (group,) = asyncio.run(collect(rubric, say=numbered))
    expected = rank(seen[0])
    for n, played in enumerate(group.rollouts):
        score = played.trajectory.score
        assert score.parts == {"half": 0.5, "rank": expected[n], "ok": 1.0}
        assert (score.reward, score.metrics) == (0.5 + 2 * expected[n], {"spread": float(n)})
    assert sorted(group.rewards) == [0.5, 1.0, 1.5, 2.0]


def test_groups_are_the_same_at_any_concurrency_and_in_the_store(tmp_path):
    tasks = [Task(id=f"t{n}", prompt=(user("?"),)) for n in range(10)]

    async def go(concurrency):
        env, policy = Ask(), Scripted(numbered)
        async with rollouts(env, tasks, policy, rubric=Rubric(rank), group_size=3, concurrency=concurrency) as groups:
            return sorted([group async for group in groups], key=lambda group: group.index)

    alone, many = asyncio.run(go(1)), asyncio.run(go(16))
    assert [group.rewards for group in alone] == [group.rewards for group in many]
    with RunStore.create(tmp_path / "run.db") as store:
        store.add(many, stage="eval", step=0)
        assert [group.rewards for group in store.groups(stage="eval", step=0)] == [group.rewards for group in alone]


def test_siblings_that_failed_are_left_out_of_the_comparison():
    def say(messages, rng):
        return "crash" if rng.random() < 0.5 else "fine"

    def count(group):
        return [len(group.rollouts)] * len(group.rollouts)

    (group,) = asyncio.run(collect(Rubric(count), say=say, size=8))
    failed = [r for r in group.rollouts if r.stop_reason == "EnvironmentFailure"]
    assert 0 < len(failed) < 8
    assert all(r.trajectory.score is None for r in failed)
    assert group.rewards == [8 - len(failed)] * (8 - len(failed))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ([1.0], "returned 1 values for 4 rollouts"),
        (1.0, "returned 1.0, not a list of one number per rollout of the group"),
        ("1111", "returned '1111', not a list"),
        ([1.0, 1.0, float("nan"), 1.0], "returned nan"),
        (ValueError("oh"), "ValueError: oh"),
    ],
)
def test_a_comparison_that_fails_is_every_siblings_failure(said, told):
    def compare(group):
        if isinstance(said, Exception):
            raise said
        return said

    (group,) = asyncio.run(collect(Rubric(one, compare), say=numbered))
    for played in group.rollouts:
        assert (played.status, played.stop_reason, played.trajectory.score) == (Status.ERROR, "RubricFailure", None)
        assert played.error.startswith(f"compare on task 't': {told}")


def test_a_single_rollout_is_a_group_of_one():
    assert play(Rubric(rank, half)).trajectory.score.parts == {"rank": 0.0, "half": 0.5}


def test_every_seat_is_compared_with_its_own_siblings():
    def seats(trajectories, seat):
        assert {t.seat for t in trajectories} == {seat}
        return [float(seat == "right")] * len(trajectories)

    (group,) = asyncio.run(collect(Rubric(seats), say=lambda messages, rng: "hi", env=Duel(), size=2))
    assert [[t.score.reward for t in r.trajectories] for r in group.rollouts] == [[0.0, 1.0], [0.0, 1.0]]


def test_a_rubric_of_plain_functions_can_be_sent_to_another_process():
    again = pickle.loads(pickle.dumps(Rubric(half, Reward(scale, 2.0), factor=3) + Rubric(one, gate(rank))))
    assert judged(again).parts == {"half": 0.5, "scale": 3.0, "one": 1.0}


@given(st.text())
def test_any_text_is_judged(text):
    assert judged(Rubric(half, rank), said=text).parts == {"half": 0.5}
