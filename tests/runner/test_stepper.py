"""Any environment, driven from outside."""

import asyncio
from itertools import count

import pytest

from wanderlust.agent import Agent
from wanderlust.environment import Environment, Limits, Step
from wanderlust.errors import EnvironmentFailure, PolicyFailure, RubricFailure, UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.engine import rollout
from wanderlust.runner.stepper import Stepper
from wanderlust.types import Status, Task, assistant, user

TASK = Task(id="t")


class Guess(Environment):
    async def run(self, episode):
        secret = episode.rng().randrange(10)
        said = await episode.agent.act(user("Guess."), user("0 to 9."))
        while said.content != str(secret):
            episode.reward("miss", -0.1)
            said = await episode.agent.act(user(f"Not {said.content}."))
        episode.reward("found", 1.0)
        episode.state["secret"] = secret


def guess(messages, rng):
    return str(rng.randrange(10))


def run(env, drive, **options):
    """What `drive(game)` returns, once nothing is left running."""

    async def go():
        async with Stepper(env, TASK, **options) as game:
            out = await drive(game)
        assert len(asyncio.all_tasks()) == 1
        return out

    return asyncio.run(go())


async def sweep(game):
    """Guess every digit in turn; all steps."""
    steps = [await game.reset()]
    for n in count():
        if steps[-1].done:
            return steps
        steps.append(await game.step(str(n)))


def test_an_episode_is_driven_step_by_step():
    steps = run(Guess(), sweep, seed=3)
    secret = steps[-1].info["secret"]
    assert steps[0] == Step((user("Guess."), user("0 to 9.")))
    assert [s.observation for s in steps[1:-1]] == [(user(f"Not {n}."),) for n in range(secret)]
    assert [s.reward for s in steps[1:]] == pytest.approx([-0.1] * secret + [1.0])
    assert [s.done for s in steps] == [False] * (secret + 1) + [True]


@pytest.mark.parametrize("seed", range(5))
def test_stepping_and_running_are_the_same_episode(seed):
    limits = Limits(max_turns=99)

    async def go():
        played = await rollout(Guess(), TASK, Scripted(guess), seed=seed, limits=limits)
        policy, key = Scripted(guess), f"t/{seed}/0/agent"
        async with Stepper(Guess(), TASK, seed=seed, limits=limits) as game:
            step, messages = await game.reset(), []
            total = step.reward
            while not step.done:
                messages += step.observation
                messages.append((await policy.complete(messages, key=key)).message)
                step = await game.step(messages[-1])
                total += step.reward
            return played, game.rollout, total

    played, stepped, total = asyncio.run(go())
    stepped.seconds = played.seconds
    assert stepped == played
    assert total == pytest.approx(played.trajectory.score.reward)


def test_limits_end_the_episode_and_say_why():
    async def drive(game):
        return await sweep(game), game.rollout

    steps, played = run(Guess(), drive, seed=3, limits=Limits(max_turns=2))
    assert (len(steps), steps[-1].done, played.stop_reason, played.status) == (3, True, "max_turns", Status.TRUNCATED)

    async def dawdle(game):
        await game.reset()
        await asyncio.sleep(0.05)
        with pytest.raises(UsageError, match="not this seat's turn"):
            await game.step("0")
        return game.rollout.stop_reason

    assert run(Guess(), dawdle, limits=Limits(timeout=0.01)) == "timeout"


def test_an_episode_may_begin_again():
    async def drive(game):
        first = await sweep(game)
        await game.reset()
        return first, await sweep(game)

    first, second = run(Guess(), drive)
    assert first == second


def test_turns_out_of_turn_are_refused():
    async def drive(game):
        for early in (lambda: game.step("0"), lambda: rolled(game)):
            with pytest.raises(UsageError):
                await early()
        await sweep(game)
        with pytest.raises(UsageError, match="not this seat's turn"):
            await game.step("0")

    async def rolled(game):
        return game.rollout

    run(Guess(), drive)


class Broken(Environment):
    async def run(self, episode):
        await episode.agent.act(user("?"))
        raise KeyError("x")


def test_a_failure_of_the_environment_surfaces_with_its_cause():
    async def drive(game):
        await game.reset()
        with pytest.raises(EnvironmentFailure, match="KeyError: 'x'") as told:
            await game.step("a")
        return told.value.__cause__, game.rollout.error

    cause, error = run(Broken(), drive)
    assert isinstance(cause, KeyError)
    assert error == "KeyError: 'x'"


def test_a_failure_of_the_rubric_surfaces():
    def bad():
        raise ZeroDivisionError("oh")

    env = Guess()
    env.rubric = Rubric(bad)

    async def drive(game):
        with pytest.raises(RubricFailure, match="oh"):
            await sweep(game)

    run(env, drive)


def test_leaving_early_or_by_an_error_leaves_nothing_running():
    async def drive(game):
        await game.reset()

    run(Guess(), drive)

    async def failing(game):
        await game.reset()
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        run(Guess(), failing)


def test_a_driver_that_is_cancelled_leaves_nothing_running():
    class Slow(Environment):
        async def run(self, episode):
            await asyncio.sleep(60)

    async def go():
        async def drive():
            async with Stepper(Slow(), TASK) as game:
                await game.reset()

        driving = asyncio.create_task(drive())
        await asyncio.sleep(0.01)
        driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving
        return len(asyncio.all_tasks())

    assert asyncio.run(go()) == 1


class Duel(Environment):
    seats = ("X", "O")

    async def run(self, episode):
        said = await episode.agents["X"].act(user("open"))
        said = await episode.agents["O"].act(user(said.content))
        episode.reward("win", 1.0, "O" if said.content == "b" else "X")


def test_one_seat_is_driven_and_others_play_themselves():
    async def drive(game):
        first = await game.reset()
        return first, await game.step("b")

    first, last = run(Duel(), drive, seat="O", others={"X": Scripted(["a"])})
    assert first.observation == (user("a"),)
    assert (last.reward, last.done) == (1.0, True)

    async def failing(game):
        with pytest.raises(PolicyFailure, match="asked for one more"):
            await game.reset()

    run(Duel(), failing, seat="O", others={"X": Scripted([])})


@pytest.mark.parametrize("options", [{}, {"seat": "Z", "others": {"X": None, "O": None}}, {"seat": "O"}])
def test_empty_seats_are_refused(options):
    with pytest.raises(UsageError, match="the seats are X, O"):
        Stepper(Duel(), TASK, **options)


def test_a_rewritten_context_is_seen_whole():
    class Compacting(Environment):
        async def run(self, episode):
            agent: Agent = episode.agent
            await agent.act(user("a"))
            await agent.act_with_context([user("so far"), user("b")])
            await agent.act(user("c"))

    async def drive(game):
        return [await game.reset(), *[await game.step(assistant("x")) for _ in range(3)]]

    steps = run(Compacting(), drive)
    assert [[m.content for m in s.observation] for s in steps] == [["a"], ["so far", "b"], ["c"], []]
