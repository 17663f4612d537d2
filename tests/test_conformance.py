"""The conformance suite finds nothing in a good environment, and each broken promise in a bad one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count

import pytest

from wanderlust.environment import Environment, Episode, Limits
from wanderlust.environments.tictactoe import TicTacToe, TicTacToeDuel, tictactoe_teacher
from wanderlust.policies.scripted import Scripted
from wanderlust.tasks.registry import load_environment
from wanderlust.testing import EPISODES_PER_TASK, HOSTILE_ANSWERS, ContractViolation, check_environment
from wanderlust.types import Task, user


class Fine(Environment):
    """Two questions, then it is over."""

    def tasks(self, split: str = "train") -> Iterable[Task]:
        return [Task(id=f"{split}-{n}", info={"n": [n]}) for n in range(4)]

    async def run(self, episode: Episode) -> None:
        for question in ("one", "two"):
            reply = await episode.agent.act(user(question))
            episode.state[question] = self.heard(reply.content, episode)
        episode.reward("said", float(len(episode.state)))

    def heard(self, text: str, episode: Episode) -> object:
        return len(text)


class RepeatsIds(Fine):
    def tasks(self, split: str = "train") -> Iterable[Task]:
        return [Task(id="same"), Task(id="same")]


class Empty(Fine):
    def tasks(self, split: str = "train") -> Iterable[Task]:
        return []


class ForgetsItsTasks(Fine):
    def __init__(self) -> None:
        self.numbers = count()

    def tasks(self, split: str = "train") -> Iterable[Task]:
        return [Task(id=f"{split}-{next(self.numbers)}")]


class UnplainTasks(Fine):
    def tasks(self, split: str = "train") -> Iterable[Task]:
        return [Task(id=split, info={"check": lambda: True})]


class Counts(Fine):
    """Every episode goes on counting where the last one stopped."""

    def __init__(self) -> None:
        self.numbers = count()

    def heard(self, text: str, episode: Episode) -> object:
        return next(self.numbers)


class SharesABoard(Fine):
    """Starts afresh in every episode, but on the environment object."""

    async def run(self, episode: Episode) -> None:
        self.said: list[str] = []
        for question in ("one", "two", "three"):
            self.said.append((await episode.agent.act(user(question))).content)
        episode.state["said"] = list(self.said)


class UnplainState(Fine):
    def heard(self, text: str, episode: Episode) -> object:
        return iter(text)


class ChangesItsTask(Fine):
    def heard(self, text: str, episode: Episode) -> object:
        episode.task.info["n"].append(1)
        return 0


class RewardsInfinity(Fine):
    def heard(self, text: str, episode: Episode) -> object:
        episode.reward("infinite", float("inf"))
        return 0


class TrustsTheModel(Fine):
    def heard(self, text: str, episode: Episode) -> object:
        return text[0]


class AlwaysFails(Fine):
    def heard(self, text: str, episode: Episode) -> object:
        raise RuntimeError("out of order")


class Hangs(Fine):
    limits = Limits(timeout=0.02)

    async def run(self, episode: Episode) -> None:
        await asyncio.Event().wait()


def found(env: Environment) -> set[str]:
    return {finding.rule for finding in asyncio.run(check_environment(env))}


@pytest.mark.parametrize("env", [Fine(), TicTacToe(), TicTacToe(wording="course"), TicTacToeDuel()])
def test_good_environments_pass(env: Environment) -> None:
    assert asyncio.run(check_environment(env)) == []


def test_a_real_policy_can_be_brought_along() -> None:
    assert asyncio.run(check_environment(TicTacToe(), tictactoe_teacher(), count=8)) == []


@pytest.mark.parametrize(
    ("env", "rules"),
    [
        (RepeatsIds(), {"tasks"}),
        (Empty(), {"tasks"}),
        (ForgetsItsTasks(), {"tasks"}),
        (UnplainTasks(), {"tasks"}),
        (Counts(), {"repeat"}),
        (SharesABoard(), {"concurrent"}),
        (UnplainState(), {"state"}),
        (ChangesItsTask(), {"mutation"}),
        (RewardsInfinity(), {"reward"}),
        (TrustsTheModel(), {"hostile"}),
        (Hangs(), {"timeout"}),
        (AlwaysFails(), {"failure", "hostile"}),
    ],
)
def test_each_broken_promise_is_found(env: Environment, rules: set[str]) -> None:
    assert found(env) >= rules
    assert found(Fine()) == set()


def test_a_policy_that_fails_is_not_the_environments_fault() -> None:
    assert asyncio.run(check_environment(Fine(), Scripted([]))) == []


def test_every_episode_is_told() -> None:
    told: list[tuple[int, int]] = []
    env = load_environment("calculator")
    asyncio.run(check_environment(env, count=2, on_episode=lambda played, of: told.append((played, of))))
    assert [played for played, _ in told] == [*range(1, len(told) + 1)]
    assert {of for _, of in told} == {len(told)} == {2 * EPISODES_PER_TASK + len(HOSTILE_ANSWERS)}


def test_findings_read_as_one_line() -> None:
    assert str(ContractViolation("reward", "task 't': infinite")) == "reward: task 't': infinite"
