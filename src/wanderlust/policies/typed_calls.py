"""Tool calls as a person types them: `App__action name=value name="two words"`, and `?` to look up what there is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from wanderlust.core.contracts import Tool
from wanderlust.core.errors import UsageError
from wanderlust.core.messages import ToolCall
from wanderlust.core.text import one_line

HINT = "Call a tool: NAME arg=value ..., or write a message. ? lists the tools, ? NAME explains one, ? WORD finds some."

_NAMED = re.compile(r"(\w+)=")


def typed_call(line: str, tools: Sequence[Tool], *, number: int = 0) -> ToolCall | None:
    """The call that a line makes; None when its first word is no tool's name, nor one that was meant to be.

    Values are read as JSON where the tool wants something else than a text. Raises UsageError for arguments that
    cannot be read, for those that the tool has not, and for a name with `__` that no tool has.
    """
    known = {tool.name: tool for tool in tools}
    name, _, rest = line.strip().partition(" ")
    if name not in known:
        if "__" in name and known:
            near = get_close_matches(name, known, n=3, cutoff=0.4)
            raise UsageError(f"there is no tool {name!r}" + (f"; there is {', '.join(near)}" if near else ""))
        return None
    return ToolCall(id=f"typed-{number}", name=name, arguments=json.dumps(_arguments(rest, known[name])))


def _arguments(text: str, tool: Tool) -> dict[str, Any]:
    wanted: Mapping[str, Any] = tool.schema.get("properties", {})
    found: dict[str, Any] = {}
    rest = text.strip()
    while rest:
        named = _NAMED.match(rest)
        if named is None or named[1] not in wanted:
            raise UsageError(f"{tool.name} takes {_told(tool)}; what is {one_line(rest.split()[0], 40)!r}?")
        found[named[1]], rest = _value(rest[named.end() :], wanted[named[1]])
        rest = rest.strip()
    return found


def _value(text: str, schema: Mapping[str, Any]) -> tuple[Any, str]:
    """The value that a text begins with, and the rest of the text."""
    kinds = {schema.get("type"), *(one.get("type") for one in schema.get("anyOf", ()))} - {None}
    if text[:1] in ("'", '"'):
        return _quoted(text)
    if text[:1] in ("[", "{") and kinds & {"array", "object"}:
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{one_line(text, 40)!r} cannot be read as JSON: {one_line(str(error), 60)}") from error
        return value, text[end:]
    word, _, rest = text.partition(" ")
    if kinds <= {"string"} or (kinds <= {"string", "null"} and word != "null"):
        return word, rest
    try:
        return json.loads(word), rest
    except ValueError:
        return ([word] if "array" in kinds else word), rest


def _quoted(text: str) -> tuple[str, str]:
    end = text.find(text[0], 1)
    if end < 0:
        raise UsageError(f"the arguments cannot be read: no closing {text[0]} in {one_line(text, 40)}")
    return text[1:end], text[end + 1 :]


def _told(tool: Tool) -> str:
    required = set(tool.schema.get("required", ()))
    names = [name if name in required else f"[{name}]" for name in tool.schema.get("properties", {})]
    return ", ".join(names) or "nothing"


def explained(line: str, tools: Sequence[Tool]) -> Iterator[str]:
    """Lines that answer `?`, `? NAME` or `? WORD`."""
    sought = line.strip().lstrip("?").strip()
    exact = [tool for tool in tools if tool.name == sought]
    for tool in exact:
        yield f"{tool.name}: {tool.description}"
        for name, schema in tool.schema.get("properties", {}).items():
            kind = schema.get("type") or " or ".join(str(one.get("type")) for one in schema.get("anyOf", ()))
            need = "" if name in tool.schema.get("required", ()) else ", may be left out"
            yield f"  {name} ({kind}{need}): {schema.get('description', '')}"
    if not exact:
        found = [tool for tool in tools if sought.lower() in tool.name.lower()]
        yield from (f"{tool.name}  {_told(tool)}" for tool in found)
        if not found:
            yield f"there is no tool with {sought!r} in its name"
