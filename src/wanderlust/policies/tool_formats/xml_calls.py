"""Calls in tags, as Qwen 3.5 writes them: `<function=look><parameter=city>Oslo</parameter></function>`.

Strings stand there without quotes and everything else as JSON, so that only the tool's schema tells 5 from "5".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from wanderlust.policies.tool_formats.python_calls import LiteralParseError
from wanderlust.types import Tool

_FUNCTION = re.compile(r"\s*<function=([^<>\n]+)>\s*")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]+)>\n?")
_END = re.compile(r"\s*(</function>)?\s*")
PARAMETER_END = "</parameter>"


def parse_tagged_call(text: str) -> tuple[str, str]:
    """Parse the name and the arguments, a JSON object of strings. Raises LiteralParseError for any other text."""
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
    try:
        values = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        return f"<function={name}>\n{arguments}\n</function>"
    parameters = ""
    for key, value in values.items():
        written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parameters += f"<parameter={key}>\n{written}\n</parameter>\n"
    return f"<function={name}>\n{parameters}</function>"


def convert_arguments(name: str, arguments: str, tools: Iterable[Tool]) -> str:
    """Parse as JSON the values of arguments that the tool's schema does not declare as strings."""
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
