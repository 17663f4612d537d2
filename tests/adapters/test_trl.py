"""Environments inside TRL: its contract of shapes, and real GRPO steps whose rewards are ours for the same actions."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peer import ROOT, TRL, made
from examples.tool_test import ToolTest
from transformers.utils import get_json_schema

from sums import Sums
from toys import Twice
from wanderlust.adapters.trl import trl_environments
from wanderlust.environment import Environment, Episode, Limits
from wanderlust.environments.calculator import Calculator
from wanderlust.errors import StopEpisode, UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Message, Task, ToolCall, assistant, user


def public(place: object) -> list[str]:
    """The methods that TRL takes as tools."""
    return [name for name in dir(type(place)) if not name.startswith("_") and name not in ("reset", "get_reward")]


def stopping(messages: object, rng: object) -> str:
    """A model that never made a move."""
    raise StopEpisode("max_turns")


def ours(env: Environment, index: int, actions: list[Message], *, seed: int = 0) -> float | None:
    """The reward of the same actions without TRL; actions that are missing end the episode as a limit would."""
    task, bounds = list(env.tasks())[index], Limits(max_turns=max(len(actions), 1))
    played = asyncio.run(rollout(env, task, Scripted(actions or stopping), seed=seed, limits=bounds))
    score = played.trajectory.score
    return score.reward if score is not None else None


def test_tools_become_methods_that_say_the_same() -> None:
    with trl_environments(ToolTest()) as factory:
        place = factory()
        told = {name: get_json_schema(getattr(place, name))["function"] for name in public(place)}
    kinds = {"tool_A": "integer", "tool_B": "string", "tool_C": "number", "tool_D": "boolean"}
    assert {name: one["parameters"]["properties"]["x"]["type"] for name, one in told.items()} == kinds
    assert told["tool_A"]["description"] == "Add 1 to a whole number."
    with trl_environments(Calculator()) as factory:
        told = get_json_schema(factory().add)["function"]
    numbers = {"type": "array", "items": {"type": "integer"}, "description": "What to add up."}
    assert told["parameters"] == {"type": "object", "properties": {"numbers": numbers}, "required": ["numbers"]}


def test_a_tool_environment_is_judged_by_the_last_words_too() -> None:
    with trl_environments(Sums()) as factory:
        places = [factory() for _ in range(3)]
        rows = factory.rows(2)
        for place in places:
            place.reset(**rows[1])
        assert places[0].add(numbers=[1, 2]) == "3"
        assert not hasattr(places[0], "get_reward")
        (judge,) = factory.reward_funcs
        said = [[{"role": "assistant", "content": text}] for text in ("3", "it is 4")]
        cut = [{"role": "assistant", "content": "", "tool_calls": [{}]}]
        assert judge(completions=[*said, cut], environments=places) == [1.0, 0.0, 0.0]
        with pytest.raises(UsageError, match="the episode is over"):
            places[0].add(numbers=[1])
    assert rows[1] == {"prompt": [{"role": "user", "content": "1 + 2"}], "index": 1, "seed": 0}
    assert "wanderlust-trl" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("said", ["bc", "bb", "b", "", "dd"])
def test_a_game_is_played_by_one_tool(said: str) -> None:
    with trl_environments(Twice()) as factory:
        place = factory()
        assert public(place) == ["act"]
        assert get_json_schema(place.act)["function"]["parameters"]["required"] == ["text"]
        assert factory.reward_funcs == []
        place.reset(index=0)
        told = [place.act(text=letter) for letter in said]
        reward = place.get_reward()
        place.reset(index=0)
        assert [place.act(text=letter) for letter in said] == told
    assert told == ["c", "The episode is over."][: len(said)]
    assert reward == sum(0.5 for a, b in zip(said, "bc", strict=False) if a == b)


class Odd(Environment):
    async def run(self, episode: Episode) -> None:
        await episode.agent.act(user("Say something."))
        raise RuntimeError("the place fell apart")

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id="odd")]


def test_a_failure_of_the_environment_is_no_reward_of_zero() -> None:
    with trl_environments(Odd()) as factory:
        place = factory()
        place.reset()
        with pytest.raises(Exception, match="the place fell apart"):
            place.act(text="hello")
        assert place.get_reward() is None


def test_tools_with_names_of_the_contract_are_refused() -> None:
    def reset() -> None:
        """Begin anew."""

    with pytest.raises(UsageError, match="the tool 'reset' cannot be a method"):
        trl_environments(ToolEnvironment([Task(id="t", prompt=(user("x"),))], tools=[reset]))


def actions(completion: list[dict[str, Any]]) -> list[Message]:
    """What the model did, as the environment was told: every call a turn, and its last words."""
    out: list[Message] = []
    for message in completion:
        for call in message.get("tool_calls") or []:
            function, place = call["function"], len(out)
            if function["name"] == "add" and isinstance(function["arguments"], dict):
                arguments = json.dumps(function["arguments"])
                out.append(assistant("", ToolCall(id=f"call-{place}", name="add", arguments=arguments)))
    if completion[-1]["role"] == "assistant" and not completion[-1].get("tool_calls"):
        out.append(assistant(completion[-1]["content"] or ""))
    return out


def moves(completion: list[dict[str, Any]]) -> list[Message]:
    """What the model said by `act`, where the call was right."""
    calls = [call["function"] for message in completion for call in message.get("tool_calls") or []]
    right = [call for call in calls if call["name"] == "act" and set(call["arguments"]) == {"text"}]
    return [assistant(str(call["arguments"]["text"])) for call in right]


@pytest.mark.parametrize(("game", "env", "read"), [("sums", Sums(), actions), ("twice", Twice(), moves)])
def test_rewards_in_real_grpo_are_ours(game: str, env: Environment, read: Any, tmp_path: Path) -> None:
    python = made(TRL)
    if python is None:
        pytest.skip("TRL is not installed: make peers")
    command = [python, "-m", "benchmarks.peers.trl_training", game, "2", tmp_path]
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])}
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **paths}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told["rollouts"]) == 2 * 16
    assert len(told["logged"]) == 2
    rewards = [one["reward"] for one in told["rollouts"]]
    assert len(set(rewards)) > 1
    for one in told["rollouts"]:
        assert ours(env, one["index"], read(one["completion"]), seed=one["seed"]) == one["reward"]
