"""Calls written as Python: `[search(query="a b", limit=3), clock()]`. Parsed, never run; every step is bounded."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from wanderlust.types import decode_arguments

MAX_NESTING = 64
"""Depth of lists and dicts inside of each other."""

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[^\W\d]\w*(?:[.-]\w+)*")
_STRING = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}


class LiteralParseError(ValueError):
    """The text is no list of calls with literal arguments."""


def parse_python_calls(text: str) -> list[tuple[str, str]]:
    """Parse names and arguments (JSON objects) of the calls that a text consists of, in brackets or bare.

    Arguments are named; strings, numbers, booleans, None, lists, tuples and dicts are understood, in Python's spelling
    or in JSON's. Raises LiteralParseError for everything else, above all for code.
    """
    reader = _Reader(text)
    reader.skip()
    bracketed = reader.take("[")
    calls = [] if bracketed and reader.take("]") else reader.items(reader.call, "]" if bracketed else "")
    reader.skip()
    if reader.at < len(text):
        raise reader.wrong("the end")
    return calls


def render_python_call(name: str, arguments: str) -> str:
    """Render a call as Python; arguments that are no JSON object are written unchanged."""
    values = decode_arguments(arguments or "{}")
    if not isinstance(values, dict):
        return f"{name}({arguments})"
    written = (
        f"{key}={json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else repr(value)}"
        for key, value in values.items()
    )
    return f"{name}({', '.join(written)})"


class _Reader:
    """Recursive descent through the text; each method parses one element and leaves `at` behind it."""

    def __init__(self, text: str):
        self.text, self.at, self.depth = text, 0, 0

    def wrong(self, wanted: str) -> LiteralParseError:
        return LiteralParseError(f"at character {self.at}: {wanted} was expected")

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def take(self, mark: str) -> bool:
        self.skip()
        if not mark or not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        return True

    def need(self, mark: str) -> None:
        if not self.take(mark):
            raise self.wrong(repr(mark))

    def name(self) -> str:
        self.skip()
        match = _NAME.match(self.text, self.at)
        if match is None:
            raise self.wrong("a name")
        self.at = match.end()
        return match[0]

    def items(self, one: Callable[[], Any], end: str) -> list[Any]:
        """Parse elements between commas up to `end`, which is taken; without one, up to the last element."""
        items = [one()]
        while self.take(","):
            if self.take(end):
                return items
            items.append(one())
        if end:
            self.need(end)
        return items

    def call(self) -> tuple[str, str]:
        name = self.name()
        self.need("(")
        arguments = {} if self.take(")") else dict(self.items(self.argument, ")"))
        try:
            return name, msgspec.json.encode(arguments).decode()
        except (msgspec.MsgspecError, UnicodeError, TypeError, OverflowError) as error:
            raise LiteralParseError(f"{name}: {error}") from error

    def argument(self) -> tuple[str, Any]:
        name = self.name()
        self.need("=")
        return name, self.value()

    def value(self) -> Any:
        self.skip()
        for read in (self.string, self.number, self.nested):
            before = self.at
            value = read()
            if self.at > before:
                return value
        name = self.name()
        if name not in _WORDS:
            raise self.wrong("a literal value")
        return _WORDS[name]

    def string(self) -> str | None:
        parts = []
        while (match := _STRING.match(self.text, self.at)) is not None:  # neighbours are one string
            parts.append(_ESCAPE.sub(_unescape, match[1] if match[1] is not None else match[2]))
            self.at = match.end()
            self.skip()
        return "".join(parts) if parts else None

    def number(self) -> int | float | None:
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            return None
        try:
            value = int(match[0])
        except ValueError:
            value = self.fraction(match[0])
        self.at = match.end()
        return value

    def fraction(self, text: str) -> Any:
        try:
            value = float(text)
        except ValueError:
            value = math.inf
        if not math.isfinite(value):
            raise self.wrong("a finite number")
        return value

    def nested(self) -> Any:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.wrong("something less deep")
        try:
            for start, end in ("[", "]"), ("(", ")"):
                if self.take(start):
                    return [] if self.take(end) else self.items(self.value, end)
            if self.take("{"):
                return {} if self.take("}") else dict(self.items(self.pair, "}"))
        finally:
            self.depth -= 1
        return None

    def pair(self) -> tuple[str, Any]:
        self.skip()
        key = self.string()
        if key is None:
            raise self.wrong("a string")
        self.need(":")
        return key, self.value()


def _unescape(match: re.Match[str]) -> str:
    what = match[1]
    if len(what) > 1:
        try:
            return chr(int(what[1:], 16))
        except (ValueError, OverflowError) as error:
            raise LiteralParseError(f"there is no character \\{what}") from error
    return _ESCAPES.get(what, what if what in "'\"\\/" else match[0])
