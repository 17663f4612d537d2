"""Scripted, human and recorded policies, and the look-alike of the OpenAI client."""

import asyncio
import os
import pty
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from patience import PATIENCE
from project_files import ROOT
from wanderlust.agent import Agent
from wanderlust.environment import Environment, Limits
from wanderlust.errors import PolicyFailure, StopEpisode, ToolFailure, UsageError
from wanderlust.openai_types import tool_from_wire
from wanderlust.policies.human import Human
from wanderlust.policies.scripted import Recorded, Scripted
from wanderlust.runner.engine import rollout
from wanderlust.serving.openai_client import Client
from wanderlust.types import (
    Completion,
    DeclaredTool,
    Message,
    Rollout,
    Status,
    Task,
    Tokens,
    ToolCall,
    assistant,
    tool_message,
    user,
)

TASK = Task(id="t")


class Guess(Environment):
    """Guess a digit; wrong guesses are told."""

    async def run(self, episode):
        secret = episode.rng().randrange(10)
        said = await episode.agent.act(user("Guess."))
        while said.content != str(secret):
            said = await episode.agent.act(user(f"Not {said.content}."))
        episode.reward("found", 1.0)


def guess(messages, rng):
    return str(rng.randrange(10))


def play(policy, env=None, **options):
    return asyncio.run(rollout(env or Guess(), TASK, policy, **options))


# Scripted


def test_scripts_are_keyed_and_lines_follow_the_turns():
    first = play(Scripted(guess), limits=Limits(max_turns=99))
    assert first.trajectory == play(Scripted(guess), limits=Limits(max_turns=99)).trajectory
    lines = play(Scripted([assistant("a"), "b"]))
    assert [t.action.content for t in lines.trajectory.turns] == ["a", "b"]
    assert "asked for one more" in lines.error


def test_examples_in_the_prompt_are_no_turns_of_the_script():
    examples = (user("1?"), assistant("1"), user("2?"), assistant("2"), user("3?"))

    class Shown(Environment):
        async def run(self, episode):
            await episode.agent.act(*examples)
            await episode.agent.act(user("4?"))

    policy = Scripted(["a", "b"])
    for _ in range(2):  # one object serves several episodes
        assert [t.action.content for t in play(policy, Shown()).trajectory.turns] == ["a", "b"]


# Human


def person(*lines):
    """Answers line by line, then leaves; remembers what was on the screen."""
    left, screen = list(lines), []

    def ask(prompt):
        if not left:
            raise EOFError
        return left.pop(0)

    return Human(ask, screen.append), screen


def test_a_person_sees_what_is_new_and_answers():
    human, screen = person(*map(str, range(10)))
    played = play(human)
    assert played.status is Status.DONE
    guesses = [t.action.content for t in played.trajectory.turns]
    assert screen == ["[user] Guess."] + [f"[user] Not {g}." for g in guesses[:-1]]


def test_a_person_may_leave():
    human, _ = person()
    played = play(human)
    assert (played.status, played.stop_reason, played.error) == (Status.TRUNCATED, "quit", None)


def test_a_rewritten_conversation_is_shown_whole_and_an_ended_one_forgotten():
    human, screen = person("a", "b", "c")

    async def go():
        await human.complete([user("1")], key="k")
        await human.complete([user("2"), user("3")], key="k")
        human.release("k")
        await human.complete([user("2")], key="k")

    asyncio.run(go())
    assert screen == ["[user] 1", "[user] 2", "[user] 3", "[user] 2"]


def test_hostile_text_cannot_steer_the_terminal_and_odd_input_is_text():
    human, screen = person("a\udcffb")
    done = asyncio.run(human.complete([user("\x1b]0;owned\x07\x1b[2Jhi\rho")]))
    assert screen == ["[user] \\x1b]0;owned\\x07\\x1b[2Jhi\\rho"]
    assert done.message == assistant("a\\udcffb")


def test_the_loop_lives_while_the_person_thinks_and_an_error_of_asking_is_the_policys():
    gate = threading.Event()

    def ask(prompt):
        gate.wait(5)
        raise OSError("no terminal")

    async def go():
        playing = asyncio.create_task(rollout(Guess(), TASK, Human(ask, lambda line: None)))
        await asyncio.sleep(0.01)
        gate.set()
        return await playing

    played = asyncio.run(go())
    assert (played.stop_reason, played.error) == ("PolicyFailure", "OSError: no terminal")


