"""The nouns and the contracts hold what they say."""

import ast
import asyncio
import builtins
import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wanderlust
from wanderlust import errors
from wanderlust._lazy import import_object, needs_extra
from wanderlust.agent import Agent
from wanderlust.environment import Episode, Limits, Step, StepEnvironment
from wanderlust.errors import (
    Failure,
    PolicyFailure,
    StopEpisode,
    ToolFailure,
    UsageError,
    boundary,
    one_line,
    printable,
)
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.types import (
    Completion,
    Group,
    Rollout,
    Score,
    Task,
    Tokens,
    ToolCall,
    Trajectory,
    Turn,
    assistant,
    system,
    tool_message,
    user,
)

TASK = Task(id="t")


def test_boundary_attributes_what_is_foreign_and_lets_its_own_through():
    with pytest.raises(PolicyFailure, match="KeyError: 'x'") as told, boundary(PolicyFailure):
        raise KeyError("x")
    assert isinstance(told.value.__cause__, KeyError)
    with pytest.raises(ToolFailure) as kept, boundary(PolicyFailure):
        raise ToolFailure("mine", transient=True)
    assert kept.value.transient
    with pytest.raises(StopEpisode), boundary(PolicyFailure):
        raise StopEpisode("enough")
    assert not issubclass(StopEpisode, Failure)


def test_cancellation_crosses_the_boundary():
    async def wait():
        with boundary(PolicyFailure):
            await asyncio.sleep(60)

    async def go():
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(go())


def test_messages_have_the_roles_of_chat():
    call = ToolCall(id="1", name="look", arguments="{}")
    assert [m.role for m in (system("a"), user("b"), assistant("c"), tool_message("d", call))] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]
    assert assistant("c", call).tool_calls == (call,)
    assert tool_message("d", call).tool_call_id == "1"


def test_a_trajectory_knows_its_conversation():
    first = Turn(observation=(user("a"),), action=assistant("b"))
    second = Turn(observation=(user("c"),), action=assistant("d"))
    rewritten = Turn(observation=(user("so far"),), action=assistant("e"), resets_context=True)
    assert [m.content for m in Trajectory(turns=[first, second]).messages] == ["a", "b", "c", "d"]
    assert [m.content for m in Trajectory(turns=[first, rewritten]).messages] == ["so far", "e"]


def test_unscored_rollouts_are_in_no_reward():
    scored = Rollout(task=TASK, seed=0, trajectories=[Trajectory(score=Score(reward=0.0))])
    failed = Rollout(task=TASK, seed=0, trajectories=[Trajectory()])
    assert Group(task=TASK, rollouts=[scored, failed]).rewards == [0.0]


def test_an_agent_records_what_it_was_shown_and_what_the_policy_returned():
    tokens = Tokens(prompt=(1,), completion=(2,), logprobs=(-0.5,))

    class Once:
        async def complete(self, messages, tools=(), *, key=""):
            return Completion(message=assistant(key), finish="length", tokens=tokens, usage={"prompt_tokens": 9})

    agent = Agent(Once(), key="k")
    asyncio.run(agent.act(user("a"), user("b")))
    (turn,) = agent.trajectory.turns
    assert turn.observation == (user("a"), user("b"))
    assert (turn.action, turn.finish, turn.tokens, turn.usage) == (
        assistant("k"),
        "length",
        tokens,
        {"prompt_tokens": 9},
    )
    assert agent.messages == agent.trajectory.messages


def test_a_caller_that_owns_the_context_appends_or_replaces():
    async def go():
        agent = Agent(Scripted(lambda messages, _: str(len(messages))))
        await agent.act_with_context([user("a")])
        await agent.act_with_context([user("a"), assistant("1"), user("b")])
        await agent.act_with_context([user("summary")])
        return agent.trajectory.turns

    turns = asyncio.run(go())
    assert [(len(t.observation), t.resets_context) for t in turns] == [(1, False), (1, False), (1, True)]


def test_an_agent_stops_at_its_limit_before_it_asks():
    agent = Agent(Scripted(["a", "b"]), limits=Limits(max_turns=1))
    asyncio.run(agent.act())
    with pytest.raises(StopEpisode, match="max_turns"):
        asyncio.run(agent.act(user("unseen")))
    assert len(agent.messages) == 1


def test_draws_have_a_key_and_no_order():
    draw = [Episode(TASK, {}, seed).rng("card", n).random() for seed in (0, 1) for n in (0, 1)]
    again = [Episode(TASK, {}, seed).rng("card", n).random() for seed in (0, 1) for n in (1, 0)]
    assert len(set(draw)) == 4
    assert draw == [again[1], again[0], again[3], again[2]]


