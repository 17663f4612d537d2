"""Tool calls as a person types them: `App__action name=value name="two words"`, and `?` to look up what there is."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from wanderlust.core.contracts import Tool
from wanderlust.core.errors import UsageError
from wanderlust.core.messages import ToolCall
from wanderlust.core.text import one_line

HINT = "Call a tool: NAME arg=value ..., or write a message. ? lists the tools, ? NAME explains one, ? WORD finds some."


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
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"the arguments cannot be read: {str(error).lower()}") from error
    wanted: Mapping[str, Any] = tool.schema.get("properties", {})
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in wanted:
            raise UsageError(f"{tool.name} takes {_told(tool)}; what is {one_line(word, 40)!r}?")
        found[name] = _value(value, wanted[name])
    return found


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    kinds = {schema.get("type"), *(one.get("type") for one in schema.get("anyOf", ()))} - {None}
    if kinds <= {"string"} or (kinds <= {"string", "null"} and text != "null"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return [text] if "array" in kinds else text


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
