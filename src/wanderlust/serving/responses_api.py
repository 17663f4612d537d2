"""Responses of a seat: parse requests, render answers whole or as events, and keep those that a program refers to.

Source: OpenAI's API reference, `POST /responses` and the routes of stored responses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import msgspec

from wanderlust.errors import UsageError, one_line
from wanderlust.openai_types import MessageContent, declare_tool, parse_request, parse_role, read_content
from wanderlust.serving.chat_api import UNHONOURED_OPTIONS, RequestFields, first_limit, read_tool_choice, render_logprob
from wanderlust.serving.dialect import (
    NO_TURN,
    Events,
    JsonObject,
    SeatRequest,
    count_turn_tokens,
    finish_of,
    read_stops,
    refuse_options,
    requested_format,
    unsent_text,
)
from wanderlust.types import AnswerOptions, DeclaredTool, Message, ToolCall, Turn, system

MAX_STORED_RESPONSES = 4096
"""Responses of one episode that can be referred to; the oldest are forgotten first."""
LOGPROBS_WANTED = "message.output_text.logprobs"
"""Value of `include` that asks for log-probabilities."""


class _Item(msgspec.Struct):
    """A message, a call, a call's result, a piece of reasoning or a reference to one of these, by `type`."""

    type: str = "message"
    role: str = ""
    content: MessageContent = None
    id: str | None = None
    call_id: str | None = None
    name: str = ""
    arguments: str = "{}"
    output: MessageContent = None

    def message(self) -> Message:
        """As a message. UsageError for an item of another type."""
        if self.type == "message":
            content, images = read_content(self.content)
            return Message(parse_role(self.role), content, images=images)
        if self.type == "function_call" and self.call_id is not None:
            return Message("assistant", "", (ToolCall(id=self.call_id, name=self.name, arguments=self.arguments),))
        if self.type == "function_call_output" and self.call_id is not None:
            content, images = read_content(self.output)
            return Message("tool", content, tool_call_id=self.call_id, images=images)
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


class _Request(RequestFields):
    input: str | list[dict[str, Any]] = msgspec.field(default_factory=list)
    instructions: str | None = None
    tools: list[_Tool] | None = None
    previous_response_id: str | None = None
    text: _Text | None = None
    include: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """A response that later requests may refer to."""

    answer: JsonObject
    input_items: list[JsonObject]
    """The items of its own request, references resolved."""
    conversation: tuple[Message, ...]
    """The context and the answer, without instructions, which the next request does not inherit."""


