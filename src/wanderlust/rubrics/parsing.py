"""Find the answer in a model's text: boxed, a number, code, fields between XML tags or in a JSON object.

Every reader is total, text in, text or None out, and takes linear time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import pairwise
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from wanderlust.errors import UsageError

AnswerReader: TypeAlias = Callable[[str], str | None]
"""The answer in a completion; None when there is none."""

MAX_ANSWER_CHARS = 200_000
"""Last characters of a completion that are searched for the answer."""
MAX_NUMBER_CHARS = 400
"""Most characters, and most decimal places, of a number; a longer one is no answer."""

_BRACES = re.compile(r"\\(?:boxed|fbox)[ \t]*\{|\\.|[{}]", re.DOTALL)
_FENCE = re.compile(r"^[ \t]*```[^\n`]*$", re.MULTILINE)
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
_NUMBER = re.compile(rf"([+-]?)({_DIGITS}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]{{1,4}}))?(?:\s?/\s?({_DIGITS}))?")
_SOMEWHERE = re.compile(r"(?<![\w.,])[+-]?(?:[0-9](?:[0-9,]*[0-9])?(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?!\w)")


def whole(text: str) -> str | None:
    """All of it, without the space around it."""
    return text[-MAX_ANSWER_CHARS:].strip()


def after_reasoning(text: str) -> str:
    """The text behind the last `</think>`; all of it where there is none."""
    return text.rpartition("</think>")[2]


def last_boxed(text: str) -> str | None:
    r"""The text in the last `\boxed{...}` that is closed; of nested ones, the outermost. Reasoning is not searched."""
    text = after_reasoning(text[-MAX_ANSWER_CHARS:])
    opened: list[int | None] = []
    boxed = None
    for token in _BRACES.finditer(text):
        if token[0] == "{":
            opened.append(None)
        elif token[0] == "}":
            start = opened.pop() if opened else None
            if start is not None:
                boxed = text[start : token.start()]
        elif token[0].endswith("{") and len(token[0]) > 2:
            opened.append(token.end())
    return None if boxed is None else boxed.strip()


def last_number(text: str) -> str | None:
    """The last number in the text, as it is written there."""
    last = None
    for token in _SOMEWHERE.finditer(text[-MAX_ANSWER_CHARS:]):
        last = token
    return last[0] if last else None


def last_code(text: str) -> str | None:
    """The text in the last closed ``` fence."""
    text = text[-MAX_ANSWER_CHARS:]
    opened, code = None, None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence.end() + 1
        else:
            code, opened = text[opened : fence.start()], None
    return code


def parse_number(text: str) -> Fraction | None:
    """The number that the text is, exactly; None when it is anything else.

    Signs, decimals, exponents, well-formed thousands (`1,234`) and simple fractions (`3/4`) are understood.
    """
    text = text.strip()
    if len(text) > MAX_NUMBER_CHARS:
        return None
    match = _NUMBER.fullmatch(text.replace("\u2212", "-"))
    if match is None:
        return None
    sign, digits, exponent, below = match.groups()
    if abs(int(exponent or 0)) > MAX_NUMBER_CHARS:
        return None
    try:
        value = Fraction(Decimal(f"{sign}{digits}e{exponent or 0}".replace(",", "")))
    except InvalidOperation:
        return None
    divisor = int(below.replace(",", "")) if below else 1
    return value / divisor if divisor else None


T = TypeVar("T")
_PLAUSIBLE = re.compile(r'\{\s*["}]')
_PLAUSIBLE_VALUE = re.compile(r'\{\s*["}]|\[\s*\{')
"""Beginnings of an object, and of a list of objects."""
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)
MAX_SCAN_CHARS = 5 * MAX_ANSWER_CHARS
"""Characters that the search for JSON objects may read in all, wrong starts included."""


class XmlFields:
    """Text fields between tags: `XmlFields("think", "answer")`.

    The strict kind takes nothing but the fields, each once, in their order, with space around them. The forgiving
    kind takes what there is: of repeated fields the last one that is closed.
    """

    def __init__(self, *names: str, strict: bool = False):
        wrong = [name for name in names if not re.fullmatch(r"[A-Za-z_][\w.-]*", name)]
        if wrong or not names or len(set(names)) < len(names):
            raise UsageError(
                f"fields need different names that can be tags, not {', '.join(map(repr, names)) or 'none'}"
            )
        self.names, self.strict = names, strict
        self._tags = re.compile(f"<(/?)({'|'.join(map(re.escape, names))})>")

    def parse(self, text: str) -> dict[str, str] | None:
        """The fields by name; None when the strict kind finds anything wrong. The forgiving kind may find none."""
        scan = self._scan(text[-MAX_ANSWER_CHARS:])
        if self.strict:
            return dict(scan.fields) if len(text) <= MAX_ANSWER_CHARS and scan.score(self.names) == 1 else None
        return dict(scan.fields)

    def field(self, name: str) -> AnswerReader:
        """A reader of one field, for `exact(read=...)` and the like."""
        if name not in self.names:
            raise UsageError(f"there is no field {name!r}: one of {', '.join(self.names)}")

        def read(text: str) -> str | None:
            return (self.parse(text) or {}).get(name)

        return read

    def format(self, completion: str) -> float:
        """Score the format: 1 when all of it is kept; the forgiving kind gives parts of it their share.

        Shares are equal: each field there exactly once, all in order, nothing else around them.
        """
        if self.strict:
            return float(self.parse(completion) is not None)
        return self._scan(completion[-MAX_ANSWER_CHARS:]).score(self.names)

    def _scan(self, text: str) -> _FieldScan:
        scan, opened, end = _FieldScan(), dict[str, int](), 0
        for tag in self._tags.finditer(text):
            name = tag[2]
            if not opened:
                scan.stray |= bool(text[end : tag.start()].strip())
            if not tag[1]:
                scan.stray |= bool(opened)
                opened[name] = tag.end()
            elif name in opened:
                scan.fields.append((name, text[opened.pop(name) : tag.start()].strip()))
            else:
                scan.stray = True
            end = tag.end()
        scan.stray |= bool(opened or text[end:].strip())
        return scan


class _FieldScan:
    """The fields and faults that the scan for tags found."""

    def __init__(self) -> None:
        self.fields: list[tuple[str, str]] = []
        self.stray = False
        """Whether there is anything but one field after the other."""

    def score(self, names: tuple[str, ...]) -> float:
        """Share of the rules that are kept."""
        field_names = [name for name, _ in self.fields]
        places = [names.index(name) for name in field_names]
        once = sum(field_names.count(name) == 1 for name in names)
        ordered = once == len(names) and all(a < b for a, b in pairwise(places))
        alone = bool(field_names) and not self.stray
        return (once + ordered + alone) / (len(names) + 2)


class JsonFields(Generic[T]):
    """A JSON object of a type: a TypedDict, a dataclass, a msgspec Struct, or `dict`.

    The strict kind takes nothing but the object (a ``` fence may stand around it), every type as it is said. The
    forgiving kind takes the last object that fits, wherever it stands, and `"5"` for a number.
    """

    def __init__(self, kind: type[T], *, strict: bool = False):
        try:
            msgspec.json.Decoder(kind)
        except (TypeError, NameError) as error:
            raise UsageError(f"{kind!r} cannot be read from JSON: {error}") from error
        self.kind, self.strict = kind, strict

    def parse(self, text: str) -> T | None:
        """The object; None when there is none that fits."""
        if self._parse_whole(text) is not None or self.strict:
            return self._parse_whole(text)
        parsed = None
        for value, _, _ in scan_json(text[-MAX_ANSWER_CHARS:], _PLAUSIBLE):
            with suppress(msgspec.MsgspecError, RecursionError, OverflowError, UnicodeError):
                fits = msgspec.convert(value, self.kind, strict=False)
                parsed = parsed if fits is None else fits
        return parsed

    def field(self, name: str) -> AnswerReader:
        """A reader of one field, for `exact(read=...)` and the like; what is no string is read as JSON."""

        def read(text: str) -> str | None:
            parsed = self.parse(text)
            value = parsed.get(name) if isinstance(parsed, Mapping) else getattr(parsed, name, None)
            if value is None or isinstance(value, str):
                return value
            return json.dumps(msgspec.to_builtins(value, enc_hook=str), separators=(",", ":"), ensure_ascii=False)

        return read

    def format(self, completion: str) -> float:
        """1 when there is nothing but the object; the forgiving kind gives half for one among other text."""
        if self._parse_whole(completion) is not None:
            return 1.0
        return 0.0 if self.parse(completion) is None else 0.5

    def _parse_whole(self, text: str) -> T | None:
        if len(text) > MAX_ANSWER_CHARS:
            return None
        text = text.strip()
        fenced = _FENCED.fullmatch(text)
        try:
            return msgspec.json.decode(fenced[1] if fenced else text, type=self.kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return None


def scan_json(text: str, start_pattern: re.Pattern[str] = _PLAUSIBLE_VALUE) -> list[tuple[Any, int, int]]:
    """Find the outermost JSON values that begin as the pattern says: each with where it starts and ends.

    Reads at most MAX_SCAN_CHARS, wrong starts included.
    """
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    found, at, effort = [], 0, MAX_SCAN_CHARS
    wrong = 1 + len(text) // 200  # an error counts the lines before it
    while effort > 0 and (start := start_pattern.search(text, at)) is not None:
        try:
            value, at = decoder.raw_decode(text, start.start())
            found.append((value, start.start(), at))
        except json.JSONDecodeError as error:
            at = start.start() + 1
            effort -= error.pos - start.start() + wrong
        except (ValueError, RecursionError):  # NaN, a number of too many digits, nesting: where it was is not told
            at = start.start() + 1
            effort -= len(text) - start.start()
    return found


def refuse_constant(constant: str) -> Any:
    """For `json`'s `parse_constant`: raise ValueError for NaN and the infinities, which JSON has not."""
    raise ValueError(f"{constant} is no JSON")
