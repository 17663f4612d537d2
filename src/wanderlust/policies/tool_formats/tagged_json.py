"""Formats of tool calls in chat templates: parse calls out of a model's text, and render them.

Five are known: Hermes and Qwen (`<tool_call>{json}</tool_call>`), Qwen 3.5 (tags in it), Llama 3 (bare JSON,
`<|python_tag|>`), Mistral (`[TOOL_CALLS]`), LFM2 (`<|tool_call_start|>[f(x=1)]<|tool_call_end|>`). A template's format
is recognized from its rendering of a sample call, never from the model's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from json import JSONDecoder
from typing import Any

import msgspec

from wanderlust.policies.tool_formats.python_calls import LiteralParseError, parse_python_calls, render_python_call
from wanderlust.types import Message, Tool, ToolCall, assistant, decode_arguments

_FUNCTION = re.compile(r"\s*<function=([^<>\n]+)>\s*")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]+)>\n?")
_END = re.compile(r"\s*(</function>)?\s*")
PARAMETER_END = "</parameter>"


def parse_tagged_call(text: str) -> tuple[str, str]:
    """Parse a call as Qwen 3.5 writes it: `<function=look><parameter=city>Oslo</parameter></function>`.

    Returns the name and the arguments, a JSON object of strings. Raises LiteralParseError for any other text.
    """
    function = _FUNCTION.match(text)
    if function is None:
        raise LiteralParseError("there is no <function=...>")
    at, arguments = function.end(), dict[str, str]()
    while (parameter := _PARAMETER.match(text, at)) is not None:
        end = text.find(PARAMETER_END, parameter.end())
        if end < 0:
            raise LiteralParseError(f"the parameter {parameter[1]!r} has no end")
        value, at = text[parameter.end() : end], end + len(PARAMETER_END)
        arguments[parameter[1]] = value.removesuffix("\n")
    rest = _END.match(text, at)
    if rest is None or rest.end() < len(text):
        raise LiteralParseError("something else follows the parameters")
    return function[1], json.dumps(arguments, ensure_ascii=False)


def render_tagged_call(name: str, arguments: str) -> str:
    """Render a call in tags; arguments that are no JSON object are written unchanged."""
    values = decode_arguments(arguments or "{}")
    if not isinstance(values, dict):
        return f"<function={name}>\n{arguments}\n</function>"
    parameters = ""
    for key, value in values.items():
        written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parameters += f"<parameter={key}>\n{written}\n</parameter>\n"
    return f"<function={name}>\n{parameters}</function>"


def convert_arguments(name: str, arguments: str, tools: Iterable[Tool]) -> str:
    """Parse as JSON the values of arguments in tags that the tool's schema does not declare as strings.

    Strings stand there without quotes and everything else as JSON, so that only the schema tells 5 from "5".
    """
    schema = next((tool.schema for tool in tools if tool.name == name), {})
    wanted = schema.get("properties", {})
    values = {key: _value(text, wanted.get(key, {})) for key, text in json.loads(arguments).items()}
    return json.dumps(values, ensure_ascii=False)


def _value(text: str, schema: Any) -> Any:
    choices = [schema, *schema.get("anyOf", ())] if isinstance(schema, Mapping) else []
    kinds = [choice.get("type") for choice in choices if isinstance(choice, Mapping)]
    kinds = [kind for entry in kinds for kind in (entry if isinstance(entry, list) else [entry]) if kind]
    if not kinds or ("string" in kinds and not (text == "null" and "null" in kinds)):
        return text
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text


MAX_PARSED_CALLS = 64
"""Calls parsed in one message; later ones stay text."""
THOUGHT_END = "</think>"
"""Ends reasoning; text up to the last one is not searched for calls."""

ParsedCall = tuple[str, str]
"""Name and arguments; text that was announced as a call and is none has an empty name, and itself as arguments."""


@dataclass(frozen=True, slots=True)
class ParsedToolCalls:
    """A part of a text, from `start` to `end`, that consists of calls."""

    start: int
    end: int
    calls: list[ParsedCall]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFormat:
    """Parse and render tool calls in one format."""

    name: str
    marks: tuple[str, ...]
    """Texts that announce a call."""
    find: Callable[[str], Iterator[ParsedToolCalls]]
    """Yield the calls of a text, in order."""
    wrap: Callable[[Sequence[ParsedCall]], str]
    """Render calls as the model writes them."""
    bare: bool = False
    """Whether an answer that begins with a brace may be a call without any mark."""
    untyped: bool = False
    """Whether arguments are parsed as strings, to be converted by the tool's schema."""

    def parse(self, text: str, tools: Sequence[Tool] = (), *, turn: int = 0) -> Message:
        """Split an answer into its text and its calls. Never raises.

        An announced call that cannot be parsed becomes a call without a name and with its text as arguments, which
        `call_tools` answers with an error. Ids are made of `turn` and the call's number.
        """
        thought = text.rfind(THOUGHT_END) + len(THOUGHT_END) if THOUGHT_END in text else 0
        texts, calls, at = [text[:thought]], list[ToolCall](), thought
        for block in self.find(text[thought:]):
            if len(calls) + len(block.calls) > MAX_PARSED_CALLS:
                break
            texts.append(text[at : thought + block.start])
            at = thought + block.end
            calls += [
                ToolCall(
                    id=call_id(turn, n),
                    name=name,
                    arguments=convert_arguments(name, arguments, tools) if self.untyped and name else arguments,
                )
                for n, (name, arguments) in enumerate(block.calls, len(calls))
            ]
        texts.append(text[at:])
        return assistant("".join(texts).rstrip(), *calls) if calls else assistant(text)

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """Render the calls as text, those without a name unchanged."""
        return self.wrap([(call.name, call.arguments or "{}") for call in calls])

    def calls_as_text(self, message: Message) -> Message:
        """Move calls without a name back into the message's text, for clients that know no such calls."""
        broken = [call for call in message.tool_calls if not call.name]
        if not broken:
            return message
        good = tuple(call for call in message.tool_calls if call.name)
        return replace(message, content=f"{message.content}\n{self.render_calls(broken)}".lstrip("\n"), tool_calls=good)

    def certain_length(self, text: str) -> int:
        """Number of leading characters of an unfinished answer that are text, whatever may follow."""
        thought = text.rfind(THOUGHT_END) + len(THOUGHT_END) if THOUGHT_END in text else 0
        rest = text[thought:]
        if self.bare and (not rest.strip() or rest.lstrip().startswith("{")):
            return thought
        places = [at for mark in self.marks if (at := rest.find(mark)) >= 0]
        held = max(partial_mark_length(rest, mark) for mark in self.marks)
        return thought + min([*places, len(rest) - held])


