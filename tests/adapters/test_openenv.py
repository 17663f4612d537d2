"""An environment behind OpenEnv's protocol: what a plain client and OpenEnv's own see, and what strangers cannot do."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from benchmarks.peer import OPENENV, ROOT, made

from patience import PATIENCE
from sums import Sums
from wanderlust.adapters import openenv
from wanderlust.adapters.openenv import EnvironmentServer
from wanderlust.environment import Environment, Episode
from wanderlust.environments.kuhn import KuhnPoker
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.types import Task, ToolCall, assistant, user

TOKEN = "only-for-tests"
WITH_TOKEN = {"Authorization": f"Bearer {TOKEN}"}
Talk = Callable[[aiohttp.ClientWebSocketResponse], Awaitable[Any]]


class Guess(Environment):
    """Guess a digit; every miss costs a little."""

    async def run(self, episode: Episode) -> None:
        secret = episode.rng().randrange(10)
        said = await episode.agent.act(user("Guess."))
        while said.content != str(secret):
            episode.reward("miss", -0.25)
            said = await episode.agent.act(user("No."))
        episode.reward("found", 1.0)
        episode.state["secret"] = secret

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"{split}-{n}") for n in range(3)]


class Broken(Environment):
    async def run(self, episode: Episode) -> None:
        await episode.agent.act(user("Go on."))
        raise ZeroDivisionError("oh")

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id="t")]


def talk(env: Environment, said: Talk, **more: Any) -> Any:
    """What `said` returns, connected with the token; nothing is left running."""

    async def go() -> Any:
        async with (
            EnvironmentServer(env, token=TOKEN, **more).listening() as url,
            aiohttp.ClientSession() as client,
            client.ws_connect(f"{url}/ws", headers=WITH_TOKEN) as socket,
        ):
            out = await said(socket)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1
        return out

    return asyncio.run(go())


async def ask(socket: aiohttp.ClientWebSocketResponse, kind: str, **data: Any) -> dict[str, Any]:
    await socket.send_json({"type": kind, "data": data})
    told: dict[str, Any] = await socket.receive_json(timeout=PATIENCE)
    return told


def test_an_episode_over_the_wire_is_the_episode_at_home() -> None:
    async def play(socket: aiohttp.ClientWebSocketResponse) -> list[dict[str, Any]]:
        steps = [await ask(socket, "reset", index=1, seed=5)]
        for digit in range(10):
            steps.append(await ask(socket, "step", text=str(digit)))
            if steps[-1]["data"]["done"]:
                break
        steps.append(await ask(socket, "state"))
        return steps

    *steps, state = talk(Guess(), play)
    last, count = steps[-1]["data"], len(steps) - 1
    tasks = Guess().tasks()
    here = asyncio.run(rollout(Guess(), tasks[1], Scripted([str(n) for n in range(10)]), seed=5))
    assert [s["type"] for s in steps] == ["observation"] * len(steps)
    assert steps[0]["data"]["observation"]["text"] == "Guess."
    assert last["observation"]["metadata"] == here.state == {"secret": count - 1}
    assert here.trajectory.score is not None
    assert sum(s["data"]["reward"] for s in steps) == pytest.approx(here.trajectory.score.reward)
    expected = {"task": "train-1", "episode_id": "train-1", "step_count": count, "done": True}
    assert state["data"] == {**expected, "reward": pytest.approx(here.trajectory.score.reward)}


@pytest.mark.parametrize(
    "call",
    [
        {"type": "call_tool", "tool_name": "add", "arguments": {"numbers": [1, 2]}},
        {"tool_calls": [{"name": "add", "arguments": {"numbers": [1, 2]}}]},
    ],
)
def test_tools_are_listed_called_and_judged(call: dict[str, Any]) -> None:
    async def play(socket: aiohttp.ClientWebSocketResponse) -> list[dict[str, Any]]:
        return [
            await ask(socket, "reset", index=1),
            await ask(socket, "step", type="list_tools"),
            await ask(socket, "step", **call),
            await ask(socket, "step", text="3"),
        ]

    first, listed, called, last = (told["data"] for told in talk(Sums(), play))
    assert [t["function"]["name"] for t in first["observation"]["tools"]] == ["add"]
    assert listed["observation"]["tools"] == first["observation"]["tools"]
    assert called["observation"]["text"] == "3"
    assert (last["done"], last["reward"]) == (True, 1.0)


HOSTILE = [
    ('{"type": "reset"', "INVALID_JSON"),
    ("[" * 100_000, "INVALID_JSON"),
    ('{"type": "fly"}', "UNKNOWN_TYPE"),
    ('{"type": "reset", "data": 3}', "VALIDATION_ERROR"),
    ('{"type": "reset", "data": {"index": 99}}', "VALIDATION_ERROR"),
    ('{"type": "reset", "data": {"index": -1}}', "VALIDATION_ERROR"),
    ('{"type": "reset", "data": {"seed": "x"}}', "VALIDATION_ERROR"),
    ('{"type": "step", "data": {"text": "too early"}}', "VALIDATION_ERROR"),
    ('{"type": "step", "data": {"move": 3}}', "VALIDATION_ERROR"),
    ('{"type": "step", "data": {"text": 3}}', "VALIDATION_ERROR"),
    ('{"type": "step", "data": {"tool_calls": [{}]}}', "VALIDATION_ERROR"),
]


def test_bad_messages_are_answered_and_the_session_lives_on() -> None:
    async def play(socket: aiohttp.ClientWebSocketResponse) -> tuple[list[str], dict[str, Any]]:
        codes = []
        for text, _ in HOSTILE:
            await socket.send_str(text)
            told = await socket.receive_json(timeout=PATIENCE)
            codes.append(told["data"]["code"])
            assert "\n" not in told["data"]["message"]
        return codes, await ask(socket, "reset")

    codes, alive = talk(Guess(), play)
    assert codes == [code for _, code in HOSTILE]
    assert alive["type"] == "observation"


def test_a_failure_of_the_environment_is_told_and_the_next_episode_can_begin() -> None:
    async def play(socket: aiohttp.ClientWebSocketResponse) -> list[dict[str, Any]]:
        return [await ask(socket, "reset"), await ask(socket, "step", text="x"), await ask(socket, "reset")]

    _, failed, again = talk(Broken(), play)
    assert failed["data"]["message"] == "EnvironmentFailure: ZeroDivisionError: oh"
    assert again["type"] == "observation"


def test_strangers_and_crowds_are_turned_away() -> None:
    async def go() -> tuple[int, dict[str, Any], dict[str, Any]]:
        async with (
            EnvironmentServer(Guess(), token=TOKEN, sessions=1).listening() as url,
            aiohttp.ClientSession() as client,
        ):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect(f"{url}/ws", headers={"Authorization": "Bearer wrong"})
            async with client.get(f"{url}/health") as healthy:
                assert await healthy.json() == {"status": "healthy"}
            async with client.ws_connect(f"{url}/ws", headers=WITH_TOKEN) as one:
                first = await ask(one, "reset")
                async with client.ws_connect(f"{url}/ws", headers=WITH_TOKEN) as two:
                    crowded = await two.receive_json(timeout=PATIENCE)
                await one.send_str("x" * (openenv.MAX_MESSAGE_BYTES + 1))
                assert (await one.receive(timeout=PATIENCE)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
            return refused.value.status, first, crowded

    status, first, crowded = asyncio.run(go())
    assert (status, first["type"], crowded["data"]["code"]) == (401, "observation", "CAPACITY_REACHED")


def test_an_environment_for_several_is_refused() -> None:
    with pytest.raises(UsageError, match="KuhnPoker has the seats"):
        EnvironmentServer(KuhnPoker(), token=TOKEN)


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["for people", "json"])
def test_the_command_serves(more: list[str]) -> None:
    command = [sys.executable, "-m", "wanderlust.cli.main", "serve-env", "calculator", "--port", "0", *more]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        if more:
            url, token = json.loads("".join(server.stdout.readline() for _ in range(4))).values()
        else:
            url, token = server.stdout.readline().strip(), server.stdout.readline().split()[-1]

        async def play() -> dict[str, Any]:
            given = {"Authorization": f"Bearer {token}"}
            async with aiohttp.ClientSession(headers=given) as client, client.ws_connect(f"{url}/ws") as socket:
                return await ask(socket, "reset")

        try:
            told = asyncio.run(play())
        finally:
            server.terminate()
    assert told["data"]["observation"]["text"].startswith("What is")


def test_openenvs_own_client_plays() -> None:
    python = made(OPENENV)
    if python is None:
        pytest.skip("OpenEnv is not installed: make peers")

    async def go() -> dict[str, Any]:
        async with EnvironmentServer(Sums(), token=TOKEN).listening() as url:
            command = [str(python), "-m", "benchmarks.peers.openenv_client", url, TOKEN]
            client = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
            out, _ = await client.communicate()
            found: dict[str, Any] = json.loads(out)
            return found

    talk = [user("1 + 2"), assistant("", ToolCall(id="call-0-0", name="add", arguments='{"numbers":[1,2]}'))]
    said = Scripted([talk[1], assistant("3")])
    here = asyncio.run(rollout(Sums(), Sums().tasks()[1], said))
    assert here.trajectory.score is not None
    told = asyncio.run(go())
    assert told == {"texts": ["1 + 2", "3", ""], "reward": here.trajectory.score.reward, "done": True, "steps": 2}
