"""Chat completions as a server speaks them: a program's request, and the answer it gets, whole or in pieces.

Source: OpenAI's API reference, `POST /chat/completions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from wanderlust.core.errors import UsageError
from wanderlust.core.messages import Message
from wanderlust.core.types import Turn
from wanderlust.policies.wire import DeclaredTool, call_to_wire, message_from_wire, tool_from_wire, understood

_FINISHES = frozenset({"stop", "length", "tool_calls", "content_filter"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a program asks of a seat, in whichever dialect it asked."""

    messages: list[Message]
    """The whole context."""
    tools: list[DeclaredTool]
    model: str = ""
    form: Mapping[str, Any] | None = None
    """The `response_format` of chat endpoints, when the program wants one."""
    instructed: bool = False
    """True when the first message was given as `instructions`, which the next request does not inherit."""


class _Request(msgspec.Struct):
    messages: list[dict[str, Any]]
    model: str = ""
    tools: list[dict[str, Any]] | None = None
    n: int | None = None
    response_format: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = None


def chat_request(body: Mapping[str, Any]) -> Request:
    """Read the body of a request; how to sample is the policy's business, so such options do nothing.

    Raises UsageError in one line for what a seat cannot do and for what is no such body.
    """
    asked = understood(body, _Request, "a chat completion's request")
    if (asked.n or 1) > 1:
        raise UsageError("a recorded seat gives one answer at a time: leave out `n`")
    return Request(
        messages=[message_from_wire(message) for message in asked.messages],
        tools=[] if asked.tool_choice == "none" else [tool_from_wire(tool) for tool in asked.tools or ()],
        model=asked.model,
        form=form_of(asked.response_format),
    )


def form_of(form: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """`form`, unless it is the one that asks for nothing."""
    return None if not form or form.get("type") == "text" else form


def chat_answer(turn: Turn, *, id: str, model: str) -> dict[str, Any]:
    """The answer as JSON data."""
    said = turn.action
    calls = [call_to_wire(call) for call in said.tool_calls]
    message: dict[str, Any] = {"role": "assistant", "content": said.content or (None if calls else "")}
    if calls:
        message["tool_calls"] = calls
    finish = "tool_calls" if calls else turn.finish
    choice = {"index": 0, "message": message, "finish_reason": finish if finish in _FINISHES else "stop"}
    read, written = tokens_of(turn)
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return {"id": id, "object": "chat.completion", "created": 0, "model": model, "choices": [choice], "usage": usage}


def tokens_of(turn: Turn) -> tuple[int, int]:
    """Tokens read and written, as far as the policy said."""
    return turn.usage.get("prompt_tokens", 0), turn.usage.get("completion_tokens", 0)


def chat_chunks(answer: Mapping[str, Any], *, usage: bool = False) -> Iterator[dict[str, Any]]:
    """The answer as a stream's chunks; the last one has no choices and the usage, for programs that asked."""
    shared = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    (choice,) = answer["choices"]
    message = choice["message"]

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        return shared | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    if message["content"]:
        yield chunk({"content": message["content"]})
    for index, call in enumerate(message.get("tool_calls", ())):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, choice["finish_reason"])
    if usage:
        yield shared | {"choices": [], "usage": answer["usage"]}