def partial_mark_length(text: str, mark: str) -> int:
    """Length of the longest end of the text that begins the mark."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:n])), 0)


def call_id(turn: int, number: int) -> str:
    """An id of nine letters and digits, as Mistral's template requires, unique in one conversation."""
    return f"c{turn % 100_000:05d}{number % 1000:03d}"


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"")
    parameters: msgspec.Raw = msgspec.Raw(b"")


_call, _calls, _string = msgspec.json.Decoder(_Call), msgspec.json.Decoder(list[_Call]), msgspec.json.Decoder(str)


def _json_calls(text: str) -> list[ParsedCall]:
    """Parse a call or a list of calls; text that is neither is one call without a name."""
    body, read = text.strip(), list[ParsedCall]()
    try:
        for call in _calls.decode(body) if body.startswith("[") else [_call.decode(body)]:
            raw = bytes(call.arguments) or bytes(call.parameters) or b"{}"
            # Some models write the arguments as a string of JSON.
            read.append((call.name, _string.decode(raw) if raw.startswith(b'"') else raw.decode()))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return [("", text)]
    return read if read and all(name for name, _ in read) else [("", text)]


def _python_calls(text: str) -> list[ParsedCall]:
    body = text.strip()
    if body.startswith(("{", "[{")):
        return _json_calls(text)
    try:
        return parse_python_calls(body) or [("", text)]
    except LiteralParseError:
        return [("", text)]