def test_leaving_does_not_wait_for_the_person():
    gate = threading.Event()
    played = play(Human(lambda prompt: str(gate.wait()), lambda line: None), limits=Limits(timeout=0.05))
    assert played.stop_reason == "timeout"
    gate.set()


GAME = """
import asyncio
from test_policies import TASK, Guess
from wanderlust.policies.human import Human
from wanderlust.runner.engine import rollout
print("ended:", asyncio.run(rollout(Guess(), TASK, Human())).stop_reason)
"""


@pytest.fixture
def terminal():
    """The game in a process of its own, on a real terminal."""
    ours, theirs = pty.openpty()
    here = Path(__file__).parent
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(ROOT / "tests"), str(ROOT / "src")])}
    command = [sys.executable, "-c", GAME]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True)
    os.close(theirs)
    yield SimpleNamespace(process=process, file=ours)
    process.kill()
    process.wait()
    os.close(ours)


def until(terminal, text):
    """Everything the terminal showed, up to `text`."""
    shown = b""
    while text not in shown:
        shown += os.read(terminal.file, 1000)
    return shown.decode()


def test_a_person_plays_in_a_real_terminal_and_leaves_with_control_d(terminal):
    assert "[user] Guess." in until(terminal, b"> ")
    os.write(terminal.file, b"x\n")
    assert "[user] Not x." in until(terminal, b"> ")
    os.write(terminal.file, b"\x04")
    until(terminal, b"ended: quit")
    assert terminal.process.wait(PATIENCE) == 0


def test_control_c_at_a_real_terminal_ends_at_once(terminal):
    until(terminal, b"> ")
    terminal.process.send_signal(signal.SIGINT)
    until(terminal, b"KeyboardInterrupt")
    assert terminal.process.wait(PATIENCE) == -signal.SIGINT  # and not of an abort over the thread that still reads


# Recorded


class Sampled:
    """Answers with tokens, usage and an odd finish."""

    async def complete(self, messages, tools=(), *, key=""):
        rng = Random(f"{key}/{len(messages)}")
        tokens = Tokens(prompt=(1,), completion=(rng.randrange(9),), logprobs=(-rng.random(),), version=2)
        said = Message("assistant", str(rng.randrange(10)), reasoning="hm")
        return Completion(message=said, finish="length", tokens=tokens, usage={"prompt_tokens": len(messages)})


def same(one, other):
    return replace(one, seconds=0) == replace(other, seconds=0)


def test_a_replay_is_the_same_rollout():
    for policy in (Scripted(guess), Sampled()):
        played = play(policy, seed=4, limits=Limits(max_turns=99))
        replayed = play(Recorded(played), seed=4, limits=Limits(max_turns=99))
        assert same(replayed, played)
        assert len(played.trajectory.turns) > 1


class Compacting(Environment):
    async def run(self, episode):
        await episode.agent.act(user("a"))
        await episode.agent.act_with_context([user("so far")])
        await episode.agent.act(user("b"))


def test_rewritten_contexts_are_replayed():
    played = play(Scripted(guess), Compacting())
    assert [t.resets_context for t in played.trajectory.turns] == [False, True, False]
    assert same(play(Recorded(played), Compacting()), played)


def test_one_recording_replays_again_and_at_once():
    played = play(Scripted(guess), Compacting())
    recorded = Recorded(played)

    async def twice():
        return await asyncio.gather(*(rollout(Compacting(), Task(id=n), recorded) for n in ("t", "u")))

    for first, other in (asyncio.run(twice()), asyncio.run(twice())):
        assert same(first, played)
        assert other.trajectory == played.trajectory


class Duel(Environment):
    seats = ("X", "O")

    async def run(self, episode):
        for _ in range(3):
            said = await episode.agents["X"].act(user("?"))
            await episode.agents["O"].act(user(said.content))


def test_every_seat_is_replayed():
    played = play({"X": Scripted(guess), "O": Scripted(lambda m, _: m[-1].content * 2)}, Duel())
    assert same(play(Recorded(played), Duel()), played)
    alone = asyncio.run(rollout(Guess(), TASK, Recorded(played)))
    assert alone.error == "the recording has no seat 'agent'; there are X, O"


