"""Words and sentences of generated mails and questions: `words.txt`, `topics.txt`, `phrases.txt` and drawn values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import product
from random import Random
from typing import Literal, TypeAlias, TypeVar

T = TypeVar("T")
Part: TypeAlias = Literal["train", "held"]
"""Names, or sentences, of training and of evaluation: they have nothing in common."""
Attribute: TypeAlias = Literal["time", "place", "amount", "who"]
ATTRIBUTES: tuple[Attribute, ...] = ("time", "place", "amount", "who")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WORD_ODDS = (0.5, 0.8, 1.0)
"""Cumulative odds of a topic's words in mails, the usual one first."""
SLOT = re.compile(r"\{(\w+)\}")


def _lines(name: str) -> list[str]:
    text = (files(__package__ or "") / name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@cache
def _word_lists() -> Mapping[str, tuple[str, ...]]:
    rows = (line.split(": ", 1) for line in _lines("words.txt"))
    return {key: tuple(word.replace("+", " ") for word in words.split()) for key, words in rows}


def word_list(key: str) -> tuple[str, ...]:
    """The words of a list of `words.txt`. Raises KeyError when there is no such list."""
    return _word_lists()[key]


@cache
def word_pairs(first: str, second: str, between: str = " ") -> tuple[str, ...]:
    """Every word of one list with every word of another."""
    return tuple(between.join(pair) for pair in product(word_list(first), word_list(second)))


@cache
def topics() -> tuple[tuple[str, ...], ...]:
    """The words of every topic."""
    return tuple(tuple(line.split()) for line in _lines("topics.txt") if not line.startswith("["))


@cache
def circles() -> Mapping[str, tuple[int, ...]]:
    """Numbers of the topics of each circle of people."""
    found: dict[str, list[int]] = {}
    number = 0
    for line in _lines("topics.txt"):
        if line.startswith("["):
            numbers = found.setdefault(line[1:-1], [])
        else:
            numbers.append(number)
            number += 1
    return {name: tuple(numbers) for name, numbers in found.items()}


@cache
def topic_of_word() -> Mapping[str, int]:
    """The number of a word's topic."""
    return {word: number for number, words in enumerate(topics()) for word in words}


@cache
def phrases(key: str) -> tuple[str, ...]:
    """The sentences of a section of `phrases.txt`; none where there is no such section."""
    return _sections().get(key, ())


@cache
def _sections() -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for line in _lines("phrases.txt"):
        if re.fullmatch(r"\[[\w.]+\]", line):
            lines = found.setdefault(line[1:-1], [])
        else:
            lines.append(line)
    return {key: tuple(lines) for key, lines in found.items()}


def wording(key: str, part: Part) -> tuple[str, ...]:
    """Sentences of a kind: those held out where `part` is `held` and there are some, else those of training."""
    return (phrases(f"held.{key}") if part == "held" else ()) or phrases(f"train.{key}")


class Draws:
    """Draws from one generator: words, values and sentences with their slots filled."""

    def __init__(self, rng: Random, people: Part):
        self.random = rng.random
        self.firsts = (*word_list(f"{people}.women"), *word_list(f"{people}.men"))
        self.places = word_pairs(f"{people}.places", "place_endings")
        self.towns = word_pairs(f"{people}.towns", "town_endings", "")
        self.things, self.foods = word_list("products"), word_list("foods")
        self.words = tuple(word for words in topics() for word in words)
        self._slots: Mapping[str, Callable[[], str]] = {
            "clock": self.clock,
            "day": lambda: self.one(DAYS),
            "first": lambda: self.one(self.firsts),
            "food": lambda: self.one(self.foods),
            "n": self.number,
            "place": lambda: f"the {self.one(self.places)}",
            "thing": lambda: self.one(self.things),
            "town": lambda: self.one(self.towns),
            "x": lambda: self.one(self.words),
        }

    def one(self, choices: Sequence[T]) -> T:
        """One of the choices."""
        return choices[int(self.random() * len(choices))]

    def other(self, choices: Sequence[T], left_out: T) -> T:
        """One of the choices, but for one."""
        while (drawn := self.one(choices)) is left_out:
            pass
        return drawn

    def below(self, count: int) -> int:
        """A number from 0 to below `count`."""
        return int(self.random() * count)

    def clock(self) -> str:
        """A time of the day, at the hour or half past."""
        return f"{8 + self.below(12):02}:{self.one(('00', '30'))}"

    def number(self) -> str:
        """An amount."""
        return str(20 + self.below(480))

    def word(self, topic: int) -> str:
        """A word for a topic, the usual one more often."""
        drawn = self.random()
        return next(word for word, odds in zip(topics()[topic], WORD_ODDS, strict=True) if drawn < odds)

    def value(self, attribute: Attribute) -> str:
        """A value as a mail writes it; of `who`, the caller draws a person."""
        if attribute == "time":
            return f"{self.one(DAYS)} at {self.clock()}"
        if attribute == "place":
            return f"the {self.one(self.places)}"
        return f"{self.number()} EUR"

    def filler(self, key: str = "filler", **slots: str) -> str:
        """A sentence of a section, its slots filled by what is given or drawn."""
        return self.fill(self.one(phrases(key)), **slots)

    def fill(self, sentence: str, **slots: str) -> str:
        """The sentence with its slots filled; begins with a capital letter."""
        names = _slots_of(sentence)
        if names:
            sentence = sentence.format_map({name: slots.get(name) or self._slots[name]() for name in names})
        return sentence if sentence[:1].isupper() else sentence[:1].upper() + sentence[1:]


@cache
def _slots_of(sentence: str) -> tuple[str, ...]:
    return tuple(SLOT.findall(sentence))


def bare_answer(text: str) -> str:
    """The words and numbers of an answer in lower case, without articles, prepositions and the currency.

    A sign, a percent sign and another currency's sign belong to their number. A text that is too long is no answer, and
    equal to none: what stands behind padding is not overlooked.
    """
    answer = text.strip()
    if len(answer) > MAX_ANSWER_CHARS:
        return f"({len(answer)} characters)"
    words = ANSWER_WORD.findall(answer.lower().replace("\u2212", "-"))
    return " ".join(word for word in words if word not in IGNORED_WORDS)


MAX_ANSWER_CHARS = 200
ANSWER_WORD = re.compile(r"(?:(?<!\w)[-<>≤≥≠~≈±$£¥])?\d+(?:[:.]\d+)*%?|\w+")
IGNORED_WORDS = frozenset({"at", "on", "the", "eur", "euro", "euros", "in", "it", "is", "a", "an", "of"})
