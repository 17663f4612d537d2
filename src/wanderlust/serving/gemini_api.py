"""Google's `generateContent` over a seat: parse requests, and render answers whole or as a stream.

Source: the reference of the Gemini API, `models.generateContent`, `models.streamGenerateContent`. Names are
read in both of the forms that the API takes, `maxOutputTokens` and `max_output_tokens`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from wanderlust.errors import UsageError, one_line
from wanderlust.openai_types import Image, arguments_object, declare_tool, join_parts, parse_request
from wanderlust.policies.tool_formats.tagged_json import call_id
from wanderlust.serving.dialect import (
    Events,
    JsonObject,
    SeatRequest,
    count_turn_tokens,
    finish_of,
    read_limit,
    read_stops,
    refuse_options,
    schema_format,
    unsent_text,
)
from wanderlust.types import AnswerOptions, DeclaredTool, Message, ToolCall, Turn, system

_UNHONOURED: Mapping[str, tuple[Any, ...]] = {"cachedContent": ("",)}
_UNHONOURED_CONFIG: Mapping[str, tuple[Any, ...]] = {
    "responseModalities": ([], ["TEXT"]),
    "responseMimeType": ("text/plain", "application/json"),
    "speechConfig": ({},),
    "imageConfig": ({},),
    "enableEnhancedCivicAnswers": (False,),
}
_SNAKE = re.compile(r"_([a-z])")


def _camel(value: Any) -> Any:
    """A mapping with the names of its fields in the first of the API's two forms; anything else as it is."""
    if not isinstance(value, Mapping):
        return value
    return {_SNAKE.sub(lambda match: match[1].upper(), str(name)): item for name, item in value.items()}


class _Blob(msgspec.Struct, rename="camel"):
    mime_type: str = ""
    data: str = ""
    file_uri: str = ""

    def image(self) -> Image:
        """The image in it. UsageError for sound, films and files."""
        if not self.mime_type.startswith("image/"):
            raise UsageError(f"a part of type {one_line(self.mime_type)!r}; only text and images are understood")
        # base64 comes in both alphabets here, and data URLs have one
        data = self.data.translate(str.maketrans("-_", "+/"))
        return Image(self.file_uri or f"data:{self.mime_type};base64,{data}")


class _Call(msgspec.Struct):
    name: str = ""
    args: Any = None
    id: str | None = None


class _Result(msgspec.Struct):
    name: str = ""
    response: Any = None
    id: str | None = None


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    inline_data: _Blob | None = None
    file_data: _Blob | None = None
    function_call: _Call | None = None
    function_response: _Result | None = None

    def content(self) -> str | Image:
        """As text or an image. UsageError for other parts."""
        blob = self.inline_data or self.file_data
        if blob is not None:
            return blob.image()
        if self.text is None:
            raise UsageError("a part that is neither text nor an image, a function's call or its response")
        return "" if self.thought else self.text


class _Content(msgspec.Struct):
    parts: list[_Part] | None = None
    role: str | None = None


class _Declaration(msgspec.Struct, rename="camel"):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    parameters_json_schema: dict[str, Any] | None = None

    def declared(self) -> DeclaredTool:
        """As a tool of the conversation."""
        schema = self.parameters_json_schema or (json_schema(self.parameters) if self.parameters else None)
        return declare_tool(self.name, self.description, schema)


class _Config(msgspec.Struct, rename="camel"):
    stop_sequences: list[str] | None = None
    max_output_tokens: int | None = None
    candidate_count: int | None = None
    response_mime_type: str = ""
    response_schema: dict[str, Any] | None = None
    response_json_schema: dict[str, Any] | None = None
    response_logprobs: bool | None = None
    logprobs: int | None = None


class _Calling(msgspec.Struct, rename="camel"):
    mode: str = "AUTO"
    allowed_function_names: list[str] | None = None


