"""Chat completions as they travel: our nouns to and from the JSON that OpenAI's endpoint made common."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, get_args

import msgspec

from wanderlust.core.contracts import Tool
from wanderlust.core.errors import PolicyFailure, ToolFailure, UsageError
from wanderlust.core.messages import Message, Role, ToolCall
from wanderlust.core.types import Completion


class _Function(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] = "{}"


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None
    reasoning_content: Any = None
    reasoning: Any = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    usage: dict[str, Any] | None = None


_answers = msgspec.json.Decoder(_Answer)


def completion_of(body: bytes) -> Completion:
    """The first choice of a chat completion.

    Raises PolicyFailure in one line when the body is no JSON, has another shape or says nothing at all.
    """
    try:
        answer = _answers.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise PolicyFailure(f"not a chat completion: {error}") from error
    if not answer.choices:
        raise PolicyFailure("a chat completion without choices")
    said, finish = answer.choices[0].message, answer.choices[0].finish_reason
    calls = tuple(_call(call, n) for n, call in enumerate(said.tool_calls or ()))
    reasoning = next((r for r in (said.reasoning_content, said.reasoning) if r and isinstance(r, str)), None)
    if said.content is None and not (calls or reasoning or finish == "length"):
        raise PolicyFailure("a chat completion with neither content nor tool calls")
    return Completion(
        message=Message("assistant", said.content or "", calls, reasoning=reasoning),
        finish=finish or ("tool_calls" if calls else "stop"),
        usage={name: n for name, n in (answer.usage or {}).items() if type(n) is int},
    )


def _call(call: _Call, number: int) -> ToolCall:
    given = call.function.arguments
    arguments = given if isinstance(given, str) else json.dumps(given)
    return ToolCall(id=call.id or f"call_{number}", name=call.function.name, arguments=arguments)


def message_to_wire(message: Message) -> dict[str, Any]:
    """A message as an endpoint reads it; reasoning stays here."""
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        wire["tool_calls"] = [call_to_wire(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    return wire


def call_to_wire(call: ToolCall) -> dict[str, Any]:
    """A tool call as an endpoint writes it."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def tool_to_wire(tool: Tool) -> dict[str, Any]:
    """A tool as an endpoint is told of it."""
    told = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": told}


def message_from_wire(wire: Mapping[str, Any]) -> Message:
    """A message as a client wrote it. Raises UsageError for what we have no noun for, e.g. pictures."""
    role = {"developer": "system"}.get(wire.get("role", ""), wire.get("role"))
    if role not in get_args(Role):
        raise UsageError(f"a message with the role {role!r}; there are {', '.join(get_args(Role))}")
    calls = tuple(
        ToolCall(id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"])
        for call in wire.get("tool_calls") or ()
    )
    return Message(cast(Role, role), _text(wire.get("content")), calls, wire.get("tool_call_id"))


def _text(content: str | Sequence[Mapping[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    strange = [part.get("type") for part in content if part.get("type") != "text"]
    if strange:
        raise UsageError(f"a message part of type {strange[0]!r}; only text is understood")
    return "".join(part["text"] for part in content)


@dataclass(slots=True, kw_only=True)
class DeclaredTool:
    """A tool that is known by its declaration alone; the program that declared it runs it."""

    name: str
    description: str = ""
    schema: dict[str, Any] = field(default_factory=dict)

    async def __call__(self, **arguments: Any) -> str:
        """Never: raises ToolFailure."""
        raise ToolFailure(f"the tool {self.name!r} is run by the program that declared it, not here")


def tool_from_wire(wire: Mapping[str, Any]) -> DeclaredTool:
    """A tool as a client declares it. Raises UsageError for other kinds than functions."""
    if wire.get("type", "function") != "function":
        raise UsageError(f"a tool of type {wire['type']!r}; only functions are understood")
    told = wire["function"]
    schema = told.get("parameters") or {"type": "object", "properties": {}}
    return DeclaredTool(name=told["name"], description=told.get("description") or "", schema=schema)