def test_a_conversation_that_differs_is_told():
    played = play(Scripted(["a", "b", "c"]), seed=4, limits=Limits(max_turns=3))
    short = replace(played, trajectories=[replace(played.trajectory, turns=played.trajectory.turns[:1])])
    assert play(Recorded(short), seed=4).error == "the recording of seat 'agent' ends after 1 turns"

    class Other(Guess):
        async def run(self, episode):
            await episode.agent.act(user("Guess!\nPlease."))

    told = play(Recorded(played), Other(), seed=4)
    assert "turn 1 of seat 'agent': message 1 was Message(" in told.error
    assert "\n" not in told.error
    with pytest.raises(UsageError, match="no seat"):
        Recorded(Rollout(task=TASK, seed=0))


# The look-alike of the client


def acted(program, policy, **limits):
    """What `program(client)` returns, and the turns it left."""
    agent = Agent(policy, key="k", limits=Limits(**limits))
    return asyncio.run(program(Client(agent))), agent.trajectory.turns


def test_a_program_with_its_own_loop_is_recorded_turn_by_turn():
    async def program(client):
        messages = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "hi"}]
        for _ in range(3):
            done = await client.chat.completions.create(model="m", messages=messages, temperature=0.3)
            messages.append(done.choices[0].message)
            messages.append(
                {"role": "user", "content": [{"type": "text", "text": "go "}, {"type": "text", "text": "on"}]}
            )
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "so far"}])
        return done

    done, turns = acted(program, Sampled())
    assert [t.resets_context for t in turns] == [False, False, False, True]  # though reasoning never travels
    assert [len(t.observation) for t in turns] == [2, 1, 1, 1]
    assert turns[1].observation == (user("go on"),)
    assert turns[0].observation[0].role == "system"
    assert (done.model, done.choices[0].finish_reason, done.usage.prompt_tokens) == ("m", "length", 6)
    assert done.model_dump()["choices"][0]["message"]["content"] == turns[2].action.content


def test_tools_are_offered_and_tool_calls_returned():
    call = ToolCall(id="1", name="look", arguments='{"at": 2}')

    class Looks:
        def __init__(self):
            self.offered = []

        async def complete(self, messages, tools=(), *, key=""):
            self.offered = list(tools)
            return Completion(message=assistant("seen" if messages[-1].role == "tool" else "", call))

    async def program(client):
        schema = {"type": "object", "properties": {"at": {"type": "integer"}}}
        tools = [{"type": "function", "function": {"name": "look", "description": "d", "parameters": schema}}]
        messages = [{"role": "user", "content": "hi"}]
        done = await client.chat.completions.create(messages=messages, tools=tools)
        said = done.choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        messages.append({"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "a wall"})
        await client.chat.completions.create(messages=messages, tools=tools)
        return done

    policy = Looks()
    done, turns = acted(program, policy)
    (choice,) = done.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert choice.message.tool_calls[0].function.arguments == '{"at": 2}'
    assert turns[1].observation == (tool_message("a wall", call),)
    assert not turns[1].resets_context
    (offered,) = policy.offered
    assert isinstance(offered, DeclaredTool)
    assert (offered.name, offered.description, offered.schema["type"]) == ("look", "d", "object")
    with pytest.raises(ToolFailure, match="the program that declared it"):
        asyncio.run(offered(at=1))


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({"n": 2}, "one answer at a time"),
        ({"messages": [{"role": "function", "content": "x"}]}, "the role 'function'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "an image at 'None'"),
        ({"tools": [{"type": "web_search"}]}, "'web_search'; only functions"),
    ],
)
def test_what_a_seat_cannot_do_is_refused(request_, told):
    async def program(client):
        with pytest.raises(UsageError, match=told):
            await client.chat.completions.create(**{"messages": [{"role": "user", "content": "x"}], **request_})

    assert acted(program, Scripted(["a"]))[1] == []


def test_limits_and_failures_reach_the_program():
    async def program(client):
        messages = [{"role": "user", "content": "x"}]
        await client.chat.completions.create(messages=messages)
        with pytest.raises(StopEpisode, match="max_turns"):
            await client.chat.completions.create(messages=messages)

    acted(program, Scripted(["a"]), max_turns=1)

    async def failing(client):
        with pytest.raises(PolicyFailure):
            await client.chat.completions.create(messages=[])

    acted(failing, Scripted([]))


def test_a_tool_without_parameters_takes_none():
    assert tool_from_wire({"function": {"name": "now"}}).schema == {"type": "object", "properties": {}}