def _between(text: str, marks: tuple[str, str], read: Callable[[str], list[ParsedCall]]) -> Iterator[ParsedToolCalls]:
    """Yield the calls between marks; the last one may lack its end."""
    opening, closing = marks
    at = 0
    while (start := text.find(opening, at)) >= 0:
        end = text.find(closing, start)
        at = len(text) if end < 0 else end + len(closing)
        yield ParsedToolCalls(start, at, read(text[start + len(opening) : end if end >= 0 else len(text)]))


def _json_end(text: str, start: int) -> int:
    """End of the JSON value that begins at `start`; the text's end when there is none."""
    try:
        return JSONDecoder().raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return len(text)


HERMES_MARKS = ("<tool_call>", "</tool_call>")


def _write_between_tags(calls: Sequence[ParsedCall], render: Callable[[str, str], str]) -> str:
    blocks = [f"\n{render(name, arguments)}\n" if name else arguments for name, arguments in calls]
    return "\n".join(block.join(HERMES_MARKS) for block in blocks)


def _object(name: str, arguments: str, key: str = "arguments") -> str:
    named = msgspec.json.encode(name.encode(errors="backslashreplace").decode()).decode()
    return f'{{"name": {named}, "{key}": {arguments}}}'


def _tagged_calls(text: str) -> list[ParsedCall]:
    try:
        return [parse_tagged_call(text)]
    except LiteralParseError:
        return [("", text)]


LFM_MARKS = ("<|tool_call_start|>", "<|tool_call_end|>")


def _write_list(calls: Sequence[ParsedCall], *, render: Callable[[str, str], str], before: str, after: str) -> str:
    """Render each call without a name, then all others as one list, between the marks."""
    good = [render(name, arguments) for name, arguments in calls if name]
    space = "" if after else " "
    blocks = [arguments for name, arguments in calls if not name] + ([f"{space}[{', '.join(good)}]"] if good else [])
    return "".join(f"{before}{block}{after}" for block in blocks)


PYTHON_TAG = "<|python_tag|>"
_ANNOUNCED = re.compile(r'\s*\{\s*"(type|name|function)"\s*:')
_ARGUMENTS_KEY = re.compile(r'"(parameters|arguments)"\s*:')
_BUILTIN = re.compile(r"\s*([\w-]+)\.call(?=\()")
_SEPARATOR = re.compile(r"[\s;,]*")


def _llama(text: str) -> Iterator[ParsedToolCalls]:
    start = text.find(PYTHON_TAG)
    tagged = start >= 0
    if not tagged and not (_ANNOUNCED.match(text) and _ARGUMENTS_KEY.search(text)):
        return
    at = _SEPARATOR.match(text, start + len(PYTHON_TAG) if tagged else 0).end()  # type: ignore[union-attr]
    if tagged and not text.startswith("{", at):
        builtin = _BUILTIN.match(text, at)
        calls = _python_calls(builtin[1] + text[builtin.end() :]) if builtin else []
        yield ParsedToolCalls(start, len(text), calls if calls and calls[0][0] else [("", text[at:])])
        return
    calls = []
    while at < len(text) and text.startswith("{", at) and len(calls) < MAX_PARSED_CALLS:
        end = _json_end(text, at)
        calls += _json_calls(text[at:end])
        at = _SEPARATOR.match(text, end).end()  # type: ignore[union-attr]
    yield ParsedToolCalls(max(start, 0), at, calls)


