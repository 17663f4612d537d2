"""Convert messages, tools and chat completions to and from the JSON of OpenAI's chat endpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast, get_args

import msgspec

from wanderlust.errors import CONTENT_FILTER, PolicyFailure, UsageError, answer_blocked, one_line, quoted
from wanderlust.types import (
    IMAGE_MARK,
    AnswerDetails,
    AnswerOptions,
    Completion,
    DeclaredTool,
    Message,
    Role,
    TokenLogprob,
    Tokens,
    Tool,
    ToolCall,
    decode_arguments,
)

_TEXTS = frozenset({"text", "input_text", "output_text"})
_IMAGES = frozenset({"image_url", "input_image"})
_IMAGE_URL = re.compile(r"https?://\S|data:image/[\w.+-]{1,40};base64,[\w+/=-]")


class _Function(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] = "{}"


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None
    extra_content: Any = None


class _AnswerPart(msgspec.Struct):
    text: str | None = None
    refusal: str | None = None
    thinking: str | list[_AnswerPart] | None = None

    def thoughts(self) -> str:
        """What was thought, which is parts again in some APIs."""
        nested = self.thinking or ""
        return nested if isinstance(nested, str) else "".join(part.text or "" for part in nested)


class _Message(msgspec.Struct):
    content: str | list[_AnswerPart] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    thinking_blocks: Any = None
    extra_content: Any = None

    def parts(self) -> list[_AnswerPart]:
        """The content as parts, a refusal among them."""
        content = [_AnswerPart(text=self.content)] if isinstance(self.content, str) else self.content or []
        return [*content, _AnswerPart(refusal=self.refusal)] if self.refusal else content


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None
    token_ids: Any = None
    logprobs: Any = None
    stop_reason: Any = None


class _Alternative(msgspec.Struct):
    logprob: float
    token: str = ""


class _Logprob(_Alternative):
    top_logprobs: list[_Alternative] = []


class _Logprobs(msgspec.Struct):
    content: list[_Logprob]


class _Answer(msgspec.Struct):
    choices: list[_Choice] = []
    usage: dict[str, Any] | None = None
    prompt_token_ids: Any = None

    def logprobs(self) -> list[_Logprob]:
        """The log-probabilities of the first choice, where it has any."""
        try:
            return msgspec.convert(self.choices[0].logprobs, _Logprobs).content
        except msgspec.ValidationError:
            return []

    def details(self) -> AnswerDetails | None:
        """Log-probabilities and the stop text (vLLM tells it), where the answer has them."""
        told = self.choices[0].stop_reason
        stop = told if isinstance(told, str) else ""
        logprobs = tuple(
            TokenLogprob(
                text=one.token,
                logprob=one.logprob,
                alternatives=tuple((other.token, other.logprob) for other in one.top_logprobs),
            )
            for one in self.logprobs()
        )
        return AnswerDetails(stop=stop, logprobs=logprobs) if stop or logprobs else None

    def tokens(self) -> Tokens | None:
        """The sampled tokens where the server reports all (`wander serve`, vLLM); `prompt` is the context."""
        try:
            prompt = msgspec.convert(self.prompt_token_ids, tuple[int, ...])
            sampled = msgspec.convert(self.choices[0].token_ids, tuple[int, ...])
        except msgspec.ValidationError:
            return None
        values = tuple(one.logprob for one in self.logprobs())
        complete = sampled and len(values) == len(sampled)
        return Tokens(prompt=prompt, completion=sampled, logprobs=values) if complete else None


_answers = msgspec.json.Decoder(_Answer)


def parse_chat_completion(body: bytes, *, details: bool = False) -> Completion:
    """Parse the first choice of a chat completion; with `details`, log-probabilities are kept as text.

    Raises PolicyFailure of one line when the body is no JSON, has another shape or is empty: an empty answer counts as
    the model's only where the server reports sampled tokens. A refusal is an answer with its text and the finish
    `refusal`; what the server's filter kept back is a PolicyFailure that says so.
    """
    try:
        answer = _decode_answer(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise PolicyFailure(f"not a chat completion: {error}") from error
    if not answer.choices:
        raise PolicyFailure("a chat completion without choices")
    message, finish = answer.choices[0].message, answer.choices[0].finish_reason
    calls: tuple[ToolCall, ...] = ()
    for n, call in enumerate(message.tool_calls or ()):
        raw = call.function.arguments
        arguments = raw if isinstance(raw, str) else json.dumps(raw)
        extra = _extra_fields(call, ("extra_content",))
        calls += (ToolCall(id=call.id or f"call_{n}", name=call.function.name, arguments=arguments, extra=extra),)
    parts = message.parts()
    content, refusal = "".join(part.text or "" for part in parts), "".join(part.refusal or "" for part in parts)
    thoughts = "".join(part.thoughts() for part in parts)
    told = (message.reasoning_content, message.reasoning, thoughts)
    reasoning = next((r for r in told if r and isinstance(r, str)), None)
    names = RETURNED_FIELDS if message.reasoning_content or not reasoning else ("reasoning", *RETURNED_FIELDS)
    usage = parse_usage(answer.usage or {})
    if finish == CONTENT_FILTER:
        raise answer_blocked(CONTENT_FILTER, text=content + refusal)
    if finish == "error":
        raise PolicyFailure(f"the server broke the answer off, of which came {quoted(content)}")
    finish = finish_of(finish, calls, refused=bool(refusal))
    if not (content or refusal or calls or reasoning or finish == "length" or usage.get("completion_tokens")):
        raise PolicyFailure("a chat completion with neither content nor tool calls")
    return Completion(
        message=Message(
            "assistant", content + refusal, calls, reasoning=reasoning, extra=_extra_fields(message, names)
        ),
        finish=finish,
        usage=usage,
        tokens=answer.tokens(),
        details=answer.details() if details else None,
    )


_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"})
"""Finishes by which APIs say that a limit cut the answer, in small letters."""


def finish_of(reason: str | None, calls: Sequence[ToolCall], *, refused: bool = False) -> str:
    """The `Completion.finish` of an answer with these calls that its API says has ended for this reason.

    An answer with calls is no refusal, whatever it says before them; a limit counts before its calls, which may be cut.
    """
    if refused and not calls:
        return "refusal"
    return "length" if (reason or "").lower() in _CUT else "tool_calls" if calls else "stop"


RETURNED_FIELDS = ("reasoning_details", "thinking_blocks", "extra_content")
"""Fields of an answer that servers want back unchanged in the requests that follow: signatures of what was thought."""


def _extra_fields(part: _Message | _Call, names: Sequence[str]) -> str | None:
    """The fields of these names as a JSON object; None where there are none."""
    found = {name: value for name in names if (value := getattr(part, name))}
    return msgspec.json.encode(found).decode() if found else None


def parse_usage(usage: Mapping[str, Any]) -> dict[str, int]:
    """The counts of an answer's usage; `cached_tokens` and `reasoning_tokens` are taken from their details."""
    out = {name: n for name, n in usage.items() if type(n) is int}
    for name, places in _USAGE_DETAILS.items():
        for place, key in places:
            details = usage.get(place) if place else usage
            if isinstance(details, Mapping) and type(details.get(key)) is int:
                out[name] = details[key]
                break
    return out


