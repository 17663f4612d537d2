"""Parse requests for chat completions and completions, of seats and of models, and render a seat's answers.

Sources: OpenAI's API reference; vLLM's additions `return_token_ids` and prompts of token ids (vLLM 0.26).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from wanderlust.errors import UsageError
from wanderlust.openai_types import DeclaredTool, call_to_wire, message_from_wire, parse_request, tool_from_wire
from wanderlust.policies.base import SamplingOptions
from wanderlust.policies.endpoint import PREFER_TOKEN_IDS
from wanderlust.types import Message, Turn

_FINISHES = frozenset({"stop", "length", "tool_calls", "content_filter"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatRequest:
    """A request to a seat, from a chat completion or a response."""

    messages: list[Message]
    """The whole context."""
    tools: list[DeclaredTool]
    model: str = ""
    response_format: Mapping[str, Any] | None = None
    """The `response_format` of chat endpoints, when the program wants one."""
    has_instructions: bool = False
    """True when the first message was given as `instructions`, which the next request does not inherit."""


class _Request(msgspec.Struct):
    messages: list[dict[str, Any]]
    model: str = ""
    tools: list[dict[str, Any]] | None = None
    response_format: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = None


SEAT_OPTIONS: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_output_tokens"), ()),
    **dict.fromkeys(("stop", "functions", "function_call", "logit_bias"), ((), {}, [])),
    "tool_choice": ("auto", "none"),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "parallel_tool_calls": (True,),
    "modalities": (["text"],),
    **dict.fromkeys(("audio", "web_search_options", "conversation", "prompt", "max_tool_calls"), ()),
}
"""Options that a program relies on and a recorded seat cannot honour, and their values that change nothing."""


def refuse_seat_options(body: Mapping[str, Any], ignored: Collection[str]) -> None:
    """Raises UsageError that names the first option of a request which would not be honoured, unless it is `ignored`.

    How answers are drawn (`temperature`, `top_p`, `seed`, penalties) is the policy's and no program's to say.
    """
    for name, harmless in SEAT_OPTIONS.items():
        value = body.get(name)
        if value is not None and value not in harmless and name not in ignored:
            allow = f"ignored_options={{{name!r}}}"
            raise UsageError(f"a recorded seat cannot honour `{name}`: leave it out, or let it be ignored with {allow}")
    if body.get("n") not in (None, 1):
        raise UsageError("a recorded seat gives one answer at a time: leave out `n`")


def parse_seat_request(body: Mapping[str, Any], ignored: Collection[str] = ()) -> SeatRequest:
    """Parse the body of a request; sampling options are ignored, as the policy decides them, and those in `ignored`.

    Raises UsageError of one line for an unsupported option and for any other body.
    """
    refuse_seat_options(body, ignored)
    fields = parse_request(body, _Request, "a chat completion's request")
    return SeatRequest(
        messages=[message_from_wire(message) for message in fields.messages],
        tools=[] if fields.tool_choice == "none" else [tool_from_wire(tool) for tool in fields.tools or ()],
        model=fields.model,
        response_format=requested_format(fields.response_format),
    )


def requested_format(response_format: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """`response_format`; None for plain text."""
    return None if not response_format or response_format.get("type") == "text" else response_format


def render_chat_completion(turn: Turn, *, id: str, model: str) -> dict[str, Any]:
    """Render the answer as JSON data."""
    action = turn.action
    calls = [call_to_wire(call) for call in action.tool_calls]
    message: dict[str, Any] = {"role": "assistant", "content": action.content or (None if calls else "")}
    if calls:
        message["tool_calls"] = calls
    finish = "tool_calls" if calls else turn.finish
    choice = {"index": 0, "message": message, "finish_reason": finish if finish in _FINISHES else "stop"}
    read, written = count_turn_tokens(turn)
    usage: dict[str, Any] = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    for details, name in (
        ("prompt_tokens_details", "cached_tokens"),
        ("completion_tokens_details", "reasoning_tokens"),
    ):
        if name in turn.usage:
            usage[details] = {name: turn.usage[name]}
    return {"id": id, "object": "chat.completion", "created": 0, "model": model, "choices": [choice], "usage": usage}


def count_turn_tokens(turn: Turn) -> tuple[int, int]:
    """Tokens read and written, 0 where the policy did not report them."""
    return turn.usage.get("prompt_tokens", 0), turn.usage.get("completion_tokens", 0)


def unsent_text(whole: str, sent: str) -> str:
    """The rest of an answer's text, of which `sent` went out already."""
    sent = sent if whole.startswith(sent) else sent.rstrip()  # text before a call ends without space
    return whole[len(sent) :] if whole.startswith(sent) else ""


