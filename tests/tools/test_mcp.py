"""MCP both ways, against real servers: three from packages in processes of their own, and ours over both transports."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys

import aiohttp
import pytest

from patience import PATIENCE
from project_files import ROOT
from wanderlust.environment import Episode
from wanderlust.environments.calculator import Clock
from wanderlust.errors import ToolFailure, UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.tasks.registry import load_environment
from wanderlust.tools.function import open_toolsets
from wanderlust.tools.mcp_server import serve_http
from wanderlust.tools.mcp_toolset import McpServer
from wanderlust.tools.tool_calls import CallLimits, CallOutcome, call_tools
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Status, Task, ToolCall, assistant, user

SERVERS = ROOT / "tests" / "servers"
EVERYTHING = SERVERS / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
OURS = (sys.executable, str(SERVERS / "ours.py"))


def go(work):
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


async def call(tools, name, limits=None, **arguments):
    (done,) = await call_tools([ToolCall(id="1", name=name, arguments=json.dumps(arguments))], tools, limits)
    return done


@pytest.fixture(scope="session")
def everything():
    """The npm reference server, installed once from tests/servers/package-lock.json.

    Its tests are one group: `npm ci` of a second process would delete the packages that the first one is running.
    """
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed, and the reference server is an npm package: install Node 20.19 or later")
    if not EVERYTHING.exists():
        subprocess.run(
            ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=SERVERS, check=True, timeout=PATIENCE
        )
    return McpServer("node", str(EVERYTHING))


def test_the_time_server():
    async def work():
        async with McpServer.python("mcp_server_time").open() as tools:
            assert [tool.name for tool in tools] == ["get_current_time", "convert_time"]
            assert "source_timezone" in tools[1].schema["properties"]
            there = {"source_timezone": "Asia/Tokyo", "target_timezone": "Asia/Kolkata"}
            return await call(tools, "convert_time", time="12:00", **there), await call(tools, "convert_time", time="?")

    good, bad = go(work())
    assert (good.outcome, json.loads(good.text)["time_difference"]) == (CallOutcome.DONE, "-3.5h")
    assert bad.outcome is CallOutcome.TOOL_ERROR
    assert "source_timezone" in bad.text
    assert "\n" not in bad.text


def test_the_git_server(tmp_path):
    subprocess.run(["git", "init", "-q", "-b", "main", str(tmp_path)], check=True)
    (tmp_path / "new.txt").write_text("hello")

    async def work():
        async with McpServer.python("mcp_server_git", prefix="my_", only=["git_status"]).open() as tools:
            assert [tool.name for tool in tools] == ["my_git_status"]
            return await call(tools, "my_git_status", repo_path=str(tmp_path))

    done = go(work())
    assert done.outcome is CallOutcome.DONE
    assert "new.txt" in done.text


@pytest.mark.xdist_group("npm")
def test_the_reference_server(everything):
    async def work():
        async with everything.open() as tools:
            said = await call(tools, "echo", message="ä\n\u2028")
            shown = await call(tools, "get-tiny-image")
            wrong = await call(tools, "get-sum", a="x")
            linked = await call(tools, "get-resource-reference", resourceType="Text", resourceId=1)
            slow = CallLimits(timeout=0.2)
            late = await call(tools, "trigger-long-running-operation", slow, duration=30, steps=2)
            return said, shown, wrong, linked, late, await call(tools, "get-sum", a=1, b=2)

    said, shown, wrong, linked, late, after = go(work())
    assert said.text == "Echo: ä\n\u2028"
    assert "[image/png, " in shown.text
    assert (wrong.outcome, "expected number" in wrong.text) == (CallOutcome.TOOL_ERROR, True)
    assert linked.outcome is CallOutcome.DONE
    assert late.outcome is CallOutcome.TIMEOUT
    assert (after.outcome, "3" in after.text) == (CallOutcome.DONE, True)


@pytest.mark.xdist_group("npm")
def test_the_reference_server_over_http(everything):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen(
        ["node", str(EVERYTHING), "streamableHttp"],
        env=os.environ | {"PORT": f"{port}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        said = ""
        while "listening" not in said:
            line = server.stderr.readline()
            assert line, f"the server ended before it listened: {said}"
            said += line

        async def work():
            async with McpServer(f"http://127.0.0.1:{port}/mcp").open() as tools:
                return await asyncio.gather(*(call(tools, "get-sum", a=n, b=1) for n in range(10)))

        try:
            sums = go(work())
        finally:
            server.kill()
    assert [f" {n + 1}" in one.text for n, one in enumerate(sums)] == [True] * 10


def test_the_clock_is_an_environment_like_any_other():
    env = load_environment("wanderlust.environments.calculator:Clock")
    assert isinstance(env, Clock)
    (task,) = [task for task in env.tasks() if task.answer == "23:30"]
    arguments = '{"source_timezone": "Asia/Tokyo", "time": "03:00", "target_timezone": "Asia/Kolkata"}'
    ask = assistant("", ToolCall(id="1", name="convert_time", arguments=arguments))
    played = go(rollout(env, task, Scripted([ask, "It is 23:30"])))
    assert (played.error, played.trajectory.score.reward) == (None, 1.0)
    assert "23:30" in played.trajectory.turns[1].observation[0].content


def asks(*names):
    calls = (ToolCall(id=f"{n}", name=name, arguments=raw) for n, (name, raw) in enumerate(names))
    return assistant("", *calls)


TASKS = [Task(id=f"{n}", prompt=(user("Hi"),)) for n in range(8)]


async def processes(env, tasks=TASKS):
    """The process that each of many episodes at once was served by, and what its notes were."""
    policy = Scripted([asks(("process", ""), ("note", '{"line": "x"}')), "end"])
    played = await asyncio.gather(*(rollout(env, task, policy) for task in tasks))
    assert [one.error for one in played] == [None] * len(tasks)
    return [[m.content for m in one.trajectory.turns[1].observation] for one in played]


def alive(pid):
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


def test_episodes_share_a_server_and_it_ends_with_the_last_of_them():
    env = ToolEnvironment(tools=[McpServer(*OURS)])
    seen = go(processes(env))
    assert len({pid for pid, _ in seen}) == 1
    assert max(len(json.loads(lines)) for _, lines in seen) == len(TASKS)
    assert not alive(seen[0][0])
    assert {pid for pid, _ in go(processes(env, TASKS[:1]))} != {seen[0][0]}


def test_whoever_holds_the_server_open_keeps_it_between_episodes():
    async def work():
        server = McpServer(*OURS)
        env = ToolEnvironment(tools=[server])
        async with server.open():
            return {pid for _ in range(2) for pid, _ in await processes(env, TASKS[:2])}

    assert len(go(work())) == 1


def test_a_server_for_each_episode():
    env = ToolEnvironment(tools=[McpServer(*OURS, shared=False)])
    seen = go(processes(env, TASKS[:2]))
    assert len({pid for pid, _ in seen}) == 2
    assert {lines for _, lines in seen} == {'["x"]'}
    assert not any(alive(pid) for pid, _ in seen)


def test_a_server_that_dies_is_a_tool_failure_and_the_next_episode_gets_a_new_one():
    async def work():
        server = McpServer(*OURS)
        env = ToolEnvironment(tools=[server])
        async with server.open() as tools:
            before = await call(tools, "process")
            broken = await rollout(env, TASKS[0], Scripted([asks(("die", ""))]))
            with pytest.raises(ToolFailure):
                await call(tools, "process")
            after = await rollout(env, TASKS[0], Scripted([asks(("process", "")), "end"]))
        return before.text, broken, after

    before, broken, after = go(work())
    assert (broken.stop_reason, broken.transient) == ("ToolFailure", True)
    assert "Connection closed" in broken.error
    assert after.error is None
    assert after.trajectory.turns[1].observation[0].content != before


@pytest.mark.parametrize(
    ("server", "says"),
    [
        (McpServer("no-such-command"), "there is no program 'no-such-command'"),
        (McpServer(sys.executable, "-c", "raise SystemExit('a key is missing')"), "(a key is missing)"),
        (McpServer(sys.executable, "-c", "print('hi')"), "Connection closed"),
        (McpServer("http://127.0.0.1:1/mcp"), "ConnectError"),
        (McpServer("http://me:secret@127.0.0.1:1/mcp?key=secret"), "ConnectError"),
        (McpServer(sys.executable, "-c", "import os; os._exit(3)", "--key", "secret"), "Connection closed"),
    ],
)
def test_a_server_that_does_not_start_is_one_line(server, says):
    played = go(rollout(ToolEnvironment(tools=[server]), TASKS[0], Scripted(["x"])))
    assert played.stop_reason == "ToolFailure"
    assert played.error.startswith(f"MCP server {server}: ")
    assert "secret" not in played.error
    assert says in played.error
    assert "\n" not in played.error


def test_a_server_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr("wanderlust.tools.mcp_client.MCP_START_TIMEOUT_SECONDS", 0.2)
    silent = McpServer(sys.executable, "-c", "import time; time.sleep(60)")
    played = go(rollout(ToolEnvironment(tools=[silent]), TASKS[0], Scripted(["x"])))
    assert "no list of tools within 0.2 seconds" in played.error


def test_our_tools_over_standard_input_and_output():
    async def work():
        async with McpServer(*OURS).open() as tools:
            (add,) = [tool for tool in tools if tool.name == "add"]
            assert add.description == "Adds."
            assert add.schema["properties"]["a"] == {"type": "integer", "description": "The first."}
            results = [await call(tools, "add", a=1), await call(tools, "add", a="1")]
            with pytest.raises(ToolFailure, match="the wire is cut"):
                await call(tools, "breaks")
            return results, await asyncio.gather(*(call(tools, "note", line="x") for _ in range(5)))

    (good, wrong), notes = go(work())
    assert good.text == "3"
    assert (wrong.outcome, wrong.text) == (
        CallOutcome.TOOL_ERROR,
        "error: wrong arguments for add: Expected `int`, got `str` - at `$.a`",
    )
    assert max(len(json.loads(one.text)) for one in notes) == 5


def echo(text: str) -> str:
    """Says it again."""
    return text


def test_our_tools_over_http_for_whoever_has_the_token():
    async def work():
        async with serve_http(echo) as served:
            assert served.url.startswith("http://127.0.0.1:")
            async with McpServer(served.url, token=served.token).open() as tools:
                said = await asyncio.gather(*(call(tools, "echo", text=f"{n}") for n in range(20)))
            with pytest.raises(ToolFailure):
                async with McpServer(served.url, token="wrong").open():
                    pass
            async with aiohttp.ClientSession() as session:
                bare = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
                async with session.post(served.url, json=bare) as refused:
                    status = refused.status
                headers = {"Authorization": f"Bearer {served.token}", "Host": "evil.example"}
                async with session.post(served.url, json=bare, headers=headers) as rebound:
                    return [one.text for one in said], status, rebound.status

    said, status, rebound = go(work())
    assert said == [f"{n}" for n in range(20)]
    assert status == 401
    assert rebound in (403, 421)


def test_an_http_server_that_goes_away_is_a_tool_failure():
    async def work():
        async with serve_http(echo) as served:
            stack = open_toolsets([McpServer(served.url, token=served.token)], Episode(Task(id="t"), {}))
            tools = await stack.__aenter__()
            assert (await call(tools, "echo", text="a")).text == "a"
        try:
            with pytest.raises(ToolFailure):
                await call(tools, "echo", text="b", limits=CallLimits(timeout=10))
        finally:
            await stack.__aexit__(None, None, None)

    go(work())


def test_a_port_that_is_taken_is_one_line():
    async def work():
        async with serve_http(echo) as served:
            port = int(served.url.rpartition(":")[2].removesuffix("/mcp"))
            async with serve_http(echo, port=port):
                pass

    with pytest.raises(UsageError, match=r"cannot listen on 127.0.0.1 port \d+: Address already in use"):
        go(work())


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("hangs", "it has stopped answering"),
        ("garbage", "it sends what is no message of the protocol"),
        ("wrong id", "that was never made"),
        ("huge", "characters; at most 10000000 are read"),
        ("no list", "its answer is no result of a tool"),
    ],
)
def test_a_faulty_server_is_a_failure_of_the_infrastructure_and_no_low_score(fault, says, monkeypatch):
    monkeypatch.setattr("wanderlust.tools.mcp_client.MCP_ALIVE_TIMEOUT_SECONDS", 0.5)
    server = McpServer(sys.executable, str(SERVERS / "faulty.py"), fault)

    async def work():
        class Bounded(ToolEnvironment):
            call_limits = CallLimits(timeout=30.0 if fault == "huge" else 2.0)

        env = Bounded(tools=[server])
        async with server.open():  # shared, so it has to be renewed
            old = server._connection
            played = [await rollout(env, TASKS[0], Scripted([asks(("go", "")), "end"])) for _ in range(2)]
            return played, server._connection is not old

    played, renewed = go(work())
    for one in played:
        assert (one.status, one.stop_reason, one.transient) == (Status.ERROR, "ToolFailure", True)
        assert one.trajectory.score is None
        assert one.error.startswith(f"MCP server {server}: ")
        assert says in one.error
        assert "\n" not in one.error
    assert renewed


@pytest.mark.parametrize(("fault", "outcome"), [("slow", CallOutcome.TIMEOUT), ("noise first", CallOutcome.DONE)])
def test_a_slow_tool_of_a_live_server_is_text_for_the_model(fault, outcome):
    async def work():
        async with McpServer(sys.executable, str(SERVERS / "faulty.py"), fault).open() as tools:
            return [await call(tools, "go", CallLimits(timeout=1.0)) for _ in range(2)]

    assert [one.outcome for one in go(work())] == [outcome] * 2