_USAGE_DETAILS = {
    "cached_tokens": (
        ("prompt_tokens_details", "cached_tokens"),
        ("input_tokens_details", "cached_tokens"),
        ("", "prompt_cache_hit_tokens"),
    ),
    "reasoning_tokens": (
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
    ),
}


def _decode_answer(body: bytes) -> _Answer:
    try:
        return _answers.decode(body)
    except msgspec.DecodeError as error:
        try:  # an answer cut within a character ends with half of it, which only Python's own reader lets pass
            whole = json.dumps(json.loads(body), ensure_ascii=False)
        except ValueError:
            raise error from None
        return _answers.decode(whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def message_to_wire(message: Message, *, reasoning: bool = False) -> dict[str, Any]:
    """Convert a message to an endpoint's JSON; with `reasoning` it and the fields that servers want back are in it."""
    wire: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.images:
        wire["content"] = [
            {"type": "text", "text": part} if kind == "text" else {"type": "image_url", "image_url": {"url": part}}
            for kind, part in content_parts(message)
        ]
    if message.tool_calls:
        wire["tool_calls"] = [call_to_wire(call, extra=reasoning) for call in message.tool_calls]
    if reasoning:
        kept = json.loads(message.extra) if message.extra else {}
        more = {name: kept[name] for name in ("reasoning", *RETURNED_FIELDS) if name in kept}
        if message.reasoning and "reasoning" not in more:
            wire["reasoning_content"] = message.reasoning
        wire |= more
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    return wire


def content_parts(message: Message) -> Iterator[tuple[Literal["text", "image"], str]]:
    """Yield a message's texts and the URLs of its images, in order; empty texts are left out."""
    images = iter(message.images)
    for place, text in enumerate(message.content.split(IMAGE_MARK, len(message.images))):
        if place:
            yield "image", next(images)
        if text:
            yield "text", text
    for image in images:  # more images than marks
        yield "image", image


def arguments_object(text: str) -> dict[str, Any]:
    """Parse a call's arguments, for APIs that take nothing but an object; any other value is its only field."""
    arguments = decode_arguments(text)
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}


def message_to_template(message: Message) -> dict[str, Any]:
    """Convert a message to the JSON of chat templates: as an endpoint's, with the arguments of calls decoded."""
    wire = message_to_wire(message)
    for call in wire.get("tool_calls", ()):
        call["function"]["arguments"] = decode_arguments(call["function"]["arguments"])
    return wire


def call_to_wire(call: ToolCall, *, extra: bool = False) -> dict[str, Any]:
    """Convert a tool call to an endpoint's JSON; with `extra` the fields that servers want back are in it."""
    wire = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    return wire | json.loads(call.extra) if extra and call.extra else wire


