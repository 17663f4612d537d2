"""Mixtures of environments, and replay of records."""

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest

from wanderlust.environment import Environment, Limits
from wanderlust.environments.calculator import Calculator
from wanderlust.environments.kuhn import KuhnPoker, equilibrium_player
from wanderlust.environments.tictactoe import TicTacToe, tictactoe_teacher
from wanderlust.environments.wordle import Wordle
from wanderlust.errors import EnvironmentFailure, UsageError
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.tasks.mixture import Mixture
from wanderlust.testing import check_environment, replay_rollout, rollout_differences
from wanderlust.types import Status, Task, user

MIXED = Mixture({TicTacToe(): 3, Calculator(): 1})


def play(env, task, policy, **options):
    return asyncio.run(rollout(env, task, policy, **options))


class Short(Environment):
    """Ends with the first answer; five tasks."""

    limits = Limits(max_turns=1)

    def tasks(self, split="train"):
        return [Task(id=f"{n}", info={"n": n}) for n in range(5)]

    async def run(self, episode):
        await episode.agent.act(user("?"))
        episode.reward("draw", episode.rng().random())


class Long(Short):
    limits = Limits(max_turns=3)

    async def run(self, episode):
        while True:
            await episode.agent.act(user("?"))


class Slow(Short):
    limits = Limits(timeout=0.02)

    async def run(self, episode):
        await asyncio.Event().wait()


def test_an_evaluation_of_a_mixture_is_kept_in_a_folder_and_goes_on(tmp_path):
    mixture = Mixture({Short(): 1, Calculator(): 1})
    first = evaluate_sync(mixture, Scripted(["4"]), n=6, out=tmp_path / "run", progress=False)
    again = evaluate_sync(mixture, Scripted(["4"]), n=6, out=tmp_path / "run", progress=False)
    assert first.played == again.played == 6
    assert again.reward == first.reward


def test_tasks_come_by_weight_and_seed():
    names = [task.info["environment"] for task in islice(MIXED.tasks(), 400)]
    assert 250 < Counter(names)["tictactoe"] < 350
    assert [t.id for t in islice(MIXED.tasks(), 50)] == [t.id for t in islice(MIXED.tasks(), 50)]
    other = Mixture({TicTacToe(): 3, Calculator(): 1}, seed=1)
    assert [t.id for t in islice(MIXED.tasks(), 50)] != [t.id for t in islice(other.tasks(), 50)]


def test_who_has_no_more_tasks_is_left_out():
    ids = [task.id for task in Mixture({Short(): 9, Long(): 1, Short(): 1}).tasks()]
    assert (len(ids), len({*ids})) == (15, 15)
    assert {name.partition("/")[0] for name in ids} == {"short", "long", "short-2"}


def test_each_is_played_and_judged_as_it_is_alone():
    alone, mixed = Short(), Mixture({Long(): 1, Short(): 1})
    for task in mixed.tasks():
        played = play(mixed, task, Scripted(lambda messages, rng: "x"), seed=7)
        if task.info["environment"] == "short":
            was = play(alone, Task(id=f"{task.info['n']}", info={"n": task.info["n"]}), Scripted(["x"]), seed=7)
            assert played.trajectory.score == was.trajectory.score
        assert len(played.trajectory.turns) == (1 if "short" in task.id else 3)
    board = next(task for task in MIXED.tasks() if "tictactoe" in task.id)
    score = play(MIXED, board, tictactoe_teacher()).trajectory.score
    assert {"result", "format", "invalid"} <= score.parts.keys()
    total = next(task for task in MIXED.tasks() if "calculator" in task.id)
    assert play(MIXED, total, Scripted([total.answer])).trajectory.score.parts == {"right": 1.0}


def test_each_keeps_its_clock():
    slow = Mixture({Slow(): 1, Short(): 1})
    task = next(task for task in slow.tasks() if "slow" in task.id)
    assert (play(slow, task, Scripted([])).stop_reason, play(slow, task, Scripted([])).status) == (
        "timeout",
        Status.TRUNCATED,
    )


def test_what_cannot_be_mixed_is_one_line():
    with pytest.raises(UsageError, match="different seats"):
        Mixture({KuhnPoker(): 1, TicTacToe(): 1})
    with pytest.raises(UsageError, match="above 0"):
        Mixture({TicTacToe(): 0})
    foreign = play(MIXED, Task(id="x"), Scripted(["x"]))
    assert (foreign.stop_reason, foreign.error) == (
        "EnvironmentFailure",
        "the task 'x' is of no environment of this mixture: tictactoe, calculator",
    )


def test_a_mixture_keeps_the_promises():
    assert asyncio.run(check_environment(MIXED)) == []
    assert asyncio.run(check_environment(Mixture({KuhnPoker(): 1}), equilibrium_player())) == []


def recorded(env, policy, seed=3):
    return play(env, next(iter(env.tasks())), policy, seed=seed)


@pytest.mark.parametrize(
    ("env", "policy"),
    [
        (TicTacToe(), tictactoe_teacher()),
        (KuhnPoker(), equilibrium_player()),
        (Wordle(), Scripted(["<guess>[crane]</guess>", "", ""])),
        (Calculator(), Scripted(["17"])),
        (Long(), Scripted(lambda messages, rng: "more")),
        (Long(), Scripted(["one"])),
        (MIXED, Scripted(lambda messages, rng: "<move>4</move>")),
    ],
)
def test_replay_gives_the_record_again(env, policy):
    was = recorded(env, policy)
    again = asyncio.run(replay_rollout(env, was))
    assert again.trajectories[0].turns == was.trajectories[0].turns
    assert [*rollout_differences(was, was)] == []


def changed(was, **change):
    seat = was.trajectory
    return replace(was, trajectories=[replace(seat, **change)])


def test_replay_says_where_it_differs():
    env = TicTacToe()
    was = recorded(env, tictactoe_teacher())
    turns = was.trajectory.turns
    other = replace(turns[1], observation=(user("Another board."),))
    cases = {
        "turn 2 of seat 'agent': message": changed(was, turns=[turns[0], other, *turns[2:]]),
        "it ended with 'max_turns' and ends with 'done'": replace(
            was, stop_reason="max_turns", status=Status.TRUNCATED
        ),
        "the state was": replace(was, state={**was.state, "board": "........."}),
        "the score of 'agent' was": changed(was, score=replace(was.trajectory.score, reward=9.0)),
        "the recording of seat 'agent' ends after": changed(was, turns=turns[:-1]),
        "had": changed(was, turns=[*turns, turns[-1]]),
        "the replay of task .+ differs: ": replace(was, seed=was.seed + 1),
    }
    for says, record in cases.items():
        with pytest.raises(EnvironmentFailure, match=says) as raised:
            asyncio.run(replay_rollout(env, record))
        assert "\n" not in str(raised.value)


def test_environments_of_a_mixture_can_be_named():
    mixed = Mixture({TicTacToe(): 1, TicTacToe(): 1}, names=("open", "closed"))
    assert {task.id.partition("/")[0] for task in islice(mixed.tasks(), 20)} == {"open", "closed"}
