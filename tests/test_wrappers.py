"""A wrapper has everything that the environment within has, but for what it says that it changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar

import pytest

from bars_hub import source
from endings import Seen, Worker
from wanderlust.cli.main import main
from wanderlust.environment import CONTRACT, Environment, Episode, Limits, Revision, WrappedEnvironment
from wanderlust.environments.learned_reward import LearnedReward
from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.policies.resolve import PolicyOptions, resolve_policy
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.runner.stepper import Stepper
from wanderlust.tasks.instructed import Instructed
from wanderlust.tasks.mixture import Mixture
from wanderlust.types import Task, assistant, user
from wanderlust_budget.token_budget import BudgetBlind, TokenBudget
from wanderlust_hub.isolated import IsolatedEnvironment

VALUES = {
    "seats": ("left", "right"),
    "limits": Limits(max_turns=3),
    "players": {"guess": lambda: Scripted(["1"])},
    "oracle_bar": 0.5,
    "choose_by": "shown",
    "group_by": "kind",
}
"""Values of the attributes that a wrapper reads when it is made; every other name of the contract has a mark."""


def declared(name: str) -> Any:
    """A value of a name of the contract that no environment has by default, of the same kind."""
    if isinstance(vars(Environment)[name], FunctionType):
        return lambda self, *_: self
    mark = VALUES.get(name, f"the {name}")
    return property(lambda self: mark) if isinstance(vars(Environment)[name], property) else mark


Whole: Any = type("Whole", (Environment,), {name: declared(name) for name in CONTRACT})


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A folder that is named as a reward model's; nothing is read from it before a score is asked for."""
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForSequenceClassification"]}))
    return str(tmp_path)


class Same(WrappedEnvironment):
    """Changes nothing."""

    def __init__(self, env: Environment):
        self.env = env


OWN = {"run", "with_frozen_seats"}
"""What every wrapper writes itself, and what it then asks of the environment."""
TOLD = {"rubric", "tasks", "players", "oracle", "exact", "duel"}
WRAPPERS: dict[str, tuple[Callable[[Environment, str], Environment], set[str]]] = {
    "as it is": (lambda env, _: Same(env), OWN),
    "observed": (lambda env, _: Stepper(env, Task(id="x"), seat="left", others={"right": Scripted([])})._observed, OWN),
    "seen": (lambda env, _: Seen(env, Worker("")), OWN),
    "instructed": (lambda env, _: Instructed(env, text="Be brief."), OWN | {"tasks", "exact", "duel"}),
    "budget": (lambda env, _: TokenBudget(env, kind="none"), OWN | TOLD),
    "effort": (lambda env, _: TokenBudget(env, kind="effort"), OWN | TOLD | {"oracle_bar", "group_by"}),
    "learned": (
        lambda env, model: LearnedReward(env, model=model),
        OWN | {"rubric", "oracle_bar", "chance_bar", "choose_by"},
    ),
}
"""How each is made, and the names of the contract that it changes."""


def test_the_contract_has_every_public_name_of_an_environment() -> None:
    assert {*CONTRACT} == {name for name in vars(Environment) if not name.startswith("_")}


def test_every_name_of_the_contract_has_a_value_of_its_own() -> None:
    defaults = Mixture({Plain(): 1})
    same = [name for name in CONTRACT if getattr(Whole(), name) == getattr(defaults, name)]
    assert (same, len(CONTRACT) > 15) == ([], True)


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_forwards_all_that_it_does_not_change(name: str, model: str) -> None:
    make, changed = WRAPPERS[name]
    env = Whole()
    wrapper = make(env, model)
    assert {one for one in CONTRACT if getattr(wrapper, one) != getattr(env, one)} == changed


class Plain(Environment):
    """Asks for a letter."""

    players: ClassVar = {"first": lambda: Scripted(["a"])}

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"{split}/1", prompt=(user("?"),), answer="b")]

    async def run(self, episode: Episode) -> None:
        answer = await episode.agent.act(*episode.task.prompt)
        episode.reward(type(self).__name__, float(answer.content == episode.task.answer))

    def oracle(self, task: Task) -> Scripted:
        assert task.id.startswith(("train/", "eval/"))
        return Scripted([str(task.answer)])


class Other(Plain):
    """Has a player of the same name, and a few attributes of its own."""

    players: ClassVar = {"first": lambda: Scripted(["b"]), "second": lambda: Scripted(["c"])}
    choose_by = "shown"
    revision = Revision(improve="Again.")


def reward(env: Environment, task: Task, name: str) -> float | None:
    policy = resolve_policy(name, env, PolicyOptions(split="train")).policy
    played = asyncio.run(rollout(env, task, policy))
    return None if played.trajectory.score is None else played.trajectory.score.reward


def test_a_mixture_has_the_oracle_and_the_players_of_the_task_s_environment() -> None:
    mixed = Mixture({Plain(): 1, Other(): 1})
    tasks = {task.id: task for task in mixed.tasks()}
    assert sorted(tasks) == ["other/train/1", "plain/train/1"]
    assert mixed.has_oracle
    assert {name: reward(mixed, task, "oracle") for name, task in tasks.items()} == dict.fromkeys(tasks, 1.0)
    assert {name: reward(mixed, task, "first") for name, task in tasks.items()} == {
        "plain/train/1": 0.0,
        "other/train/1": 1.0,
    }
    assert [*mixed.players] == ["first"]
    with pytest.raises(PolicyFailure, match="of no environment of this mixture: plain, other"):
        asyncio.run(mixed.players["first"]().complete([user("?")], key="foreign/0/0/agent"))