def tool_to_wire(tool: Tool) -> dict[str, Any]:
    """Convert a tool to the JSON of endpoints and chat templates."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def options_to_wire(options: AnswerOptions, *, most_tokens: int | None = None) -> dict[str, Any]:
    """Render options as fields of a chat completion's request; `most_tokens` bounds the answer in any case."""
    wire: dict[str, Any] = {"response_format": options.response_format, "stop": list(options.stop) or None}
    if options.tool_name:
        wire["tool_choice"] = {"type": "function", "function": {"name": options.tool_name}}
    elif options.tool_choice != "auto":
        wire["tool_choice"] = options.tool_choice
    if not options.parallel_tool_calls:
        wire["parallel_tool_calls"] = False
    if options.logprobs:
        wire |= {"logprobs": True, "top_logprobs": options.top_logprobs or None}
    if options.max_tokens is not None:
        wire["max_tokens"] = options.max_tokens if most_tokens is None else min(options.max_tokens, most_tokens)
    return {name: value for name, value in wire.items() if value is not None}


class ContentPart(msgspec.Struct):
    """One piece of a message's content."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | dict[str, Any] | None = None
    """In chat completions an object with the URL, in responses the URL itself."""


MessageContent = str | list[ContentPart] | None


class _ClientFunction(msgspec.Struct):
    name: str
    arguments: str = "{}"


class _ClientCall(msgspec.Struct):
    id: str
    function: _ClientFunction


class _ClientMessage(msgspec.Struct):
    role: str
    content: MessageContent = None
    refusal: str | None = None
    tool_calls: list[_ClientCall] | None = None
    tool_call_id: str | None = None


StructT = TypeVar("StructT")


def parse_request(data: Any, kind: type[StructT], what: str) -> StructT:
    """Convert `data` to a `kind`; raises UsageError of one line that names the wrong part of `what`."""
    try:
        return msgspec.convert(data, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise UsageError(f"{what}: {one_line(str(error))}") from error


def message_from_wire(wire: Mapping[str, Any]) -> Message:
    """Convert a client's JSON to a message. Raises UsageError for unsupported content, e.g. pictures."""
    message = parse_request(wire, _ClientMessage, "a message")
    calls = [ToolCall(id=c.id, name=c.function.name, arguments=c.function.arguments) for c in message.tool_calls or ()]
    content, images = read_content(message.content)
    content += message.refusal or ""
    return Message(parse_role(message.role), content, tuple(calls), message.tool_call_id, images=images)


def parse_role(name: str) -> Role:
    """Convert a client's name of a role. Raises UsageError for unknown ones."""
    role = {"developer": "system"}.get(name, name)
    if role not in get_args(Role):
        raise UsageError(f"a message with the role {one_line(role)!r}; there are {', '.join(get_args(Role))}")
    return cast(Role, role)


def read_content(content: MessageContent) -> tuple[str, tuple[str, ...]]:
    """The text of a content and the URLs of its images. Raises UsageError for sound, files and bad URLs."""
    if content is None or isinstance(content, str):
        return content or "", ()
    return join_parts(_read_part(part) for part in content)


def _read_part(part: ContentPart) -> str | Image:
    if part.type in _TEXTS:
        return part.text or ""
    if part.type == "refusal":
        return part.refusal or ""
    if part.type not in _IMAGES:
        raise UsageError(f"a message part of type {one_line(part.type)!r}; only text and images are understood")
    return Image(part.image_url.get("url") if isinstance(part.image_url, Mapping) else part.image_url)


class Image:
    """An image of a message, by its URL."""

    def __init__(self, url: Any):
        """Raises UsageError for a URL that is neither `https:`, `http:` nor `data:` with an image in it."""
        if not isinstance(url, str) or not _IMAGE_URL.match(url):
            start = quoted(str(url), 40)
            raise UsageError(f"an image at {start}: it must be an https: URL, or a data: URL of an image")
        self.url = url


def join_parts(parts: Iterable[str | Image]) -> tuple[str, tuple[str, ...]]:
    """A message's content and its images, of texts and images in order."""
    listed = list(parts)
    images = tuple(part.url for part in listed if isinstance(part, Image))
    if not images:
        return "".join(part for part in listed if isinstance(part, str)), ()
    texts = (IMAGE_MARK if isinstance(part, Image) else part.replace(IMAGE_MARK, "\ufffd") for part in listed)
    return "".join(texts), images


class _ToolFunction(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct):
    type: str = "function"
    function: _ToolFunction | None = None


def tool_from_wire(wire: Mapping[str, Any]) -> DeclaredTool:
    """Convert a client's JSON to a declared tool. Raises UsageError for other kinds than functions."""
    declaration = parse_request(wire, _Tool, "a tool")
    if declaration.type != "function" or declaration.function is None:
        raise UsageError(f"a tool of type {one_line(declaration.type)!r}; only functions are understood")
    return declare_tool(declaration.function.name, declaration.function.description, declaration.function.parameters)


def declare_tool(name: str, description: str | None, schema: dict[str, Any] | None) -> DeclaredTool:
    """Make a declared tool; without a schema it takes no arguments."""
    schema = schema or {"type": "object", "properties": {}}
    return DeclaredTool(name=name, description=description or "", schema=schema)
