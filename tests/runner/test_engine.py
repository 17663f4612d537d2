"""The engine: failures are data, limits truncate, nothing is left running."""

import asyncio
from itertools import count

import pytest

from wanderlust.environment import Environment, Limits
from wanderlust.errors import PolicyFailure, StopEpisode
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.engine import rollout, rollouts
from wanderlust.types import Completion, Score, Status, Task, assistant, user

TASKS = [Task(id=f"t{n}") for n in range(20)]


class Chat(Environment):
    """Talks until the policy says `end`; pays for each turn."""

    async def run(self, episode):
        while (await episode.agent.act(user(f"{episode.rng(1).random()}"))).content != "end":
            episode.reward("turns", 1.0)
        episode.state["over"] = True


class Policy:
    """Answers by a coroutine function of the key."""

    def __init__(self, answer):
        self.answer, self.released = answer, []

    async def complete(self, messages, tools=(), *, key=""):
        return Completion(message=assistant(await self.answer(key)))

    def release(self, key):
        self.released.append(key)


END = Scripted(["on", "end"])


def play(env=None, policy=END, **options):
    return asyncio.run(rollout(env or Chat(), TASKS[0], policy, **options))


async def collect(*args, **options):
    async with rollouts(*args, **options) as groups:
        return [group async for group in groups]


def test_an_episode_is_recorded_and_scored():
    played = play(seed=5)
    assert (played.status, played.stop_reason, played.error, played.seed) == (Status.DONE, "done", None, 5)
    assert played.trajectory.score == Score(reward=1.0, parts={"turns": 1.0})
    assert played.state == {"over": True}
    assert played.seconds > 0


def test_equal_keys_give_equal_rollouts():
    say = Scripted(lambda messages, rng: "end" if rng.random() < 0.2 else f"{rng.random()}")
    first, second = play(policy=say, seed=3), play(policy=say, seed=3)
    assert first.trajectory == second.trajectory
    assert play(policy=say, seed=4).trajectory != first.trajectory


class Broken(Environment):
    async def run(self, episode):
        await episode.agent.act(user("hi"))
        raise KeyError("x")


async def refuse(key):
    raise ConnectionError("nope")


def bad_reward():
    raise ZeroDivisionError("oh")


@pytest.mark.parametrize(
    ("options", "stop", "error"),
    [
        ({"env": Broken()}, "EnvironmentFailure", "KeyError: 'x'"),
        ({"policy": Policy(refuse)}, "PolicyFailure", "ConnectionError: nope"),
        (
            {"policy": Scripted(["on"])},
            "PolicyFailure",
            "IndexError: the script has 1 lines and was asked for one more",
        ),
        ({"rubric": Rubric(bad_reward)}, "RubricFailure", "bad_reward on task 't0': ZeroDivisionError: oh"),
    ],
)
def test_failures_are_data_and_never_a_score(options, stop, error):
    played = play(**options)
    assert (played.status, played.stop_reason, played.error) == (Status.ERROR, stop, error)
    assert played.trajectory.score is None


def test_limits_truncate_and_what_was_played_is_scored():
    played = play(policy=Scripted(lambda messages, _: "on"), limits=Limits(max_turns=3))
    assert (played.status, played.stop_reason, len(played.trajectory.turns)) == (Status.TRUNCATED, "max_turns", 3)
    assert played.trajectory.score.reward == 3.0


async def hang(key):
    await asyncio.sleep(60)


async def hang_and_mangle(key):
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        raise RuntimeError("cut off") from None


@pytest.mark.parametrize("answer", [hang, hang_and_mangle])
def test_a_timeout_truncates_even_when_the_policy_turns_it_into_an_error(answer):
    played = play(policy=Policy(answer), limits=Limits(timeout=0.05))
    assert (played.status, played.stop_reason, played.error) == (Status.TRUNCATED, "timeout", None)


def test_a_policy_may_end_the_episode():
    async def quit_game(key):
        raise StopEpisode("quit")

    played = play(policy=Policy(quit_game))
    assert (played.status, played.stop_reason, played.error) == (Status.TRUNCATED, "quit", None)


def test_a_policy_is_told_when_a_conversation_is_over():
    for answer in (hang, refuse):
        policy = Policy(answer)
        play(policy=policy, limits=Limits(timeout=0.02))
        assert policy.released == ["t0/0/0/agent"]


def test_cancellation_escapes_and_releases():
    async def go():
        policy = Policy(hang)
        playing = asyncio.create_task(rollout(Chat(), TASKS[0], policy))
        await asyncio.sleep(0.01)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        return policy.released, len(asyncio.all_tasks())

    assert asyncio.run(go()) == (["t0/0/0/agent"], 1)


