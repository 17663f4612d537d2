"""Anthropic's messages over a seat: parse requests, and render answers whole or as events.

Source: Anthropic's API reference, `POST /v1/messages` and its streaming events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from wanderlust.errors import UsageError, one_line
from wanderlust.openai_types import Image, arguments_object, declare_tool, join_parts, parse_request
from wanderlust.serving.dialect import (
    NO_TURN,
    Events,
    JsonObject,
    SeatRequest,
    count_turn_tokens,
    encode_data,
    finish_of,
    read_limit,
    read_stops,
    refuse_options,
    schema_format,
    unsent_text,
)
from wanderlust.types import AnswerOptions, DeclaredTool, Message, ToolCall, Turn, system

_UNHONOURED: Mapping[str, tuple[Any, ...]] = {"mcp_servers": ([],), "container": ()}


class _Source(msgspec.Struct):
    type: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: Any = None
    tool_use_id: str = ""
    is_error: bool | None = None
    content: Any = None
    source: _Source | None = None


_Content = str | list[_Block] | None


class _Message(msgspec.Struct):
    role: str
    content: _Content = None


class _Tool(msgspec.Struct):
    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None

    def declared(self) -> DeclaredTool:
        """As a tool of the conversation. UsageError for one that the server would have to know."""
        if self.type not in (None, "custom"):
            raise UsageError(f"a tool of type {one_line(self.type)!r}; only tools with an input_schema are understood")
        return declare_tool(self.name, self.description, self.input_schema)


class _ToolChoice(msgspec.Struct):
    type: str
    name: str = ""
    disable_parallel_tool_use: bool | None = None


class _Format(msgspec.Struct):
    type: str = ""
    schema: dict[str, Any] | None = None


class _OutputConfig(msgspec.Struct):
    format: _Format | None = None


class _Thread(msgspec.Struct):
    type: str
    previous_message_id: str = ""


class _Request(msgspec.Struct):
    messages: list[_Message]
    model: str = ""
    system: _Content = None
    tools: list[_Tool] | None = None
    tool_choice: _ToolChoice | None = None
    stop_sequences: list[str] | None = None
    max_tokens: int | None = None
    output_config: _OutputConfig | None = None
    output_format: _Format | None = None
    thread: _Thread | None = None
    stream: bool | None = None


MAX_STORED_MESSAGES = 4096
"""Answers of one episode whose thread can be continued; the oldest are forgotten first."""
_THREAD_FIELDS = ("system", "tools")
"""What a request that continues a thread leaves out: as in the one that began it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredThread:
    """A conversation that later requests may continue."""

    fields: Mapping[str, Any]
    """Those of the request that began it that the others leave out."""
    conversation: tuple[Message, ...]
    """The context and the answer, without the system prompt."""


