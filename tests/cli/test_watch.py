"""`wander watch`, and a seat of one's own in `wander play`."""

from __future__ import annotations

import asyncio
import io

import pytest

from wanderlust.agent import Agent
from wanderlust.cli.main import main
from wanderlust.cli.watch_command import Watched
from wanderlust.environment import Environment, Episode
from wanderlust.policies.scripted import Scripted
from wanderlust.types import Completion, Task, ToolCall, assistant, user

HERE = "test_watch"


class Talk(Environment):
    """Two seats that talk."""

    seats = ("agent", "user")

    def tasks(self, split="train"):
        return [Task(id=f"{split}-{n}", prompt=(user(f"Talk {n}."),)) for n in range(3)]

    async def run(self, episode: Episode) -> None:
        said = await episode.agents["agent"].act(*episode.task.prompt)
        back = await episode.agents["user"].act(user(said.content))
        episode.reward("same", float(said.content == back.content))


def hello(messages, rng):
    """Says hello, with a control character."""
    return f"hello\x1b[31m {rng.random():.3f}"


def bye(messages, rng):
    """Says bye."""
    return "bye"


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main([*words])
    return int(end.value.code or 0)


def test_an_episode_is_shown_turn_by_turn_and_then_its_reward(capsys):
    words = ["watch", f"{HERE}:Talk", "--policy", f"{HERE}:hello", "--seats", f"user={HERE}:bye", "--task-index", "1"]
    assert run(*words) == 0
    out = capsys.readouterr().out
    assert "\x1b[31m" not in out
    places = [
        out.index(text) for text in ("[user]\nTalk 1.", "[agent]\nhello\\x1b[31m", "[user]\nbye", "Reward of agent: 0")
    ]
    assert places == sorted(places)
    assert run(*words) == 0
    assert capsys.readouterr().out == out
    assert run(*words, "--sample", "1") == 0
    assert capsys.readouterr().out != out
    assert run("watch", f"{HERE}:Talk", "--policy", f"{HERE}:hello", "--task-index", "9") == 2
    assert "there is no task 9" in capsys.readouterr().err


def test_text_is_shown_as_it_is_written_and_calls_after_it():
    class Streams:
        async def complete(self, messages, tools=(), *, key=""):
            raise AssertionError("it streams")

        async def complete_streaming(self, on_text, messages, tools=(), *, key=""):
            on_text("one ")
            on_text("two")
            return Completion(message=assistant("one two three", ToolCall(id="c", name="find", arguments='{"a": 1}')))

    said = []
    agent = Agent(Watched(Streams(), said.append))
    done = asyncio.run(agent.act(user("go")))
    assert done.content == "one two three"
    assert said == ["\n[user]\ngo\n", "\n[agent]\n", "one ", "two", " three\n", 'find({"a": 1})\n']


def test_what_was_shown_is_not_shown_again():
    said = []
    agent = Agent(Watched(Scripted(["a", "b"]), said.append))
    asyncio.run(agent.act(user("x")))
    said.clear()
    asyncio.run(agent.act(user("y")))
    assert "".join(said) == "\n[user]\ny\n\n[agent]\nb\n"
    agent.release()
    assert not agent.policy._shown


def test_a_person_sits_on_the_seat_of_their_choice(capsys, monkeypatch):
    for seat, reads in (("agent", "Talk 0."), ("user", "bye")):
        monkeypatch.setattr("sys.stdin", io.StringIO("bye\n"))
        assert run("play", f"{HERE}:Talk", "--policy", f"{HERE}:bye", "--seat", seat) == 0
        out = capsys.readouterr().out
        assert reads in out
        assert "Reward of agent: 1" in out
    assert run("play", f"{HERE}:Talk", "--policy", f"{HERE}:bye", "--seat", "nobody") == 2
    assert "there is no seat 'nobody'; there are: agent, user" in capsys.readouterr().err
    assert run("play", f"{HERE}:Talk", "--seat", "user") == 2
    assert "name one with --policy" in capsys.readouterr().err