def json_schema(schema: Any, *, fields: bool = False) -> Any:
    """Convert Google's form of a schema (`"type": "OBJECT"`, `nullable`) to JSON schema.

    With `fields`, the names in `schema` are those of properties, and not of the schema language.
    """
    if isinstance(schema, list):
        return [json_schema(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    if fields:
        return {name: json_schema(item) for name, item in schema.items()}
    literal = ("enum", "required", "example", "default", "propertyOrdering")
    out = {
        name: item if name in literal else json_schema(item, fields=name == "properties")
        for name, item in schema.items()
        if name not in ("nullable", "propertyOrdering", "property_ordering")
    }
    if isinstance(out.get("type"), str):
        out["type"] = out["type"].lower()
        if schema.get("nullable"):
            out["type"] = [out["type"], "null"]
    if isinstance(out.get("anyOf"), list) and schema.get("nullable"):
        out["anyOf"] = [*out["anyOf"], {"type": "null"}]
    return out


class GenerateDialect:
    """Google's `generateContent`; the model's name and whether to stream stand in the path, and are put into the body.

    Calls without ids, which this API allows, get those that a policy of this process gives them.
    """

    id_prefix = "gen_"

    def __init__(self, ignored: Collection[str] = ()):
        self._ignored = ignored

    def parse(self, body: Mapping[str, Any]) -> SeatRequest:
        """As `Dialect`."""
        body = _camel(body)
        refuse_options(body, _UNHONOURED, self._ignored)
        given = _camel(body.get("generationConfig") or {})
        config = parse_request(given, _Config, "a generationConfig")
        refuse_options(given, _UNHONOURED_CONFIG, self._ignored)
        calling = _Calling()
        if (tool_config := _camel(body.get("toolConfig"))) is not None:
            wanted = _camel(parse_request(tool_config, dict[str, Any], "a toolConfig").get("functionCallingConfig"))
            calling = parse_request(wanted or {}, _Calling, "a functionCallingConfig")
        names = calling.allowed_function_names or []
        if len(names) > 1 and "allowedFunctionNames" not in self._ignored:
            raise UsageError("a recorded seat cannot honour `allowedFunctionNames` of more than one function")
        forced = calling.mode.upper() == "ANY"
        options = AnswerOptions(
            response_format=_format(config),
            stop=read_stops(config.stop_sequences),
            max_tokens=read_limit("maxOutputTokens", config.max_output_tokens),
            tool_choice="required" if forced else "auto",
            tool_name=names[0] if forced and len(names) == 1 else "",
            logprobs=bool(config.response_logprobs),
            top_logprobs=config.logprobs or 0,
        )
        system_text, images = join_parts(part.content() for part in _parts_of(body.get("systemInstruction")))
        if images:
            raise UsageError("an image in the systemInstruction")
        contents = _contents(body.get("contents"))
        return SeatRequest(
            messages=_messages([system(system_text)] if system_text else [], contents),
            tools=[] if calling.mode.upper() == "NONE" else [*_tools(body.get("tools"))],
            body=body,
            model=str(body.get("model", "")),
            options=options,
            wire_names=_WIRE_NAMES,
            answers=config.candidate_count or 1,
            stream=bool(body.get("stream")),
        )

    def whole(self, id: str, request: SeatRequest, turns: Sequence[Turn]) -> JsonObject:
        """As `Dialect`."""
        candidates = [render_candidate(turn, index) for index, turn in enumerate(turns)]
        return _answer(id, request, candidates) | {"usageMetadata": render_usage(turns)}

    def events(self, id: str, request: SeatRequest) -> GenerateEvents:
        """As `Dialect`."""
        return GenerateEvents(id, request)


_WIRE_NAMES = {
    "response_format": "responseSchema",
    "stop": "stopSequences",
    "max_tokens": "maxOutputTokens",
    "tool_choice": "functionCallingConfig",
    "tool_name": "functionCallingConfig",
    "logprobs": "responseLogprobs",
    "top_logprobs": "logprobs",
    "answers": "candidateCount",
}


def _format(config: _Config) -> Mapping[str, Any] | None:
    if config.response_json_schema:
        return schema_format(config.response_json_schema)
    if config.response_schema:
        return schema_format(json_schema(config.response_schema))
    return {"type": "json_object"} if config.response_mime_type == "application/json" else None


def _contents(given: Any) -> list[tuple[str, list[_Part]]]:
    """Role and parts of each content; a text stands for a content of the user's."""
    if not given:
        raise UsageError("a request without contents")
    listed = given if isinstance(given, list) else [given]
    out = []
    for content in listed:
        role = content.get("role") if isinstance(content, Mapping) else None
        out.append((str(role or "user"), _parts_of(content)))
    return out


def _parts_of(content: Any) -> list[_Part]:
    if content is None:
        return []
    if isinstance(content, str):
        return [_Part(text=content)]
    listed = parse_request(content, dict[str, Any], "a content").get("parts")
    if not isinstance(listed, list):
        listed = [] if listed is None else [listed]
    parts = []
    for part in listed:
        named = _camel({"text": part} if isinstance(part, str) else part)
        if isinstance(named, dict):
            named |= {name: _camel(named[name]) for name in ("inlineData", "fileData") if name in named}
        parts.append(parse_request(named, _Part, "a part"))
    return parts


def _messages(opening: Sequence[Message], contents: Sequence[tuple[str, list[_Part]]]) -> list[Message]:
    """The conversation; each response of a function is a message of its own, before what the user says besides."""
    messages, called = [*opening], list[ToolCall]()
    for role, parts in contents:
        if role == "model":
            called = [
                ToolCall(
                    id=part.function_call.id or call_id(len(messages), number),
                    name=part.function_call.name,
                    arguments=msgspec.json.encode(part.function_call.args or {}).decode(),
                )
                for number, part in enumerate(part for part in parts if part.function_call is not None)
                if part.function_call is not None
            ]
            spoken = [part.content() for part in parts if part.function_call is None and not _only_signed(part)]
            messages.append(Message("assistant", join_parts(spoken)[0], tuple(called)))
            continue
        if role not in ("user", "function", "tool"):
            raise UsageError(f"a content with the role {one_line(role)!r}; there are user and model")
        results = [part.function_response for part in parts if part.function_response is not None]
        messages += [Message("tool", _result_text(result), tool_call_id=_take_id(result, called)) for result in results]
        spoken = [part.content() for part in parts if part.function_response is None]
        if spoken or not results:
            content, images = join_parts(spoken)
            messages.append(Message("user", content, images=images))
    return messages


def _only_signed(part: _Part) -> bool:
    """Whether there is nothing in the part, as in one that carries a signature alone."""
    return part.text is None and part.inline_data is None and part.file_data is None


def _take_id(result: _Result, called: list[ToolCall]) -> str:
    """The id of the call that this is the response to: the one it names, else the first open one of the function."""
    if result.id:
        return result.id
    for place, call in enumerate(called):
        if call.name == result.name:
            return called.pop(place).id
    raise UsageError(f"a response of the function {one_line(result.name)!r}, which was not called before")


def _result_text(result: _Result) -> str:
    """The result for the model to read; SDKs wrap it into an object of one field, some with its name."""
    response = result.response
    if isinstance(response, Mapping) and response.get("name") == result.name and len(response) == 2:
        response = {name: value for name, value in response.items() if name != "name"}
    if isinstance(response, Mapping) and len(response) == 1 and (name := next(iter(response))) in _WRAPPERS:
        response = response[name]
    return response if isinstance(response, str) else msgspec.json.encode(response).decode()


_WRAPPERS = frozenset({"result", "output", "return_value", "content"})


def _tools(given: Any) -> Iterator[DeclaredTool]:
    for tool in parse_request(given or [], list[dict[str, Any]], "tools"):
        for name, value in _camel(tool).items():
            if name == "functionDeclarations":
                for declaration in parse_request(value or [], list[dict[str, Any]], "functionDeclarations"):
                    yield parse_request(_camel(declaration), _Declaration, "a function's declaration").declared()
            elif value is not None:
                raise UsageError(f"a tool of type {one_line(name)!r}; only functionDeclarations are understood")


_FINISHES = {"length": "MAX_TOKENS"}


def render_candidate(turn: Turn, index: int, *, sent: str = "") -> JsonObject:
    """Render one answer; `sent` is the text that went out already."""
    parts: list[JsonObject] = []
    if text := unsent_text(turn.action.content, sent):
        parts.append({"text": text})
    parts += [
        {"functionCall": {"id": call.id, "name": call.name, "args": arguments_object(call.arguments)}}
        for call in turn.action.tool_calls
    ]
    content = {"role": "model", "parts": parts or [{"text": ""}]}
    candidate = {"content": content, "finishReason": _FINISHES.get(finish_of(turn), "STOP"), "index": index}
    logprobs = turn.details.logprobs if turn.details is not None else ()
    if logprobs:
        chosen = [{"token": one.text, "logProbability": one.logprob} for one in logprobs]
        top = [
            {"candidates": [{"token": text, "logProbability": logprob} for text, logprob in one.alternatives]}
            for one in logprobs
        ]
        candidate["logprobsResult"] = {"chosenCandidates": chosen, "topCandidates": top}
        candidate["avgLogprobs"] = sum(one.logprob for one in logprobs) / len(logprobs)
    return candidate


def render_usage(turns: Sequence[Turn]) -> JsonObject:
    """Render what the answers to one context took."""
    read, written = count_turn_tokens(turns)
    cached = max((turn.usage.get("cached_tokens", 0) for turn in turns), default=0)
    thought = sum(turn.usage.get("reasoning_tokens", 0) for turn in turns)
    usage = {"promptTokenCount": read, "candidatesTokenCount": written - thought, "totalTokenCount": read + written}
    more = {"cachedContentTokenCount": cached, "thoughtsTokenCount": thought}
    return usage | {name: count for name, count in more.items() if count}


def _answer(id: str, request: SeatRequest, candidates: Sequence[Mapping[str, Any]]) -> JsonObject:
    return {"candidates": [*candidates], "modelVersion": request.model, "responseId": id}


class GenerateEvents(Events):
    """The answers of a streamed `generateContent`."""

    style = "google"

    def __init__(self, id: str, request: SeatRequest):
        self._id, self._request = id, request
        self._sent = defaultdict[int, str](str)

    def opening(self) -> Iterator[JsonObject]:
        """As `Events`: a stream of this API begins with its text."""
        yield from ()

    def piece(self, index: int, text: str) -> Iterator[JsonObject]:
        """As `Events`."""
        self._sent[index] += text
        candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "index": index}
        yield _answer(self._id, self._request, [candidate])

    def rest(self, turns: Sequence[Turn]) -> Iterator[JsonObject]:
        """As `Events`."""
        candidates = [render_candidate(turn, index, sent=self._sent[index]) for index, turn in enumerate(turns)]
        yield _answer(self._id, self._request, candidates) | {"usageMetadata": render_usage(turns)}
