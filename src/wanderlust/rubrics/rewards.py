"""Reward functions that compare the answer with the task's: as text, as a number, by a pattern."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from fractions import Fraction
from math import isfinite
from typing import Any

from wanderlust.errors import RubricFailure, UsageError, one_line
from wanderlust.rubrics.parsing import AnswerReader, parse_number, whole
from wanderlust.rubrics.rubric import RewardFunction

Tolerance = float | Fraction


def exact(*, read: AnswerReader = whole, ignore_case: bool = False) -> RewardFunction:
    """`exact`: 1 when the text is the task's answer, or one of its answers where there is a list of them.

    Space counts only as being there; Unicode is normalized (NFC).
    """

    def exact(completion: str, answer: Any) -> float:
        text = read(completion)
        return float(
            text is not None
            and _plain(text, ignore_case) in {_plain(a, ignore_case) for a in _accepted_answers(answer)}
        )

    return exact


def numeric(
    *, read: AnswerReader = whole, relative: Tolerance = 0, absolute: Tolerance = 0, units: Sequence[str] = ()
) -> RewardFunction:
    """`numeric`: 1 when the text is a number no further from the task's answer than the larger tolerance.

    `relative` is a share of the task's answer. Compared exactly, as fractions: 0.1 is a tenth, and no digit of a
    large number is lost. One of the `units` may stand before or after the number, and then says nothing: `km`,
    `$`, `%`. Numbers are read by `model_input.number`.
    """
    near, far = _tolerance(relative), _tolerance(absolute)
    ignored = sorted(units, key=len, reverse=True)

    def numeric(completion: str, answer: Any) -> float:
        text = read(completion)
        value = None if text is None else parse_number(_bare(text, ignored))
        return float(
            value is not None
            and any(
                (abs(value - true) <= max(near * abs(true), far))
                for true in [_number(one, ignored) for one in _accepted_answers(answer)]
            )
        )

    return numeric


def matches(
    pattern: str, *, read: AnswerReader = whole, anywhere: bool = False, name: str = "matches"
) -> RewardFunction:
    """`matches`: 1 when the pattern fits all of the text, or with `anywhere` some of it.

    The pattern is the caller's: one that backtracks without end does so here too.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{pattern!r} is no regular expression: {error}") from error
    fits = compiled.search if anywhere else compiled.fullmatch

    def matches(completion: str) -> float:
        text = read(completion)
        return float(text is not None and fits(text) is not None)

    matches.__name__ = name
    return matches


def _accepted_answers(answer: Any) -> Collection[Any]:
    if answer is None:
        raise RubricFailure("the task has no answer to compare with")
    return answer if isinstance(answer, list | tuple | set | frozenset) else (answer,)


def _plain(text: Any, ignore_case: bool) -> str:
    plain = " ".join(unicodedata.normalize("NFC", str(text)).split())
    return plain.casefold() if ignore_case else plain


def _number(answer: Any, units: Sequence[str]) -> Fraction:
    if isinstance(answer, int | Fraction):
        return Fraction(answer)
    # As it is written: the float 0.1 stands for a tenth, not for the binary number that is nearest to it.
    value = parse_number(_bare(str(answer), units))
    if value is None:
        raise RubricFailure(f"the task's answer {one_line(repr(answer), 60)} is no number")
    return value


def _bare(text: str, units: Sequence[str]) -> str:
    text = text.strip()
    for unit in units:
        if text.startswith(unit):
            return text[len(unit) :].strip()
        if text.endswith(unit):
            return text[: -len(unit)].strip()
        if text.startswith(("-" + unit, "+" + unit)):
            return text[0] + text[1 + len(unit) :].strip()
    return text


def _tolerance(value: Tolerance) -> Fraction:
    if not isfinite(value) or value < 0:
        raise UsageError(f"a tolerance is a number from 0 on, not {value!r}")
    return Fraction(value) if isinstance(value, Fraction) else Fraction(repr(value))