class MessagesDialect:
    """Anthropic's messages.

    The API demands `max_tokens` of every request. A policy that can bound no answer gives it whole all the same. The
    conversations that a program wants to be kept (`thread`) are.
    """

    id_prefix = "msg_"

    def __init__(self, ignored: Collection[str] = ()):
        self._ignored = ignored
        self._threads: dict[str, StoredThread] = {}

    def parse(self, body: Mapping[str, Any]) -> SeatRequest:
        """As `Dialect`."""
        refuse_options(body, _UNHONOURED, self._ignored)
        before: tuple[Message, ...] = ()
        given = body.get("thread")
        thread = None if given is None else parse_request(given, _Thread, "a thread")
        if thread is not None and thread.type == "continue":
            stored = self._threads.get(thread.previous_message_id)
            if stored is None:
                raise UsageError(f"there is no message {one_line(thread.previous_message_id)!r} in this episode")
            body, before = {**stored.fields, **body}, stored.conversation
        fields = parse_request(body, _Request, "a message's request")
        choice, names = fields.tool_choice, {"stop": "stop_sequences", "tool_name": "tool_choice"}
        form = fields.output_format or (fields.output_config.format if fields.output_config else None)
        forced = choice is not None and choice.type in ("any", "tool")
        options = AnswerOptions(
            response_format=schema_format(form.schema) if form is not None and form.schema is not None else None,
            stop=read_stops(fields.stop_sequences),
            max_tokens=read_limit("max_tokens", fields.max_tokens),
            tool_choice="required" if forced else "auto",
            tool_name=choice.name if forced and choice is not None else "",
            parallel_tool_calls=not (choice is not None and choice.disable_parallel_tool_use),
        )
        names["parallel_tool_calls"] = "disable_parallel_tool_use"
        names["response_format"] = "output_format" if fields.output_format else "output_config"
        instructions, images = read_blocks(fields.system)
        if images:
            raise UsageError("an image in the system prompt")
        without_tools = choice is not None and choice.type == "none"
        return SeatRequest(
            messages=[*([system(instructions)] if instructions else []), *before, *read_messages(fields.messages)],
            tools=[] if without_tools else [tool.declared() for tool in fields.tools or ()],
            body=body,
            model=fields.model,
            options=options,
            wire_names=names,
            demanded=frozenset({"max_tokens"}),
            stream=bool(fields.stream),
        )

    def whole(self, id: str, request: SeatRequest, turns: Sequence[Turn]) -> JsonObject:
        """As `Dialect`."""
        self.store(id, request, turns[0].action)
        return render_message(turns[0], id=id, request=request)

    def events(self, id: str, request: SeatRequest) -> MessageEvents:
        """As `Dialect`."""
        return MessageEvents(self, id, request)

    def store(self, id: str, request: SeatRequest, action: Message) -> None:
        """Keep the conversation under the answer's id, where the request wants that."""
        if request.body.get("thread") is None:
            return
        while len(self._threads) >= MAX_STORED_MESSAGES:
            del self._threads[next(iter(self._threads))]
        own = request.messages[bool(request.messages and request.messages[0].role == "system") :]
        fields = {name: request.body[name] for name in _THREAD_FIELDS if name in request.body}
        self._threads[id] = StoredThread(fields=fields, conversation=(*own, action))


def read_messages(messages: Sequence[_Message]) -> Iterator[Message]:
    """Yield the conversation; each result of a tool is a message of its own, before what the user says besides."""
    for message in messages:
        if message.role in ("system", "developer"):
            yield system(read_blocks(message.content)[0])
        elif message.role == "assistant":
            yield _read_answer(message.content)
        elif message.role == "user":
            blocks = message.content if isinstance(message.content, list) else []
            results = [block for block in blocks if block.type == "tool_result"]
            for block in results:
                result = block.content
                if result is not None and not isinstance(result, str):
                    result = parse_request(result, list[_Block], "a tool's result")
                content, images = read_blocks(result)
                yield Message("tool", content, tool_call_id=block.tool_use_id, images=images)
            left = [block for block in blocks if block.type != "tool_result"] if blocks else message.content
            if left or not results:
                content, images = read_blocks(left)
                yield Message("user", content, images=images)
        else:
            raise UsageError(f"a message with the role {one_line(message.role)!r}; there are user and assistant")


def _read_answer(content: _Content) -> Message:
    blocks = content if isinstance(content, list) else [_Block(type="text", text=content or "")]
    calls = [
        ToolCall(id=block.id, name=block.name, arguments=_encode_arguments(block.input))
        for block in blocks
        if block.type == "tool_use"
    ]
    spoken = [block for block in blocks if block.type not in ("tool_use", "thinking", "redacted_thinking")]
    return Message("assistant", read_blocks(spoken)[0], tuple(calls))


def _encode_arguments(value: Any) -> str:
    return msgspec.json.encode({} if value is None else value).decode()


def read_blocks(content: _Content) -> tuple[str, tuple[str, ...]]:
    """The text of blocks and the URLs of their images. Raises UsageError for other blocks."""
    if content is None or isinstance(content, str):
        return content or "", ()
    return join_parts(_read_block(block) for block in content)


def _read_block(block: _Block) -> str | Image:
    if block.type == "text":
        return block.text
    if block.type == "image" and block.source is not None:
        source = block.source
        return Image(source.url if source.type == "url" else f"data:{source.media_type};base64,{source.data}")
    raise UsageError(f"a block of type {one_line(block.type)!r} where text or an image is understood")


_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "refusal": "refusal"}


