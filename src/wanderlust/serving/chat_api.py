"""Chat completions of a seat: parse requests, and render answers whole or as chunks.

Source: OpenAI's API reference, `POST /chat/completions`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from wanderlust.openai_types import call_to_wire, message_from_wire, parse_request, tool_from_wire
from wanderlust.serving.dialect import (
    Events,
    JsonObject,
    SeatRequest,
    count_turn_tokens,
    finish_of,
    read_limit,
    read_stops,
    refuse_options,
    requested_format,
    unsent_text,
)
from wanderlust.types import AnswerOptions, TokenLogprob, Turn

_FINISHES = frozenset({"stop", "length", "tool_calls"})
UNHONOURED_OPTIONS: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("functions", "function_call", "logit_bias"), ((), {}, [])),
    "modalities": (["text"],),
    **dict.fromkeys(("audio", "web_search_options", "conversation", "prompt", "max_tool_calls"), ()),
    "background": (False,),
}
"""Options of OpenAI's APIs that a program relies on and no seat honours, and their values that change nothing."""


class RequestFields(msgspec.Struct):
    """What requests of both of OpenAI's APIs have."""

    model: str = ""
    tool_choice: str | dict[str, Any] | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    parallel_tool_calls: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    n: int | None = None
    stream: bool | None = None


class _Request(RequestFields, kw_only=True):
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    response_format: dict[str, Any] | None = None


def read_tool_choice(choice: str | Mapping[str, Any] | None) -> JsonObject:
    """Fields of AnswerOptions for `auto`, `required`, or a tool named in a dictionary, of either of OpenAI's APIs."""
    if choice == "required":
        return {"tool_choice": "required"}
    if not isinstance(choice, Mapping):
        return {}
    function = choice.get("function", choice)
    name = function.get("name") if isinstance(function, Mapping) else None
    return {"tool_choice": "required", "tool_name": str(name or "")}


def first_limit(body: Mapping[str, Any], names: Sequence[str]) -> tuple[str, int | None]:
    """The bound of an answer under whichever of the names the request has it, and that name."""
    name = next((name for name in names if body.get(name) is not None), names[0])
    return name, read_limit(name, body.get(name))


class ChatDialect:
    """OpenAI's chat completions."""

    id_prefix = ""

    def __init__(self, ignored: Collection[str] = ()):
        self._ignored = ignored

    def parse(self, body: Mapping[str, Any]) -> SeatRequest:
        """As `Dialect`; sampling options are ignored, as the policy decides them."""
        refuse_options(body, UNHONOURED_OPTIONS, self._ignored)
        fields = parse_request(body, _Request, "a chat completion's request")
        limit_name, limit = first_limit(body, ("max_completion_tokens", "max_tokens", "max_output_tokens"))
        options = AnswerOptions(
            response_format=requested_format(fields.response_format),
            stop=read_stops(fields.stop),
            max_tokens=limit,
            parallel_tool_calls=fields.parallel_tool_calls is not False,
            logprobs=bool(fields.logprobs),
            top_logprobs=fields.top_logprobs or 0,
            **read_tool_choice(fields.tool_choice),
        )
        return SeatRequest(
            messages=[message_from_wire(message) for message in fields.messages],
            tools=[] if fields.tool_choice == "none" else [tool_from_wire(tool) for tool in fields.tools or ()],
            body=body,
            model=fields.model,
            options=options,
            wire_names={"max_tokens": limit_name, "tool_name": "tool_choice"},
            answers=1 if fields.n is None else fields.n,
            stream=bool(fields.stream),
        )

    def whole(self, id: str, request: SeatRequest, turns: Sequence[Turn]) -> JsonObject:
        """As `Dialect`."""
        return render_chat_completion(turns, id=id, model=request.model)

    def events(self, id: str, request: SeatRequest) -> ChatChunks:
        """As `Dialect`."""
        return ChatChunks(id, request)


