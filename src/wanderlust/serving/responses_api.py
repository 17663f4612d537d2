"""Parse requests for responses to a seat, and render its answers, whole or as events.

Source: OpenAI's API reference, `POST /responses`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from wanderlust.errors import UsageError, one_line
from wanderlust.openai_types import DeclaredTool, MessageContent, content_text, declare_tool, parse_request, parse_role
from wanderlust.serving.chat_api import (
    SeatRequest,
    count_turn_tokens,
    refuse_seat_options,
    requested_format,
    unsent_text,
)
from wanderlust.types import Message, ToolCall, Turn, assistant, system


class _Item(msgspec.Struct):
    """A message, a call, a call's result or a piece of reasoning, by `type`."""

    type: str = "message"
    role: str = ""
    content: MessageContent = None
    call_id: str | None = None
    name: str = ""
    arguments: str = "{}"
    output: MessageContent = None

    def message(self) -> Message:
        """As a message. UsageError for an item of another type."""
        if self.type == "message":
            return Message(parse_role(self.role), content_text(self.content))
        if self.type == "function_call" and self.call_id is not None:
            return Message("assistant", "", (ToolCall(id=self.call_id, name=self.name, arguments=self.arguments),))
        if self.type == "function_call_output" and self.call_id is not None:
            return Message("tool", content_text(self.output), tool_call_id=self.call_id)
        raise UsageError(f"an input item of type {one_line(self.type)!r}; there are messages and function calls")


class _Tool(msgspec.Struct):
    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None

    def declared(self) -> DeclaredTool:
        """As a tool of the conversation. UsageError for what is no function."""
        if self.type != "function":
            raise UsageError(f"a tool of type {one_line(self.type)!r}; only functions are understood")
        return declare_tool(self.name, self.description, self.parameters)


class _Text(msgspec.Struct):
    format: dict[str, Any] | None = None


class _Request(msgspec.Struct):
    input: str | list[_Item] = msgspec.field(default_factory=list)
    instructions: str | None = None
    model: str = ""
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    previous_response_id: str | None = None
    text: _Text | None = None


def previous_response_id(body: Mapping[str, Any]) -> str | None:
    """The id of the response that a request continues, if it names one."""
    named = body.get("previous_response_id")
    return named if isinstance(named, str) else None


def parse_responses_request(
    body: Mapping[str, Any], before: Sequence[Message] = (), *, ignored: Collection[str] = ()
) -> SeatRequest:
    """Parse the body of a request; `before` is the conversation of the response that it continues.

    Raises UsageError of one line for an unsupported option, unless it is `ignored`, and for any other body.
    """
    refuse_seat_options(body, ignored)
    fields = parse_request(body, _Request, "a response's request")
    instructions = [] if fields.instructions is None else [system(fields.instructions)]
    items = [_Item(role="user", content=fields.input)] if isinstance(fields.input, str) else fields.input
    form = requested_format(fields.text.format if fields.text else None)
    if form is not None and form.get("type") == "json_schema":  # as in chat completions, which policies take
        schema = {name: value for name, value in form.items() if name != "type"}
        form = {"type": "json_schema", "json_schema": schema}
    return SeatRequest(
        messages=[*instructions, *before, *_messages(items)],
        tools=[] if fields.tool_choice == "none" else [tool.declared() for tool in fields.tools or ()],
        model=fields.model,
        response_format=form,
        has_instructions=bool(instructions),
    )


def _messages(items: Sequence[_Item]) -> Iterator[Message]:
    """Yield the messages of items; consecutive items of the assistant are one message."""
    saying: Message | None = None
    for item in items:
        if item.type == "reasoning":
            continue
        message = item.message()
        if saying is not None and saying.role == message.role == "assistant":
            calls = (*saying.tool_calls, *message.tool_calls)
            saying = replace(saying, content=saying.content + message.content, tool_calls=calls)
            continue
        if saying is not None:
            yield saying
        saying = message
    if saying is not None:
        yield saying


def render_response(turn: Turn, *, id: str, model: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Render the answer as JSON data."""
    action, cut = turn.action, turn.finish == "length"
    output: list[dict[str, Any]] = []
    if action.content or not action.tool_calls:
        parts = [{"type": "output_text", "text": action.content, "annotations": [], "logprobs": []}]
        message = {"type": "message", "id": f"msg_{id}", "role": "assistant", "status": "completed", "content": parts}
        output.append(message)
    for n, call in enumerate(action.tool_calls):
        fields = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        output.append({"type": "function_call", "id": f"fc_{id}_{n}", "status": "completed", **fields})
    read, written = count_turn_tokens(turn)
    return {
        "id": id,
        "object": "response",
        "created_at": 0,
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": request.get("instructions"),
        "metadata": {},
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": previous_response_id(request),
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": turn.usage.get("cached_tokens", 0), "cache_write_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": turn.usage.get("reasoning_tokens", 0)},
            "total_tokens": read + written,
        },
    }


def render_response_piece(id: str, text: str, *, request: Mapping[str, Any], opened: bool) -> Iterator[dict[str, Any]]:
    """Yield the events of a piece of text, after those that open the response unless it is `opened`."""
    if not opened:
        nothing = Turn(observation=(), action=assistant(""))
        answer = render_response(nothing, id=id, model=str(request.get("model", "")), request=request)
        yield from _opening(answer)
        yield from _item_opening(answer["output"][0], 0)
    place = {"item_id": f"msg_{id}", "output_index": 0, "content_index": 0}
    yield {"type": "response.output_text.delta", "delta": text, "logprobs": [], **place}


def render_response_events(answer: Mapping[str, Any], *, sent: str = "") -> Iterator[dict[str, Any]]:
    """Yield the answer as a stream's events, numbered from 0; `sent` is the text that went out in pieces already."""
    for number, event in enumerate(_events(answer, sent)):
        yield event | {"sequence_number": number}


def _opening(answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    in_progress = {**answer, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield {"type": "response.created", "response": in_progress}
    yield {"type": "response.in_progress", "response": in_progress}


def _item_opening(item: Mapping[str, Any], index: int) -> Iterator[dict[str, Any]]:
    started: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
    started_item = {**item, **started, "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": index, "item": started_item}
    if item["type"] == "message":
        part, place = item["content"][0], {"item_id": item["id"], "output_index": index, "content_index": 0}
        yield {"type": "response.content_part.added", "part": {**part, "text": ""}, **place}


def _events(answer: Mapping[str, Any], sent: str) -> Iterator[dict[str, Any]]:
    if not sent:
        yield from _opening(answer)
    for index, item in enumerate(answer["output"]):
        if index or not sent:
            yield from _item_opening(item, index)
        place = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            (part,) = item["content"]
            place["content_index"] = 0
            if text := unsent_text(part["text"], sent):
                yield {"type": "response.output_text.delta", "delta": text, "logprobs": [], **place}
            yield {"type": "response.output_text.done", "text": part["text"], "logprobs": [], **place}
            yield {"type": "response.content_part.done", "part": part, **place}
        else:
            yield {"type": "response.function_call_arguments.delta", "delta": item["arguments"], **place}
            fields = {"name": item["name"], "arguments": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **fields, **place}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{answer['status']}", "response": answer}