def test_a_mixture_has_the_attributes_on_which_its_environments_agree() -> None:
    assert Mixture({Other(): 1, Other(): 1}).choose_by == "shown"
    assert Mixture({Other(): 1}).revision == Revision(improve="Again.")
    mixed = Mixture({Plain(): 1, Other(): 1})
    assert (mixed.choose_by, mixed.revision) == (None, Revision())


def test_a_frozen_seat_is_that_of_the_environment_within() -> None:
    class Two(Plain):
        seats = ("agent", "user")

    env = TokenBudget(Two(), kind="exact", min_tokens=8, max_tokens=8)
    frozen = env.with_frozen_seats({"user": Scripted(["x"])})
    assert (type(frozen), [*frozen.frozen_seats], [*env.frozen_seats]) == (TokenBudget, ["user"], [])
    assert [*frozen.env.frozen_seats] == ["user"]  # type: ignore[attr-defined]
    assert env.with_frozen_seats({}) is env
    with pytest.raises(UsageError, match="no seat 'x'"):
        env.with_frozen_seats({"x": Scripted([])})


def test_exact_figures_of_a_game_under_a_budget_that_nobody_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def exact(env: str, policy: str) -> tuple[int, Any]:
        with pytest.raises(SystemExit) as end:
            main(["eval", env, "--policy", policy, "--exact", "--json"])
        written = capsys.readouterr()
        return int(end.value.code or 0), json.loads(written.out) if written.out else written.err

    assert exact("budget,env=tictactoe,kind=none", "optimal") == exact("tictactoe", "optimal")
    code, why = exact("budget,env=tictactoe", "optimal")
    assert (code, "exact figures are those of a policy that is told nothing" in why) == (2, True)
    code, why = exact("budget,env=calculator,kind=none", "oracle")
    assert (code, "cannot compute figures" in why) == (2, True)


def test_a_wrapper_changes_the_second_game_as_it_changes_the_first() -> None:
    class Pair(Plain):
        def duel(self) -> Environment:
            return Other()

        async def exact(self, policy: Any, *, name: str) -> list[dict[str, Any]]:
            return [{"asks": policy}]

    game = Instructed(Pair(), text="Be brief.").duel()
    assert isinstance(game, Instructed)
    assert (type(game.env), next(iter(game.tasks())).prompt[0].content) == (Other, "Be brief.")
    assert TokenBudget(Pair(), kind="exact", min_tokens=8, max_tokens=8).duel() is None
    free = TokenBudget(Pair(), kind="none")
    assert isinstance(free.duel(), Other)
    policy = Scripted([])
    assert asyncio.run(free.exact(BudgetBlind(policy), name="x")) == [{"asks": policy}]
    with pytest.raises(UsageError, match="without the system text"):
        asyncio.run(Instructed(Pair(), text="Be brief.").exact(policy, name="x"))


DECLARED = """
from wanderlust.environment import Environment, Limits, Revision
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Task

def right(completion):
    return 1.0

class Told(Environment):
    seats, limits, rubric, prefixes = ("agent", "user"), Limits(max_turns=3, timeout=9.0), Rubric(right), True
    frozen_seats, players = {"user": Scripted([])}, {"first": lambda: Scripted(["a"])}
    oracle_bar, chance_bar, graded_arguments = 0.5, 0.25, frozenset({"text"})
    choose_by, group_by, revision, extract = "shown", "kind", Revision(improve="Again."), staticmethod(str.strip)

    async def run(self, episode): ...
    def tasks(self, split="train"): return [Task(id="1")]
    def oracle(self, task): return Scripted(["a"])
"""
AT_A_DISTANCE = {"run", "tasks", "oracle", "with_frozen_seats", "rubric", "players", "frozen_seats", "extract"}
"""What is asked for in the other process: `test_hub_add` plays with it."""
NOT_COVERED = {"exact", "has_exact", "duel", "unwrapped", "demonstrations", "first_move"}


def test_an_isolated_environment_declares_what_its_package_does(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(DECLARED)
    space: dict[str, Any] = {"__name__": "told"}
    exec(DECLARED, space)
    here, there = space["Told"](), IsolatedEnvironment(source(tmp_path, "told:Told"))
    try:
        names = set(CONTRACT) - AT_A_DISTANCE - NOT_COVERED
        assert [name for name in names if getattr(here, name) != getattr(there, name)] == []
        assert ([*there.players], [*there.frozen_seats]) == (["first"], ["user"])
        assert there.extract is not None
        assert there.extract(" a ") == "a"
        assert (there.has_exact, there.duel()) == (False, None)
    finally:
        there.close()


def test_what_a_driven_episode_says_of_itself_is_the_environment_s() -> None:
    async def drive() -> float:
        async with Stepper(Plain(), next(iter(Plain().tasks()))) as game:
            await game.reset()
            return (await game.step(assistant("b"))).reward

    assert asyncio.run(drive()) == 1.0
