"""Tools of a household's assistant, requests for them, and the values in the requests.

Values, and whole tools, are held out: none of them occurs in training.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from random import Random
from typing import TypeAlias
from zlib import crc32

Value: TypeAlias = str | int | float | bool

HELD_OUT_MODULUS = 4
"""One of this many values is held out."""
CITIES = """Lisbon Oslo Nairobi Lima Prague Kyoto Dublin Cairo Toronto Seoul Athens Quito Vienna Hanoi Bogota Tunis
Riga Dakar Delhi Havana Berlin Madrid Accra Turin Geneva Osaka Porto Denver Boston Austin Leeds Malmo Basel Split
Cork Tampere Bergen Krakow Seville Lyon"""
FIRST_NAMES = """Anna Omar Lucy Pedro Mei Ravi Julia Tom Elena Kofi Sara Ivan Nora Diego Aisha Ben Carla Hugo Priya
Leo Maya Felix Zoe Amir Ruth Oscar Tara Noel Greta Sam Hannah Yusuf Clara Viktor Ingrid Paulo Bella Martin Dana
Colin"""
HOUSEHOLD_GOODS = """apples bread milk rice candles soap lemons pasta cheese onions batteries tea honey carrots
paper eggs beans butter flour salt pears nails glue socks towels mugs ginger basil olives yogurt"""
LANGUAGES = """French German Spanish Italian Polish Dutch Swedish Greek Turkish Hindi Korean Japanese Arabic Czech
Danish Finnish Hebrew Latin Welsh Thai"""
CURRENCIES = "USD EUR GBP JPY CHF SEK NOK DKK PLN CZK INR BRL MXN CAD AUD NZD KRW ZAR"
ROOMS = "kitchen bedroom hallway garage bathroom attic cellar office nursery studio lounge pantry porch library"
CHORES = "water clean check repair paint move wash order fetch sort pack return"
ADJECTIVES = "blue silent golden early broken distant little velvet winter hidden crystal paper"
NOUNS = "river garden mountain letter window summer shadow harbour forest lantern circle morning"
SUBJECTS = "budget travel project school rent holiday picnic concert garden insurance"
SUBJECT_EVENTS = "meeting plans review party report notes lunch questions"
HOSTS = "mail.com post.org home.net work.io"
ENDINGS = "txt pdf csv png doc"
SENTENCES = """good|morning good|night good|luck where|is|the|station how|much|is|this I|am|very|hungry see|you|tomorrow
thank|you|so|much we|need|more|time the|bus|is|late please|call|me|back I|love|this|place are|you|at|home
dinner|is|ready happy|birthday the|shop|is|closed have|a|nice|day I|lost|my|keys meet|me|outside it|is|cold|today
the|cat|is|asleep bring|an|umbrella"""
UNITS = "miles feet pounds ounces gallons inches yards meters liters grams"


def _one(words: str) -> Callable[[Random], Value]:
    listed = words.split()
    return lambda rng: rng.choice(listed)


def _joined(form: str, *words: str) -> Callable[[Random], Value]:
    listed = [one.split() for one in words]
    return lambda rng: form.format(*map(rng.choice, listed))


def _number(low: int, high: int) -> Callable[[Random], Value]:
    return lambda rng: rng.randint(low, high)


VALUE_DRAWERS: Mapping[str, Callable[[Random], Value]] = {
    "address": _joined("{}@{}", FIRST_NAMES.lower(), HOSTS),
    "amount": lambda rng: rng.randrange(105, 40_000, 25) / 100,
    "city": _one(CITIES),
    "clock": lambda rng: f"{rng.randrange(24):02}:{rng.randrange(0, 60, 5):02}",
    "currency": _one(CURRENCIES),
    "date": lambda rng: f"2027-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
    "deed": _joined("{} the {}", CHORES, f"{ROOMS} {HOUSEHOLD_GOODS}"),
    "few": _number(2, 24),
    "file": _joined("{}_{}.{}", ADJECTIVES, NOUNS, ENDINGS),
    "language": _one(LANGUAGES),
    "matter": _joined("{} {}", SUBJECTS, SUBJECT_EVENTS),
    "percent": _number(1, 100),
    "person": _one(FIRST_NAMES),
    "room": _one(ROOMS),
    "sentence": lambda rng: rng.choice(SENTENCES.split()).replace("|", " "),
    "switch": lambda rng: rng.random() < 0.5,
    "thing": _one(HOUSEHOLD_GOODS),
    "ticker": lambda rng: "".join(rng.choice("ABCDEFGHIKLMNOPRSTUVXZ") for _ in range(rng.choice((3, 4)))),
    "title": _joined("{} {}", ADJECTIVES.title(), NOUNS.title()),
    "unit": _one(UNITS),
    "whole": _number(2, 180),
}
"""The draw of a value, by its kind."""
JSON_TYPE_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def is_held_out_value(value: Value) -> bool:
    """Whether a value is for evaluation alone; truth values are for both."""
    return crc32(repr(value).encode()) % HELD_OUT_MODULUS == 0


def draw_value(kind: str, rng: Random, *, held_out: bool) -> Value:
    """A value of a kind that is, or is not, held out."""
    while True:
        value = VALUE_DRAWERS[kind](rng)
        if isinstance(value, bool) or is_held_out_value(value) is held_out:
            return value


def value_text(value: Value) -> str:
    """The value as people say it."""
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class ToolTemplate:
    """The names of a tool, its arguments, and requests for it."""

    names: str
    """The names that it may have, with spaces between them."""
    takes: str
    """`argument:kind` for each argument; an argument may have several names too, with a slash between them."""
    requests: tuple[str, ...]
    """The arguments stand in braces, by their first names."""

    @property
    def arguments(self) -> Mapping[str, tuple[tuple[str, ...], str]]:
        """Names and kind of each argument, by its first name."""
        pairs = re.findall(r"([\w/]+):(\w+)", self.takes)
        return {names.split("/")[0]: (tuple(names.split("/")), kind) for names, kind in pairs}


_TOOLS = json.loads((files(__package__ or "") / "tool_call_tools.json").read_text("utf-8"))
TRAIN_TOOLS, UNSEEN_TOOLS = (
    tuple(ToolTemplate(tool["names"], tool["takes"], tuple(tool["requests"])) for tool in _TOOLS[key])
    for key in ("train", "unseen")
)
"""Tools of training and of the evaluation in new values; tools of the evaluation in new tools."""
