"""A pupil who works sums of two numbers out in columns and often forgets what is carried: a teacher to be outgrown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from random import Random

from wanderlust.types import Message

FORGET_PROBABILITY = 0.5
"""Probability that a carry is forgotten."""
SUM_PATTERN = re.compile(r"(\d+) ([+-]) (\d+)\D*$")


def pupil(messages: Sequence[Message], rng: Random) -> str:
    """`<think>7+5=12 3+2+1=6</think> <answer>62</answer>`; empty where there is no sum of two numbers at the end."""
    match = SUM_PATTERN.search(messages[-1].content)
    if match is None:
        return ""
    a, b, minus = int(match[1]), int(match[3]), match[2] == "-"
    columns, digits = work_columns(max(a, b), min(a, b), minus=minus, rng=rng)
    value = int(digits) * (-1 if minus and a < b else 1)
    return f"<think>{' '.join(columns)}</think> <answer>{value}</answer>"


def work_columns(a: int, b: int, *, minus: bool, rng: Random) -> tuple[list[str], str]:
    """The columns from the last one on, and the digits of what they give; `a` is at least `b`."""
    columns, digits, carried = list[str](), "", False
    pairs = list(zip_longest(str(a)[::-1], str(b)[::-1], fillvalue="0"))
    for place, (x, y) in enumerate(pairs):
        sign = "-" if minus else "+"
        carry = f"{sign}1" if carried else ""
        value = int(x) - int(y) - carried if minus else int(x) + int(y) + carried
        over = value < 0 if minus else value > 9
        borrowed = "1" if minus and over else ""
        value = value + 10 if borrowed else value
        columns.append(f"{borrowed}{x}{sign}{y}{carry}={value}")
        last = place == len(pairs) - 1
        digits = (str(value) if last else str(value % 10)) + digits
        carried = over and rng.random() >= FORGET_PROBABILITY
    return columns, digits