class ResponsesDialect:
    """OpenAI's responses, with what the server stores of an episode."""

    id_prefix = "resp_"

    def __init__(self, ignored: Collection[str] = ()):
        self._ignored = ignored
        self._stored: dict[str, StoredResponse] = {}
        self._items: dict[str, JsonObject] = {}
        """Items of stored responses, by their ids."""

    def parse(self, body: Mapping[str, Any]) -> SeatRequest:
        """As `Dialect`."""
        refuse_options(body, UNHONOURED_OPTIONS, self._ignored)
        fields = parse_request(body, _Request, "a response's request")
        form = requested_format(fields.text.format if fields.text else None)
        if form is not None and form.get("type") == "json_schema":  # as in chat completions, which policies take
            schema = {name: value for name, value in form.items() if name != "type"}
            form = {"type": "json_schema", "json_schema": schema}
        limit_name, limit = first_limit(body, ("max_output_tokens", "max_tokens", "max_completion_tokens"))
        wants_logprobs = LOGPROBS_WANTED in (fields.include or ()) or bool(fields.logprobs)
        options = AnswerOptions(
            response_format=form,
            stop=read_stops(fields.stop),
            max_tokens=limit,
            parallel_tool_calls=fields.parallel_tool_calls is not False,
            logprobs=wants_logprobs,
            top_logprobs=fields.top_logprobs or 0,
            **read_tool_choice(fields.tool_choice),
        )
        logprobs_name = "logprobs" if fields.logprobs else "include"
        names = {"response_format": "text.format", "logprobs": logprobs_name, "tool_name": "tool_choice"}
        instructions = [] if fields.instructions is None else [system(fields.instructions)]
        return SeatRequest(
            messages=[
                *instructions,
                *self._before(fields),
                *_messages(parse_request(self._own_items(fields.input), list[_Item], "a response's request")),
            ],
            tools=[] if fields.tool_choice == "none" else [tool.declared() for tool in fields.tools or ()],
            body=body,
            model=fields.model,
            options=options,
            wire_names={**names, "max_tokens": limit_name},
            answers=1 if fields.n is None else fields.n,
            stream=bool(fields.stream),
        )

    def whole(self, id: str, request: SeatRequest, turns: Sequence[Turn]) -> JsonObject:
        """As `Dialect`; the answer is stored, unless the request says `store: false`."""
        answer = render_response(turns[0], id=id, model=request.model, request=request.body)
        if request.body.get("store") is not False:
            while len(self._stored) >= MAX_STORED_RESPONSES:
                self.delete(next(iter(self._stored)))
            items = self._own_items(request.body.get("input", []))
            for number, item in enumerate(items):
                item.setdefault("type", "message")
                if not item.get("id"):
                    item["id"] = f"item_{answer['id']}_{number}"
            own = request.messages[request.body.get("instructions") is not None :]
            stored = StoredResponse(answer=answer, input_items=items, conversation=(*own, turns[0].action))
            self._stored[answer["id"]] = stored
            self._items |= {str(item["id"]): item for item in (*items, *answer["output"])}
        return answer

    def events(self, id: str, request: SeatRequest) -> ResponseEvents:
        """As `Dialect`."""
        return ResponseEvents(self, id, request)

    def get(self, id: str) -> StoredResponse | None:
        """The stored response of that id."""
        return self._stored.get(id)

    def delete(self, id: str) -> None:
        """Forget a stored response and its items."""
        stored = self._stored.pop(id)
        for item in (*stored.input_items, *stored.answer["output"]):
            self._items.pop(str(item.get("id")), None)

    def _before(self, fields: _Request) -> tuple[Message, ...]:
        """The conversation that the request continues."""
        if fields.previous_response_id is None:
            return ()
        stored = self._stored.get(fields.previous_response_id)
        if stored is None:
            raise UsageError(f"there is no response {one_line(fields.previous_response_id)!r} in this episode")
        return stored.conversation

    def _own_items(self, given: str | Sequence[Mapping[str, Any]]) -> list[JsonObject]:
        """The request's items, with stored ones in the place of references."""
        if isinstance(given, str):
            return [{"type": "message", "role": "user", "content": given}]
        items = []
        for item in given:
            if item.get("type") == "item_reference" or set(item) == {"id"}:
                name = str(item.get("id"))
                if name not in self._items:
                    raise UsageError(f"there is no item {one_line(name)!r} in this episode")
                items.append(self._items[name])
            else:
                items.append(dict(item))
        return items


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


def render_response(turn: Turn, *, id: str, model: str, request: Mapping[str, Any]) -> JsonObject:
    """Render the answer as JSON data."""
    action, cut = turn.action, finish_of(turn) == "length"
    output: list[JsonObject] = []
    if action.content or not action.tool_calls:
        logprobs = [render_logprob(one) for one in (turn.details.logprobs if turn.details is not None else ())]
        part: JsonObject = {"type": "output_text", "text": action.content, "annotations": [], "logprobs": logprobs}
        parts = [{"type": "refusal", "refusal": action.content} if finish_of(turn) == "refusal" else part]
        message = {"type": "message", "id": f"msg_{id}", "role": "assistant", "status": "completed", "content": parts}
        output.append(message)
    for n, call in enumerate(action.tool_calls):
        fields = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        output.append({"type": "function_call", "id": f"fc_{id}_{n}", "status": "completed", **fields})
    read, written = count_turn_tokens([turn])
    return {
        "id": id,
        "object": "response",
        "created_at": 0,
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": request.get("instructions"),
        "metadata": request.get("metadata") or {},
        "model": model,
        "output": output,
        "parallel_tool_calls": request.get("parallel_tool_calls") is not False,
        "previous_response_id": request.get("previous_response_id"),
        "store": request.get("store") is not False,
        "tool_choice": request.get("tool_choice") or "auto",
        "tools": request.get("tools") or [],
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": turn.usage.get("cached_tokens", 0), "cache_write_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": turn.usage.get("reasoning_tokens", 0)},
            "total_tokens": read + written,
        },
    }