def render_chat_chunks(answer: Mapping[str, Any], *, usage: bool = False, sent: str = "") -> Iterator[dict[str, Any]]:
    """Yield the answer as a stream's chunks; with `usage`, the last one has the usage and no choices.

    `sent` is the beginning of the text that went out already.
    """
    shared = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    (choice,) = answer["choices"]
    message = choice["message"]

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        return shared | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    if not sent:
        yield chunk({"role": "assistant", "content": ""})
    if text := unsent_text(message["content"] or "", sent):
        yield chunk({"content": text})
    for index, call in enumerate(message.get("tool_calls", ())):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, choice["finish_reason"])
    if usage:
        yield shared | {"choices": [], "usage": answer["usage"]}


MAX_CHOICES = 256
"""Answers of one request, over all its prompts."""
MAX_REQUEST_TOKENS = 2**20
MAX_STOP_TEXTS, MAX_STOP_CHARS = 16, 1000

Prompt = str | list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """Options of a request to a model."""

    model: str
    sampling: SamplingOptions
    n: int = 1
    """Answers to each prompt."""
    seed: int | None = None
    stream: bool = False
    include_usage: bool = False
    """Whether a stream ends with the usage."""
    logprobs: bool = False
    return_token_ids: bool = False
    """Whether the token ids are wanted."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end an answer; only those that do so anyway are supported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCompletionRequest:
    """A chat completion's request."""

    options: RequestOptions
    messages: list[Message]
    tools: list[DeclaredTool]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """A completion's request."""

    options: RequestOptions
    prompts: list[Prompt]


class _RequestFields(msgspec.Struct):
    model: str = ""
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    logprobs: bool | int | None = None
    top_logprobs: int | None = None
    return_token_ids: bool | None = None
    stop_token_ids: list[int] | None = None


class _Chat(_RequestFields, kw_only=True):
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None


class _Text(_RequestFields, kw_only=True):
    prompt: Any


_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "min_p", "min_tokens"), (0,)),
    **dict.fromkeys(("echo", "use_beam_search", "ignore_eos"), (False,)),
    "repetition_penalty": (1,),
    "top_k": (0, -1),
    "best_of": (1,),
    "logit_bias": ({},),
    "suffix": ("",),
    "parallel_tool_calls": (True,),
}
"""Unsupported options that would change the answer, and the values at which they change nothing."""


def parse_chat_completion_request(
    body: Mapping[str, Any], default: SamplingOptions, *, prefer: str = ""
) -> ChatCompletionRequest:
    """Read a chat completion's request. Raises UsageError of one line for what cannot be done."""
    fields = parse_request(body, _Chat, "a chat completion's request")
    if not fields.messages:
        raise UsageError("a chat completion's request without messages")
    if fields.tool_choice not in (None, "auto", "none"):
        raise UsageError("tool_choice may be auto or none: nobody can be made to call a tool here")
    if requested_format(fields.response_format) is not None:
        raise UsageError("response_format: answers cannot be held to a form here")
    tools = [] if fields.tool_choice == "none" else [tool_from_wire(tool) for tool in fields.tools or ()]
    messages = [message_from_wire(message) for message in fields.messages]
    return ChatCompletionRequest(
        options=_parse_options(body, fields, default, prefer=prefer), messages=messages, tools=tools
    )


