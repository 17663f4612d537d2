"""Rollouts whose agents wait past the end replay, and worlds restored from JSON go on as they would have."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from random import Random
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from counts import lines_run
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.tools.function import ToolError
from wanderlust.types import Completion, ToolCall, assistant
from wanderlust_life.assistant_life import AssistantLife, AssistantLifeTeam
from wanderlust_life.players import OraclePolicy
from wanderlust_worlds.apps import app_classes
from wanderlust_worlds.apps.mail import Mail
from wanderlust_worlds.engine.events import PlannedCall, StopEvent
from wanderlust_worlds.engine.log import log_bytes
from wanderlust_worlds.engine.replay import replay_log, restore, snapshot
from wanderlust_worlds.engine.scenario import Scenario, play_oracle
from wanderlust_worlds.wrap.verified_environment import VerifiedWorldEnvironment
from wanderlust_worlds.wrap.world_environment import fixed_thinking_time, log_of
from world_apps import Notes

LIFE = AssistantLife()
TASKS = list(LIFE.tasks("eval"))


def waiting(seconds: int, times: int) -> Scripted:
    """Waits so long, so many times, and says that it is done."""

    def act(messages, _rng):
        count = sum(message.role == "assistant" for message in messages)
        if count >= times:
            return "done"
        name = "System__wait_for_notification"
        return assistant("", ToolCall(id=f"{count}", name=name, arguments=json.dumps({"timeout": seconds})))

    return Scripted(act)


@pytest.mark.parametrize(("seconds", "times"), [(2000, 1), (600, 3)])
def test_rollouts_that_wait_past_the_end_replay(seconds, times):
    async def played():
        return [await rollout(LIFE, task, waiting(seconds, times)) for task in TASKS]

    ended = 0
    for one in asyncio.run(played()):
        world = replay_log(LIFE.scenario(one.task), log_of(one), one.seed)
        assert world.digest() == one.state["digest"], one.task.id
        ended += one.state["stopped"] == "duration"
    assert ended > len(TASKS) / 2


class Erratic(OraclePolicy):
    """The oracle, but for waits of any length, calls of any tool and words at any time."""

    async def complete(self, messages, tools=(), *, key=""):
        rng = Random(f"{key}/{len(messages)}")
        if rng.random() < 0.1 or not any(hasattr(tool, "world") for tool in tools):
            return Completion(message=assistant("done"))
        if rng.random() < 0.6:
            return await super().complete(messages, tools, key=key)
        tool = rng.choice(tools)
        args = {"timeout": rng.choice([1, 600, 2000])} if "timeout" in tool.schema["properties"] else {}
        args |= {name: "a" for name in tool.schema.get("required", ())}
        return Completion(
            message=assistant("", ToolCall(id=str(len(messages)), name=tool.name, arguments=json.dumps(args)))
        )


def test_rollouts_of_agents_that_do_anything_replay_in_every_kind_of_world():
    scenarios = [LIFE.scenario(task) for task in TASKS]
    for env in (
        AssistantLife(thinking=fixed_thinking_time(45)),
        AssistantLifeTeam(),
        VerifiedWorldEnvironment(scenarios),
    ):
        for task in env.tasks("eval"):
            one = asyncio.run(rollout(env, task, Erratic()))
            assert replay_log(env.scenario(task), log_of(one), one.seed).digest() == one.state["digest"], task.id


@pytest.mark.parametrize("at", ["", "at once"])
def test_a_stop_of_the_plan_after_an_act_replays(at):
    notes = Notes(limit=100_000)
    events = (
        PlannedCall(id="act", app="Notes", action="add_note", args={"text": "b"}, by="agent"),
        StopEvent(id="end", after=("act",), delay=0 if at else 5, reason="enough"),
    )
    scenario = Scenario(id="stop", apps=(notes,), events=events, start=5, duration=100)
    world = scenario.world(gate=lambda world, line: world.mark_done("act", len(world.log) - 1))
    world.call("Notes", "add_note", {"text": "b"})
    world.advance(10)
    assert world.stopped == "enough"
    assert replay_log(scenario, list(world.log)).digest() == world.digest()


def test_a_gate_that_stops_the_world_replays():
    scenario = Scenario(id="gate", apps=(Notes(),), duration=100)
    world = scenario.world(gate=lambda world, line: world.stop("enough"))
    world.call("Notes", "add_note", {"text": "b"})
    assert replay_log(scenario, list(world.log)).digest() == world.digest()


@pytest.mark.parametrize("level", [1, 2, 3])
def test_worlds_restored_from_json_go_on_alike(level):
    for task in TASKS:
        if task.info["level"] != level:
            continue
        scenario = LIFE.scenario(task)
        whole = play_oracle(scenario)
        half = scenario.world(oracle=True)
        while half.pending and not half.stopped and len(half.log) < len(whole.log) / 2:
            half.wait()
            half.deliver()
        saved = json.loads(json.dumps(snapshot(half)))
        again = restore(saved, scenario.apps, scenario.plan)
        assert msgspec.json.encode(snapshot(again)) == msgspec.json.encode(saved), task.id
        for world in (half, again):
            while world.pending and not world.stopped:
                world.wait()
                world.deliver()
            with suppress(ToolError):  # too far to drive
                world.call("Cabs", "list_rides", {"start_location": "a", "end_location": "b"})
        assert log_bytes(again.log) == log_bytes(half.log), task.id


def defaults_of(record: Any) -> list[str]:
    """The fields of a record, and of the records in it, whose default JSON gives back as another type."""
    wrong = []
    hints = get_type_hints(record)
    for one in msgspec.structs.fields(record):
        kinds = get_args(hints[one.name]) if get_origin(hints[one.name]) in (Union, UnionType) else (hints[one.name],)
        if float in kinds and int not in kinds and type(one.default) is int:
            wrong.append(f"{record.__name__}.{one.name}")
    return wrong


def test_defaults_are_of_their_fields_type():
    records, look = set(), [hint for kind in app_classes().values() for hint in kind.fields().values()]
    while look:
        hint = look.pop()
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct) and hint not in records:
            records.add(hint)
            look += get_type_hints(hint).values()
        look += get_args(hint)
    assert len(records) > 10
    assert [fault for record in records for fault in defaults_of(record)] == []


@pytest.mark.parametrize(("app", "action", "args"), [
    (Notes(limit=100_000), "add_note", {"text": "a"}),
    (Mail("Emails", user_email="me@x.org"), "send_email_to_user_only", {"sender": "a@x.org"}),
])  # fmt: skip
def test_notices_cost_the_same_however_many_wait(app, action, args):
    def lines(count: int) -> int:
        events = [PlannedCall(id=f"{n}", app=app.name, action=action, args=args, by="env") for n in range(count)]
        world = Scenario(id="many", apps=(app,), events=events, duration=100).world()
        _, taken = lines_run(world.advance, 1)
        assert len(world.deliver()) == count
        return taken

    assert lines(8_000) < 5 * lines(2_000)


def test_a_branch_does_not_see_the_others_notices():
    events = [
        PlannedCall(id=f"{n}", app="Notes", action="add_note", args={"text": str(n)}, by="env", delay=n) for n in (1, 3)
    ]
    world = Scenario(id="two", apps=(Notes(limit=100_000),), events=events, duration=100).world()
    world.advance(2)
    twin = world.branch()
    world.advance(2)
    assert (len(world.deliver()), len(twin.deliver())) == (2, 1)
