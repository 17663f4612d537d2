"""MCP servers as apps of a world: real processes, whose answers are in the log and replayed without them."""

from __future__ import annotations

import json
import sys

import pytest

from project_files import ROOT
from wanderlust.errors import ToolFailure, UsageError
from wanderlust.tools.function import ToolError, WrongArguments
from wanderlust.tools.mcp_toolset import McpServer
from wanderlust.types import Rollout, Task
from wanderlust_worlds.apps import check_app
from wanderlust_worlds.apps.mcp_app import McpApp, open_mcp_app
from wanderlust_worlds.apps.user_interface import System
from wanderlust_worlds.engine.events import ScenarioError
from wanderlust_worlds.engine.log import log_bytes, read_log
from wanderlust_worlds.engine.replay import replay_log, restore, snapshot
from wanderlust_worlds.engine.scenario import Scenario, capture, play_oracle
from wanderlust_worlds.studio.world_view import WorldView
from wanderlust_worlds.wrap.world_environment import WorldEnvironment, agent_tools

OURS = (sys.executable, str(ROOT / "tests/servers/ours.py"))


@pytest.fixture(scope="module")
def live():
    with open_mcp_app("Server", McpServer(*OURS)) as app:
        yield app


def scenario(app):
    return Scenario(id="served", apps=(app, System()))


def lived(app):
    world = scenario(app).world()
    assert world.call("Server", "add", {"a": 1}) == "3"
    assert json.loads(world.call("Server", "note", {"line": "x"}))[-1] == "x"
    for action, args, words in (
        ("add", {"a": "one"}, "add"),
        ("add", {}, "look at a; it takes a, b"),
        ("add", {"a": 1, "c": 2}, "look at c"),
        ("breaks", {}, "the wire is cut"),
    ):
        with pytest.raises(ToolError, match=words):
            world.call("Server", action, args)
    assert world.call("Server", "add", {"a": 1, "b": 1}) == "2"
    return world


def test_a_server_is_an_app_of_a_world(live):
    assert set(live.actions) == {"add", "process", "die", "breaks", "note"}
    world = lived(live)
    assert [line.action for line in world.log if line.error is None] == ["add", "note", "add"]
    assert all(line.writes for line in world.log)
    tools = {tool.name: tool for tool in agent_tools(world)}
    assert tools["Server__add"].schema["properties"]["b"]["default"] == 2
    assert tools["Server__add"].description == "Adds."
    assert [fault for fault in check_app(world.apps["Server"]) if "docstring" not in fault] == []


def test_the_log_is_lived_again_without_the_server(live):
    world = lived(live)
    log = read_log(log_bytes(world.log))
    again = replay_log(scenario(live.recorded(log)), log)
    assert again.digest() == world.digest()
    with pytest.raises(UsageError, match="differs from the log in line 0"):
        replay_log(scenario(live.recorded(log[1:])), log)


def test_who_looks_back_at_it_asks_no_server(live):
    world = lived(live)
    played = Rollout(task=Task(id="served"), seed=0, state={"log": log_bytes(world.log).decode()})
    noted = len(json.loads(world.call("Server", "note", {"line": "y"})))
    view = WorldView.of(played, WorldEnvironment([scenario(live)]))
    assert view.why == ""
    assert view.at(len(view.lines) - 1)["apps"].keys() == {"Server", "System"}
    assert len(json.loads(world.call("Server", "note", {"line": "z"}))) == noted + 1


def test_branches_count_their_calls_apart(live):
    world = lived(live)
    log = list(world.log)
    start = scenario(live.recorded(log)).world()
    start.call("Server", "add", {"a": 1})
    aside = start.branch()
    for one in (start, aside):
        assert one.call("Server", "note", {"line": "x"}) == log[1].result
        with pytest.raises(ToolError, match="call 2 of process is not in the log"):
            one.call("Server", "process", {})


def test_it_is_saved_without_its_server(live):
    world = scenario(live).world()
    world.call("Server", "add", {"a": 1})
    saved = json.loads(json.dumps(snapshot(world)))
    back = restore(saved, [live, System()])
    assert set(back.apps["Server"].actions) == set(live.actions)
    with pytest.raises(ToolError, match="has no server"):
        back.call("Server", "add", {"a": 1})


def test_a_story_calls_a_server(live):
    clock = System()
    with capture(live, clock) as story:
        first = story.agent(live).add(a=1, b=2)
        story.agent(live, after=first).note(line=first)
    played = play_oracle(Scenario(id="served", apps=(live, clock), events=story.events))
    assert played.log[2].args == {"line": "3"}
    with pytest.raises(ScenarioError, match=r"missing a required .*argument: 'a'"), capture(live) as story:
        story.agent(live).add(b=1)


def test_the_time_server_is_read_only_or_not():
    with open_mcp_app("Time", McpServer.python("mcp_server_time")) as app:
        world = Scenario(id="time", apps=(app,)).world()
        told = json.loads(world.call("Time", "get_current_time", {"timezone": "UTC"}))
        assert told["timezone"] == "UTC"
        with pytest.raises(ToolError, match="Invalid timezone"):
            world.call("Time", "get_current_time", {"timezone": "Nowhere"})
        told = app.tools["get_current_time"]
        assert world.log[0].writes is not told.reads_only


def test_a_server_that_ends_is_an_error_in_the_log():
    with open_mcp_app("Server", McpServer(*OURS)) as app:
        world = scenario(app).world()
        with pytest.raises(ToolError, match=r"ToolFailure: MCP server"):
            world.call("Server", "die", {})
        with pytest.raises(ToolError):
            world.call("Server", "add", {"a": 1})
        assert len(world.log) == 2
    with pytest.raises(ToolError, match="has ended"):
        world.call("Server", "add", {"a": 1})


def test_what_is_no_server_is_refused():
    with pytest.raises(ToolFailure, match="MCP server"), open_mcp_app("Server", McpServer(sys.executable, "-c", "0")):
        pass


def test_an_app_without_a_server_has_no_actions():
    app = McpApp()
    assert app.actions == {}
    assert check_app(app) == []
    with pytest.raises(UsageError, match="has no server"):
        app.ask("add", {})
    assert issubclass(WrongArguments, ToolError)