TOOL_CALLS, ARGS = "[TOOL_CALLS]", "[ARGS]"
_NAMED = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*\w+\s*)?(?:\[ARGS\]\s*)?(?=\{)")


def _mistral(text: str) -> Iterator[ParsedToolCalls]:
    start = text.find(TOOL_CALLS)
    while start >= 0:
        at = start + len(TOOL_CALLS)
        following = text.find(TOOL_CALLS, at)
        named = _NAMED.match(text, at)
        if named:
            end = _json_end(text, named.end())
            calls = _json_calls(_object(named[1], text[named.end() : end]))
            calls = calls if calls[0][0] else [("", text[at:end])]
        else:
            block_start = at + len(text[at:]) - len(text[at:].lstrip())
            end = _json_end(text, block_start) if text[block_start : block_start + 1] in ("[", "{") else len(text)
            calls = _json_calls(text[at:end])
        if not calls[0][0] and following >= 0:
            end = following
            calls = [("", text[at:end])]
        yield ParsedToolCalls(start, end, calls)
        start = text.find(TOOL_CALLS, end)


HERMES = ToolCallFormat(
    name="hermes",
    marks=HERMES_MARKS[:1],
    find=partial(_between, marks=HERMES_MARKS, read=_json_calls),
    wrap=partial(_write_between_tags, render=_object),
)
TEXT_CALLS = replace(
    HERMES,
    name="text",
    wrap=lambda calls: "\n".join((_object(*one) if one[0] else one[1]).join(HERMES_MARKS) for one in calls),
)
"""The calls of the text protocol, in the words of its instructions."""
TAGGED = ToolCallFormat(
    name="tagged",
    marks=HERMES_MARKS[:1],
    find=partial(_between, marks=HERMES_MARKS, read=_tagged_calls),
    wrap=partial(_write_between_tags, render=render_tagged_call),
    untyped=True,
)
LFM = ToolCallFormat(
    name="lfm",
    marks=LFM_MARKS[:1],
    find=partial(_between, marks=LFM_MARKS, read=_python_calls),
    wrap=partial(_write_list, render=render_python_call, before=LFM_MARKS[0], after=LFM_MARKS[1]),
)
LLAMA = ToolCallFormat(
    name="llama",
    marks=(PYTHON_TAG,),
    find=_llama,
    wrap=lambda calls: "; ".join(_object(*call, "parameters") if call[0] else call[1] for call in calls),
    bare=True,
)
MISTRAL = ToolCallFormat(
    name="mistral",
    marks=(TOOL_CALLS,),
    find=_mistral,
    wrap=partial(_write_list, render=_object, before=TOOL_CALLS, after=""),
)
MISTRAL_NAMED = replace(
    MISTRAL,
    name="mistral, named",
    wrap=lambda calls: "".join(TOOL_CALLS + (f"{name}{ARGS}{raw}" if name else raw) for name, raw in calls),
)


_FORMAT_PATTERNS = (
    (HERMES, r"<tool_call>\s*\{{\s*\"name\":\s*\"{}\""),
    (TAGGED, r"<tool_call>\s*<function={}>"),
    (LFM, r"<\|tool_call_start\|>\[\s*{}\("),
    (MISTRAL_NAMED, r"\[TOOL_CALLS\]\s*{}\b"),
    (MISTRAL, r"\[TOOL_CALLS\]\s*\[?\s*\{{[^\[]*\"name\":\s*\"{}\""),
    (LLAMA, r"\{{\s*(\"type\":\s*\"function\",\s*)?\"name\":\s*\"{}\",\s*\"parameters\":"),
)
"""Pattern of a call in each format; `{}` is the tool's name."""


def recognize_format(written: str, *, name: str) -> ToolCallFormat | None:
    """Recognize the format in which a template has `written` a call of the tool `name`; None when it is unknown."""
    escaped = re.escape(name)
    return next((one for one, call in _FORMAT_PATTERNS if re.search(call.format(escaped), written)), None)