def render_blocks(turn: Turn, *, thinking: bool) -> Iterator[JsonObject]:
    """Yield the blocks of an answer: its reasoning where it is wanted, its text, and its calls."""
    action = turn.action
    if thinking and action.reasoning:
        yield {"type": "thinking", "thinking": action.reasoning, "signature": ""}
    if action.content:
        yield {"type": "text", "text": action.content}
    for call in action.tool_calls:
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_object(call.arguments)}


def wants_thinking(request: SeatRequest) -> bool:
    """Whether the request asks for reasoning."""
    thinking = request.body.get("thinking")
    return isinstance(thinking, Mapping) and thinking.get("type") in ("enabled", "adaptive")


def render_message(turn: Turn, *, id: str, request: SeatRequest) -> JsonObject:
    """Render the answer as JSON data."""
    stop = turn.details.stop if turn.details is not None else ""
    reason = _STOP_REASONS.get(finish_of(turn), "stop_sequence" if stop else "end_turn")
    if turn.action.tool_calls and reason != "max_tokens":
        reason = "tool_use"
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [*render_blocks(turn, thinking=wants_thinking(request))],
        "stop_reason": reason,
        "stop_sequence": stop if reason == "stop_sequence" else None,
        "usage": render_usage(turn),
    }


def render_usage(turn: Turn) -> JsonObject:
    """Render what a turn took; this API counts tokens read from a cache apart."""
    read, written = count_turn_tokens([turn])
    cached = min(turn.usage.get("cached_tokens", 0), read)
    usage = {"input_tokens": read - cached, "output_tokens": written}
    return usage | {"cache_read_input_tokens": cached, "cache_creation_input_tokens": 0}


class MessageEvents(Events):
    """The events of a streamed message."""

    style = "anthropic"
    keep_alive = encode_data({"type": "ping"}, "ping")

    def __init__(self, dialect: MessagesDialect, id: str, request: SeatRequest):
        self._dialect, self._id, self._request = dialect, id, request
        self._sent, self._thinking = "", wants_thinking(request)

    def opening(self) -> Iterator[JsonObject]:
        """As `Events`; the tokens read are not known yet, and are told at the end."""
        nothing = render_message(NO_TURN, id=self._id, request=self._request)
        yield {"type": "message_start", "message": {**nothing, "stop_reason": None}}
        yield {"type": "ping"}

    def piece(self, index: int, text: str) -> Iterator[JsonObject]:
        """As `Events`; where reasoning is wanted, which stands before the text, the text waits for it."""
        if self._thinking:
            return
        if not self._sent:
            yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        self._sent += text
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}

    def rest(self, turns: Sequence[Turn]) -> Iterator[JsonObject]:
        """As `Events`."""
        answer = self._dialect.whole(self._id, self._request, turns)
        for index, block in enumerate(answer["content"]):
            yield from self._block(index, block)
        end = {"stop_reason": answer["stop_reason"], "stop_sequence": answer["stop_sequence"]}
        yield {"type": "message_delta", "delta": end, "usage": answer["usage"]}
        yield {"type": "message_stop"}

    def _block(self, index: int, block: Mapping[str, Any]) -> Iterator[JsonObject]:
        if block["type"] == "text":
            if not self._sent:
                yield _block_start(index, {"type": "text", "text": ""})
            if text := unsent_text(block["text"], self._sent):
                yield _block_delta(index, {"type": "text_delta", "text": text})
        elif block["type"] == "thinking":
            yield _block_start(index, {"type": "thinking", "thinking": "", "signature": ""})
            yield _block_delta(index, {"type": "thinking_delta", "thinking": block["thinking"]})
            yield _block_delta(index, {"type": "signature_delta", "signature": block["signature"]})
        else:
            yield _block_start(index, {**block, "input": {}})
            arguments = _encode_arguments(block["input"])
            yield _block_delta(index, {"type": "input_json_delta", "partial_json": arguments})
        yield {"type": "content_block_stop", "index": index}


def _block_start(index: int, block: Mapping[str, Any]) -> JsonObject:
    return {"type": "content_block_start", "index": index, "content_block": block}


def _block_delta(index: int, delta: Mapping[str, Any]) -> JsonObject:
    return {"type": "content_block_delta", "index": index, "delta": delta}
