"""The rules that an assistant in a world is told, an idle one, and calls and waits of scripted ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wanderlust.policies.scripted import Scripted
from wanderlust.types import Message, ToolCall, assistant, system
from wanderlust_worlds.engine.events import PlannedCall
from wanderlust_worlds.engine.world import World
from wanderlust_worlds.verification.oracle import plain_value
from wanderlust_worlds.wrap.world_environment import AppTool

ASSISTANT_RULES = system(
    "You are the assistant of a person whose mail, chats, messages, calendar, contacts, orders, flats, cabs, files and "
    "reminders you can use by tools. Times are UTC. Do all that the person asks and nothing else; what you write in "
    "the person's name reaches real people. Where it is unclear what is meant, or what is asked does not agree with "
    "what you find, ask before you act. Things happen while you work: you are told of them, and can wait for them with "
    "the tool of System that waits for a notification. When all is done, and not before, tell the person in one short "
    "message."
)
WAIT_ACTION = "wait_for_notification"
MAX_WAIT_SECONDS = 600
"""Longest wait of the oracle for the next event, in seconds of the world's clock."""


def idle_policy() -> Scripted:
    """A policy that answers with nothing."""
    return Scripted(lambda _messages, _rng: "")


def call_due_at(world: World, act: PlannedCall, done: Mapping[str, int] | None = None) -> float:
    """The time at which an expected act is due, in seconds of the world's clock. `done` replaces the world's own."""
    lines = world.done if done is None else done
    before = max((world.log[lines[name]].time for name in act.after), default=0.0)
    return max(before + act.delay, act.at or 0.0)


def tool_call_message(tool: AppTool, args: Mapping[str, Any], *, call_id: str) -> Message:
    """An answer that calls the tool, with the arguments by the names that the agent is shown."""
    offered_names = {true: name for name, true in tool.original_names.items()}
    arguments = {offered_names.get(name, name): plain_value(value) for name, value in args.items()}
    return assistant("", ToolCall(id=call_id, name=tool.name, arguments=json.dumps(arguments)))