def test_groups_are_whole_and_siblings_share_the_seed_but_not_the_draws():
    say = Scripted(lambda messages, rng: "end" if len(messages) > 2 else f"{rng.random()}")
    groups = asyncio.run(collect(Chat(), TASKS, say, group_size=4, concurrency=7, seed=9))
    assert sorted(g.index for g in groups) == list(range(20))
    assert all(g.task is TASKS[g.index] for g in groups)
    for group in groups:
        assert [r.sample_index for r in group.rollouts] == [0, 1, 2, 3]
        assert {r.seed for r in group.rollouts} == {9}
        assert len({r.trajectory.turns[0].observation for r in group.rollouts}) == 1
        assert len({r.trajectory.turns[0].action for r in group.rollouts}) == 4
    seen = {g.rollouts[0].trajectory.turns[0].observation for g in groups}
    assert len(seen) == 20


def test_a_task_that_comes_again_is_another_episode():
    groups = asyncio.run(collect(Chat(), [TASKS[0], TASKS[0]], END))
    assert len({g.rollouts[0].trajectory.turns[0].observation for g in groups}) == 2


def test_concurrency_is_reached_and_never_exceeded():
    live = peak = 0

    async def answer(key):
        nonlocal live, peak
        live += 1
        peak = max(peak, live)
        await asyncio.sleep(0.001)
        live -= 1
        return "end"

    asyncio.run(collect(Chat(), TASKS, Policy(answer), group_size=3, concurrency=7))
    assert peak == 7


def endless(made):
    for n in count():
        made.append(n)
        yield Task(id=f"e{n}")


def test_endless_tasks_are_pulled_lazily_and_an_early_exit_leaves_nothing_running():
    async def go():
        made, got, policy = [], 0, Policy(hang_now_and_then)
        async with rollouts(Chat(), endless(made), policy, group_size=2, concurrency=4) as groups:
            async for _ in groups:
                got += 1
                if got == 5:
                    break
        return len(asyncio.all_tasks()), len(made)

    async def hang_now_and_then(key):
        if key.startswith("e3"):
            await asyncio.sleep(60)
        return "end"

    alive, pulled = asyncio.run(go())
    assert alive == 1
    assert pulled < 40


def test_a_consumer_that_is_slow_holds_the_players_back():
    async def go():
        made = []
        async with rollouts(Chat(), endless(made), END, concurrency=3) as groups:
            await anext(groups)
            await asyncio.sleep(0.05)
            return len(made)

    assert asyncio.run(go()) <= 8


def test_an_error_of_the_consumer_leaves_nothing_running():
    async def consume():
        async with rollouts(Chat(), endless([]), END) as groups:
            await anext(groups)
            raise OSError("disk")

    async def go():
        with pytest.raises(OSError, match="disk"):
            await consume()
        return len(asyncio.all_tasks())

    assert asyncio.run(go()) == 1


def test_cancelling_the_consumer_leaves_nothing_running():
    async def go():
        consumer = asyncio.create_task(collect(Chat(), endless([]), Policy(hang), concurrency=5))
        await asyncio.sleep(0.02)
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer
        return len(asyncio.all_tasks())

    assert asyncio.run(go()) == 1


def test_a_bug_in_the_task_stream_surfaces():
    def broken():
        yield TASKS[0]
        raise OSError("disk")

    with pytest.raises(ExceptionGroup) as told:
        asyncio.run(collect(Chat(), broken(), END, concurrency=3))
    assert told.group_contains(OSError, match="disk")


@pytest.mark.parametrize(("transient", "calls"), [(True, 2), (False, 1)])
def test_only_transient_failures_are_tried_again(transient, calls):
    asked = []

    async def stumble(key):
        asked.append(key)
        if len(asked) == 1:
            raise PolicyFailure("busy", transient=transient)
        return "end"

    (group,) = asyncio.run(collect(Chat(), TASKS[:1], Policy(stumble), retries=1))
    assert len(asked) == calls
    assert len(set(asked)) == 1
    assert group.rollouts[0].status is (Status.DONE if transient else Status.ERROR)


def test_transient_failures_that_stay_are_recorded_as_such():
    async def busy(key):
        raise PolicyFailure("busy", transient=True)

    (group,) = asyncio.run(collect(Chat(), TASKS[:1], Policy(busy), retries=1))
    assert (group.rollouts[0].error, group.rollouts[0].transient) == ("busy", True)


class Duel(Environment):
    seats = ("X", "O")

    async def run(self, episode):
        said = await episode.agents["X"].act(user("open"))
        await episode.agents["O"].act(user(said.content))
        episode.reward("win", 1.0, "X")


def test_several_seats_have_policies_and_scores_of_their_own():
    played = play(Duel(), {"X": Scripted(["a"]), "O": Scripted(lambda messages, _: messages[-1].content * 2)})
    assert {t.seat: t.turns[0].action.content for t in played.trajectories} == {"X": "a", "O": "aa"}
    assert [t.score.reward for t in played.trajectories] == [1.0, 0.0]
    assert [t.turns[0].action.content for t in play(Duel(), Scripted(["z"])).trajectories] == ["z", "z"]