def render_chat_completion(turns: Sequence[Turn], *, id: str, model: str) -> JsonObject:
    """Render answers to one context as JSON data."""
    choices = [render_choice(turn, index) for index, turn in enumerate(turns)]
    usage = render_usage(turns)
    return {"id": id, "object": "chat.completion", "created": 0, "model": model, "choices": choices, "usage": usage}


def render_choice(turn: Turn, index: int = 0) -> JsonObject:
    """Render one answer."""
    action = turn.action
    calls = [call_to_wire(call) for call in action.tool_calls]
    finish = finish_of(turn)
    message: JsonObject = {"role": "assistant", "content": action.content or (None if calls else "")}
    if finish == "refusal":
        message |= {"content": None, "refusal": action.content}
    if calls:
        message["tool_calls"] = calls
        finish = finish if finish == "length" else "tool_calls"
    choice: JsonObject = {
        "index": index,
        "message": message,
        "finish_reason": finish if finish in _FINISHES else "stop",
    }
    logprobs = turn.details.logprobs if turn.details is not None else ()
    if logprobs:
        choice["logprobs"] = {"content": [render_logprob(one) for one in logprobs], "refusal": None}
    return choice


def render_logprob(one: TokenLogprob) -> JsonObject:
    """Render a token's log-probability, as both of OpenAI's APIs do."""
    others = [
        {"token": text, "logprob": logprob, "bytes": list(text.encode(errors="replace"))}
        for text, logprob in one.alternatives
    ]
    written = list(one.text.encode(errors="replace"))
    return {"token": one.text, "logprob": one.logprob, "bytes": written, "top_logprobs": others}


def render_usage(turns: Sequence[Turn]) -> JsonObject:
    """Render what the answers to one context took."""
    read, written = count_turn_tokens(turns)
    usage: JsonObject = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    for details, name in (
        ("prompt_tokens_details", "cached_tokens"),
        ("completion_tokens_details", "reasoning_tokens"),
    ):
        if any(name in turn.usage for turn in turns):
            usage[details] = {name: sum(turn.usage.get(name, 0) for turn in turns)}
    return usage


class ChatChunks(Events):
    """The chunks of a streamed chat completion; with `include_usage` the last one has the usage and no choices."""

    ending = b"data: [DONE]\n\n"

    def __init__(self, id: str, request: SeatRequest):
        options = request.body.get("stream_options")
        self._usage = isinstance(options, Mapping) and bool(options.get("include_usage"))
        self._shared = {"id": id, "created": 0, "model": request.model, "object": "chat.completion.chunk"}
        self._answers, self._sent = request.answers, defaultdict[int, str](str)

    def opening(self) -> Iterator[JsonObject]:
        """As `Events`."""
        for index in range(self._answers):
            yield self._chunk(index, {"role": "assistant", "content": ""})

    def piece(self, index: int, text: str) -> Iterator[JsonObject]:
        """As `Events`."""
        self._sent[index] += text
        yield self._chunk(index, {"content": text})

    def rest(self, turns: Sequence[Turn]) -> Iterator[JsonObject]:
        """As `Events`."""
        for index, turn in enumerate(turns):
            choice = render_choice(turn, index)
            logprobs = {"logprobs": choice["logprobs"]} if "logprobs" in choice else {}
            if (text := unsent_text(turn.action.content, self._sent[index])) or logprobs:
                refused = choice["message"].get("refusal") and not self._sent[index]
                yield self._chunk(index, {"refusal" if refused else "content": text}, **logprobs)
            for number, call in enumerate(choice["message"].get("tool_calls", ())):
                yield self._chunk(index, {"tool_calls": [{"index": number, **call}]})
            yield self._chunk(index, {}, finish_reason=choice["finish_reason"])
        if self._usage:
            yield self._shared | {"choices": [], "usage": render_usage(turns)}

    def _chunk(self, index: int, delta: Mapping[str, Any], **more: Any) -> JsonObject:
        choice = {"index": index, "delta": delta, "finish_reason": None, **more}
        return self._shared | {"choices": [choice]}
