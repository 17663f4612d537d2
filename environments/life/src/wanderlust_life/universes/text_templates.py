"""Words (`words.txt`) and sentences (`phrases.txt`) of our own, put together by seeded draws.

`lived_words.txt` and `lived_phrases.txt` hold those that only lives with `universe=lived` have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from itertools import product
from random import Random
from typing import Literal, TypeAlias

Split: TypeAlias = Literal["train", "held"]
"""Names for training and for evaluation have nothing in common."""
_PART = re.compile(r"\{(\w+)\}|<([\w.]+)>|\[([^\[\]]*)\]")
_TWICE = re.compile(r"([.?!])\.")
_AN = re.compile(r"\b([Aa]) (?=[aeio]|umbrella)")
_DEEPEST = 6


def _read(name: str) -> str:
    return (files(__package__ or "") / name).read_text("utf-8")


@cache
def word_list(key: str) -> tuple[str, ...]:
    """The words of a list. Raises KeyError when there is no such list."""
    return _lists()[key]


@cache
def _lists() -> dict[str, tuple[str, ...]]:
    text = _read("words.txt") + _read("lived_words.txt")
    rows = (line.split(": ", 1) for line in text.splitlines() if line and not line.startswith("#"))
    lists = {key: text.split("|") if "|" in text else text.split() for key, text in rows}
    return {key: tuple(word.replace("+", " ") for word in words) for key, words in lists.items()}


@cache
def word_pairs(first: str, second: str, between: str = " ") -> tuple[str, ...]:
    """Every word of one list with every word of another."""
    return tuple(between.join(pair) for pair in product(word_list(first), word_list(second)))


@cache
def _rules() -> dict[str, tuple[str, ...]]:
    rules: dict[str, list[str]] = {}
    for line in (_read("phrases.txt") + _read("lived_phrases.txt")).splitlines():
        if line.startswith("[") and line.endswith("]") and re.fullmatch(r"\[[\w.]+\]", line):
            lines = rules.setdefault(line[1:-1], [])
        elif line and not line.startswith("%"):
            lines.append(line)
    return {key: tuple(sentences) for key, sentences in rules.items()}


def expand_rule(rng: Random, rule: str, facts: Mapping[str, str]) -> str:
    """A sentence of a rule, with the facts in it; what no fact is known for is one of the words of that kind.

    Raises KeyError when there is no such rule, or no word for a slot.
    """
    return expand_pattern(rng, f"<{rule}>", facts)


def expand_pattern(rng: Random, pattern: str, facts: Mapping[str, str]) -> str:
    """Like `expand_rule`, with a pattern instead of a rule's name."""
    text = _expand(rng, pattern, facts, used=set()).replace("~", "\n")
    return _AN.sub(r"\1n ", _TWICE.sub(r"\1", text))


def _expand(rng: Random, pattern: str, facts: Mapping[str, str], *, used: set[str], depth: int = 0) -> str:
    if depth > _DEEPEST:
        raise RecursionError(f"the rule leads back to itself: {pattern[:60]}")

    def other(choices: Sequence[str]) -> str:
        """Draw a choice; a few tries avoid those that are in use already."""
        drawn = rng.choice(choices)
        for _ in range(4):
            if drawn not in used:
                break
            drawn = rng.choice(choices)
        used.add(drawn)
        return drawn

    def part(match: re.Match[str]) -> str:
        slot, rule, choice = match.groups()
        if slot in facts:
            return facts[slot]
        if slot:
            return rng.choice(book_titles() if slot == "work" else word_list(WORD_LIST_OF_SLOT[slot]))
        if rule:
            return _expand(rng, other(_rules()[rule]), facts, used=used, depth=depth + 1)
        return _expand(rng, other(choice.split("|")), facts, used=used, depth=depth + 1)

    return _PART.sub(part, pattern)


def book_titles() -> tuple[str, ...]:
    """Books that do not exist."""
    return word_pairs("works.first", "works.second")


WORD_LIST_OF_SLOT: Mapping[str, str] = {
    "topic": "topics",
    "food": "foods",
    "thing": "things",
    "hobby": "hobbies",
    "what": "products",
    "colour": "colours",
}
"""The word list for a slot that has no fact."""


def shuffled(rng: Random, cards: Sequence[str]) -> list[str]:
    """The cards in a random order, to be dealt without repetition."""
    return rng.sample(cards, len(cards))


def format_day(seconds: float) -> str:
    """A day as people write it."""
    at = datetime.fromtimestamp(seconds, tz=UTC)
    return f"{at:%A}, {at.day} {at:%B}"


def format_time_of_day(seconds: float) -> str:
    """A time of the day."""
    return f"{datetime.fromtimestamp(seconds, tz=UTC):%H:%M}"


def format_price(amount: float) -> str:
    """A price."""
    return f"{amount:,.2f} EUR"


def join_names(names: Iterable[str]) -> str:
    """Names as an English list."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