class ResponseEvents(Events):
    """The events of a streamed response, numbered from 0."""

    def __init__(self, dialect: ResponsesDialect, id: str, request: SeatRequest):
        self._dialect, self._id, self._request = dialect, id, request
        self._sent, self._numbers = "", count()

    def opening(self) -> Iterator[JsonObject]:
        """As `Events`."""
        answer = render_response(NO_TURN, id=self._id, model=self._request.model, request=self._request.body)
        in_progress = {**answer, "status": "in_progress", "output": [], "usage": None}
        yield self._event("response.created", response=in_progress)
        yield self._event("response.in_progress", response=in_progress)

    def piece(self, index: int, text: str) -> Iterator[JsonObject]:
        """As `Events`."""
        if not self._sent:
            (item,) = render_response(NO_TURN, id=self._id, model="", request={})["output"]
            yield from self._item_opening(item, 0)
        self._sent += text
        place = {"item_id": f"msg_{self._id}", "output_index": 0, "content_index": 0}
        yield self._event("response.output_text.delta", delta=text, logprobs=[], **place)

    def rest(self, turns: Sequence[Turn]) -> Iterator[JsonObject]:
        """As `Events`."""
        answer = self._dialect.whole(self._id, self._request, turns)
        for index, item in enumerate(answer["output"]):
            if index or not self._sent:
                yield from self._item_opening(item, index)
            place = {"item_id": item["id"], "output_index": index}
            if item["type"] == "message":
                (part,) = item["content"]
                place["content_index"] = 0
                if part["type"] == "refusal":
                    yield self._event("response.refusal.delta", delta=part["refusal"], **place)
                    yield self._event("response.refusal.done", refusal=part["refusal"], **place)
                else:
                    if text := unsent_text(part["text"], self._sent):
                        yield self._event("response.output_text.delta", delta=text, logprobs=[], **place)
                    logprobs = part["logprobs"]
                    yield self._event("response.output_text.done", text=part["text"], logprobs=logprobs, **place)
                yield self._event("response.content_part.done", part=part, **place)
            else:
                called = {"name": item["name"], "arguments": item["arguments"]}
                yield self._event("response.function_call_arguments.delta", delta=item["arguments"], **place)
                yield self._event("response.function_call_arguments.done", **called, **place)
            yield self._event("response.output_item.done", output_index=index, item=item)
        yield self._event(f"response.{answer['status']}", response=answer)

    def failure(self, status: int, message: str, code: str) -> Iterator[JsonObject]:
        """As `Events`."""
        error = {"message": message, "type": code, "param": None, "code": code}
        yield self._event("error", code=code, message=message, param=None, error=error)

    def _item_opening(self, item: Mapping[str, Any], index: int) -> Iterator[JsonObject]:
        started: JsonObject = {"content": []} if item["type"] == "message" else {"arguments": ""}
        started_item = {**item, **started, "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=index, item=started_item)
        if item["type"] == "message":
            (whole,) = item["content"]
            part = whole | ({"refusal": ""} if whole["type"] == "refusal" else {"text": "", "logprobs": []})
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            yield self._event("response.content_part.added", part=part, **place)

    def _event(self, kind: str, **fields: Any) -> JsonObject:
        return {"type": kind, **fields, "sequence_number": next(self._numbers)}