def parse_completion_request(
    body: Mapping[str, Any], default: SamplingOptions, *, prefer: str = ""
) -> CompletionRequest:
    """Read a completion's request. Raises UsageError of one line for what cannot be done."""
    fields = parse_request(body, _Text, "a completion's request")
    order = _parse_options(body, fields, default, prefer=prefer)
    several = isinstance(fields.prompt, list) and not all(type(item) is int for item in fields.prompt)
    prompts: list[Prompt] = fields.prompt if several else [fields.prompt]
    for prompt in prompts:
        ids = isinstance(prompt, list) and all(type(item) is int and item >= 0 for item in prompt)
        if not (prompt and (isinstance(prompt, str) or ids)):
            raise UsageError("prompt: a text or a list of token ids is needed, or a list of such; none may be empty")
    if len(prompts) * order.n > MAX_CHOICES:
        raise UsageError(f"{len(prompts) * order.n} answers at once: a request may have {MAX_CHOICES}")
    return CompletionRequest(options=order, prompts=prompts)


def _parse_options(
    body: Mapping[str, Any], fields: _RequestFields, default: SamplingOptions, *, prefer: str
) -> RequestOptions:
    for name, neutral in _NEUTRAL.items():
        if body.get(name) is not None and body[name] not in neutral:
            raise UsageError(f"{name} is not to be had here: leave it out")
    n = 1 if fields.n is None else fields.n
    if not 1 <= n <= MAX_CHOICES:
        raise UsageError(f"n: {n} answers; a request may have 1 to {MAX_CHOICES}")
    if (fields.top_logprobs or 0) > 1 or (not isinstance(fields.logprobs, bool) and (fields.logprobs or 0) > 1):
        raise UsageError("logprobs: only those of the sampled tokens are to be had, not of others: ask for at most 1")
    exact = any(part.strip() == PREFER_TOKEN_IDS for part in prefer.split(","))
    return RequestOptions(
        model=fields.model,
        sampling=_sampling(fields, default),
        n=n,
        seed=fields.seed,
        stream=bool(fields.stream),
        include_usage=bool((fields.stream_options or {}).get("include_usage")),
        logprobs=exact or (fields.logprobs is not None and fields.logprobs is not False),
        return_token_ids=exact or bool(fields.return_token_ids),
        stop_token_ids=tuple(fields.stop_token_ids or ()),
    )


def _sampling(fields: _RequestFields, default: SamplingOptions) -> SamplingOptions:
    limits = [limit for limit in (fields.max_completion_tokens, fields.max_tokens) if limit is not None]
    sampling = SamplingOptions(
        temperature=default.temperature if fields.temperature is None else fields.temperature,
        top_p=default.top_p if fields.top_p is None else fields.top_p,
        max_tokens=limits[0] if limits else default.max_tokens,
        stop=default.stop
        if fields.stop is None
        else tuple([fields.stop] if isinstance(fields.stop, str) else fields.stop),
    )
    if not (math.isfinite(sampling.temperature) and 0 <= sampling.temperature <= 100):
        raise UsageError(f"temperature: {sampling.temperature:g} is not between 0 and 100")
    if not 0 < sampling.top_p <= 1:
        raise UsageError(f"top_p: {sampling.top_p:g} is not above 0 and at most 1")
    if not 1 <= sampling.max_tokens <= MAX_REQUEST_TOKENS:
        raise UsageError(f"max_tokens: {sampling.max_tokens} is not between 1 and {MAX_REQUEST_TOKENS}")
    if len(sampling.stop) > MAX_STOP_TEXTS or not all(0 < len(stop) <= MAX_STOP_CHARS for stop in sampling.stop):
        raise UsageError(f"stop: at most {MAX_STOP_TEXTS} texts of 1 to {MAX_STOP_CHARS} characters")
    return sampling