def test_rewards_of_the_environment_add_up_by_seat():
    episode = Episode(TASK, {"X": Agent(Scripted([])), "O": Agent(Scripted([]))})
    episode.reward("win", 1.0, "X")
    episode.reward("win", 0.5, "X")
    assert episode.rewards == {"X": {"win": 1.5}, "O": {}}
    with pytest.raises(ValueError, match="too many"):
        _ = episode.agent


class Countdown(StepEnvironment):
    def start(self, task, rng):
        return Counter(task.info["from"])


class Counter:
    def __init__(self, left):
        self.left = left

    def reset(self):
        return Step((user(str(self.left)),))

    def step(self, action):
        self.left -= 1
        return Step((user(str(self.left)),), 0.5, self.left == 0, {"left": self.left})


def test_reset_and_step_are_played_by_the_inherited_run():
    played = asyncio.run(rollout(Countdown(), Task(id="t", info={"from": 3}), Scripted(lambda m, _: m[-1].content)))
    assert [t.action.content for t in played.trajectory.turns] == ["3", "2", "1"]
    assert played.trajectory.score.reward == 1.5
    assert played.state == {"left": 0}


def test_parts_are_found_by_name_or_missed_in_one_line():
    assert import_object("json:dumps")({}) == "{}"
    with pytest.raises(UsageError, match="has no 'Name'"):
        import_object("json:Name")
    with pytest.raises(UsageError, match="cannot import"):
        import_object("wanderlust.no_such_room:Name")


def test_a_missing_package_names_its_extra_and_a_missing_module_of_ours_is_an_error():
    with pytest.raises(UsageError, match=r"'no_such_package'.*wanderlust\[gpu\]"), needs_extra("gpu"):
        importlib.import_module("no_such_package.part")
    with pytest.raises(ModuleNotFoundError, match="no_such_room"), needs_extra("gpu"):
        importlib.import_module("wanderlust.no_such_room")


@pytest.mark.parametrize("module", ["types", "environment"])
def test_every_core_type_has_an_example_that_holds(module):
    home = importlib.import_module(f"wanderlust.{module}")
    core = {name for name in wanderlust.__all__ if isinstance(vars(home).get(name), type)}
    examples = {one.name.rpartition(".")[2]: one for one in doctest.DocTestFinder().find(home) if one.examples}
    assert {name for name in core if vars(home)[name].__module__ == home.__name__} - examples.keys() == set()
    assert [name for name, one in examples.items() if doctest.DocTestRunner().run(one).failed] == []


def drawn_errors():
    """The parent of each class in the tree of the module's docstring."""
    parents, stack = {}, []
    for line in errors.__doc__.splitlines():
        if match := re.match(r"((?: {4})+)(\w+)", line):
            del stack[len(match[1]) // 4 - 1 :]
            parents[match[2]] = stack[-1] if stack else None
            stack.append(match[2])
    return parents


def test_the_error_tree_is_the_one_that_is_drawn():
    files = (Path(errors.__file__).parent).rglob("*.py")
    classes = [n for file in files for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.ClassDef)]
    bases = {one.name: ast.unparse(one.bases[0]) for one in classes if one.bases}

    def is_error(name):
        kind = getattr(builtins, name, None)
        return issubclass(kind, BaseException) if isinstance(kind, type) else name in bases and is_error(bases[name])

    drawn = {name: parent for name, parent in drawn_errors().items() if not hasattr(builtins, name)}
    assert drawn == {name: base for name, base in bases.items() if is_error(name)}


@pytest.mark.parametrize("hostile", ["\x1b[2J", "\x9b31m", "a\rb", "\x07", "\x7f", "\u202egnp", "\ud800", "\x00"])
def test_text_from_outside_cannot_steer_a_terminal(hostile):
    assert printable(hostile).isprintable()
    assert printable(hostile) != hostile


def test_text_stays_readable():
    assert printable("zażółć 😀\n\tgęślą") == "zażółć 😀\n\tgęślą"
    assert one_line("a\n  b\r\nc\x1b") == "a\\n  b\\r\\nc\\x1b"
    assert len(one_line("x" * 10**6)) == 200


def test_importing_the_nouns_brings_no_heavy_package():
    code = "import sys, wanderlust.environment, wanderlust.runner.engine; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not any(f"'{name}'" in loaded for name in ("torch", "transformers", "aiohttp", "msgspec", "rich", "numpy"))
