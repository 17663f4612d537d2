"""What is said: messages and tool calls, in the shape that every chat endpoint understands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool by the model."""

    id: str
    name: str
    arguments: str
    """Raw JSON exactly as the model wrote it; parsing it is the business of whoever runs the tool."""


@dataclass(frozen=True, slots=True)
class Message:
    """One utterance in a conversation."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str | None = None
    """Reasoning that the endpoint returned apart from the content; None when there is none."""


def system(text: str) -> Message:
    """A system message."""
    return Message("system", text)


def user(text: str) -> Message:
    """A user message."""
    return Message("user", text)


def assistant(text: str, *tool_calls: ToolCall) -> Message:
    """An assistant message."""
    return Message("assistant", text, tool_calls)


def tool(text: str, call: ToolCall) -> Message:
    """The result of `call`, for the model to read."""
    return Message("tool", text, tool_call_id=call.id)
