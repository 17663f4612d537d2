r"""Reading the answer out of what a model wrote. Every reader is total: text in, text or None out, in linear time."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import TypeAlias

Reader: TypeAlias = Callable[[str], str | None]
"""The answer in a completion; None when there is none."""

LONGEST = 200_000
"""Characters of a completion that are read, from its end: an answer stands there."""
LONGEST_NUMBER = 400
"""Characters and decimal places of a number; more is no answer but an attempt."""

_BRACES = re.compile(r"\\(?:boxed|fbox)[ \t]*\{|\\.|[{}]", re.DOTALL)
_FENCE = re.compile(r"^[ \t]*```[^\n`]*$", re.MULTILINE)
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
_NUMBER = re.compile(rf"([+-]?)({_DIGITS}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]{{1,4}}))?(?:\s?/\s?({_DIGITS}))?")
_SOMEWHERE = re.compile(r"(?<![\w.,])[+-]?(?:[0-9](?:[0-9,]*[0-9])?(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?!\w)")


def whole(text: str) -> str | None:
    """All of it, without the space around it."""
    return text[-LONGEST:].strip()


def last_boxed(text: str) -> str | None:
    r"""What stands in the last `\boxed{...}` that is closed; of nested ones, the outermost."""
    text = text[-LONGEST:]
    opened: list[int | None] = []
    found = None
    for token in _BRACES.finditer(text):
        if token[0] == "{":
            opened.append(None)
        elif token[0] == "}":
            start = opened.pop() if opened else None
            if start is not None:
                found = text[start : token.start()]
        elif token[0].endswith("{") and len(token[0]) > 2:
            opened.append(token.end())
    return None if found is None else found.strip()


def last_number(text: str) -> str | None:
    """The last number in the text, as it is written there."""
    found = None
    for token in _SOMEWHERE.finditer(text[-LONGEST:]):
        found = token
    return found[0] if found else None


def last_code(text: str) -> str | None:
    """What stands in the last closed ``` fence."""
    text = text[-LONGEST:]
    opened, found = None, None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence.end() + 1
        else:
            found, opened = text[opened : fence.start()], None
    return found


def number(text: str) -> Fraction | None:
    """The number that the text is, exactly; None when it is anything else.

    Signs, decimals, exponents, well-formed thousands (`1,234`) and simple fractions (`3/4`) are understood.
    """
    text = text.strip()
    if len(text) > LONGEST_NUMBER:
        return None
    found = _NUMBER.fullmatch(text.replace("\u2212", "-"))
    if found is None:
        return None
    sign, digits, exponent, below = found.groups()
    if abs(int(exponent or 0)) > LONGEST_NUMBER:
        return None
    try:
        value = Fraction(Decimal(f"{sign}{digits}e{exponent or 0}".replace(",", "")))
    except InvalidOperation:
        return None
    divisor = int(below.replace(",", "")) if below else 1
    return value / divisor if divisor else None
