"""Checks of a text without a model: the wordings that it must and must not contain.

Not covered: a text that passes can still be rude, odd or padded; only its length is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias

from wanderlust.worlds.engine.cow_dict import FrozenRecord

Wordings: TypeAlias = tuple[str, ...]
"""Ways of writing one thing; any of them is accepted."""
MAX_CHECKED_ANSWER_CHARS = 1_500
"""Characters of a text; a longer one fails, because listing everything is no answer."""


class AnswerFacts(FrozenRecord):
    """The facts that a text must state."""

    says: tuple[Wordings, ...] = ()
    """For each fact, its wordings: one of them must be in the text."""
    forbidden: Wordings = ()
    """Wordings that must not be in the text."""
    max_chars: int = MAX_CHECKED_ANSWER_CHARS

    def hold_for(self, answer: Any) -> bool:
        """Whether the answer states the facts. Anything but a text is read as JSON. An empty text fails."""
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)
        if not text.strip() or len(text) > self.max_chars:
            return False
        read = _plain(text)
        return all(any(_within(way, read) for way in ways) for ways in self.says) and not any(
            _within(way, read) for way in self.forbidden
        )


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[*_`]", "", text).replace("\u2019", "'").replace("\u202f", " ").casefold().split())


def _within(way: str, read: str) -> bool:
    return _wording_pattern(way).search(read) is not None


@lru_cache(maxsize=4_096)
def _wording_pattern(way: str) -> re.Pattern[str]:
    """The words as whole words; a number not as a part of a longer one."""
    plain = _plain(way)
    before = r"(?<!\w)(?<!\d[.,])" if plain[:1].isalnum() else ""
    after = r"(?!\w)(?![.,]\d)" if plain[-1:].isalnum() else ""
    return re.compile(before + re.escape(plain) + after)


def amount_wordings(value: float) -> Wordings:
    """Ways of writing a price."""
    exact = f"{value:.2f}"
    ways = [exact, f"{value:,.2f}", exact.replace(".", ",")]
    if exact.endswith("0"):
        ways.append(exact[:-1])
    if exact.endswith(".00"):
        ways += [exact[:-3], f"{value:,.0f}"]
    return tuple(dict.fromkeys(ways))


def day_wordings(seconds: float) -> Wordings:
    """Ways of writing a day; its weekday is one of them, so use it where no other day with that name is near."""
    at = datetime.fromtimestamp(seconds, tz=UTC)
    month = f"{at:%B}"
    short = [f"{at.day} {month}", f"{month} {at.day}", f"{at.day} {month[:3]}", f"{month[:3]} {at.day}"]
    ordinal = [f"{at.day}{_suffix(at.day)} {month}", f"{at.day}{_suffix(at.day)} of {month}"]
    ordinal.append(f"{month} {at.day}{_suffix(at.day)}")
    return (f"{at:%A}", f"{at:%Y-%m-%d}", f"{at.day:02d}.{at.month:02d}", *short, *ordinal)


def _suffix(number: int) -> str:
    return "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def clock_wordings(seconds: float) -> Wordings:
    """Ways of writing a time of the day."""
    at = datetime.fromtimestamp(seconds, tz=UTC)
    hour, half = at.hour % 12 or 12, "am" if at.hour < 12 else "pm"
    dotted = f"{half[0]}.m."
    ways = [f"{at:%H:%M}", f"{at.hour}:{at.minute:02d}", f"{at:%H:%M:%S}", f"{at:%H.%M}"]
    ways += [f"{hour}:{at.minute:02d} {half}", f"{hour}:{at.minute:02d}{half}", f"{hour}:{at.minute:02d} {dotted}"]
    if not at.minute:
        ways += [f"{hour} {half}", f"{hour}{half}", f"{hour} {dotted}", f"{hour} o'clock"]
    return tuple(dict.fromkeys(ways))


def wordings(*ways: str) -> Wordings:
    """Ways of writing something, as they are."""
    return ways


def describe_facts(facts: AnswerFacts) -> Iterable[str]:
    """Yield the facts in readable form."""
    yield from (" or ".join(map(repr, ways[:2])) + (" or ..." if len(ways) > 2 else "") for ways in facts.says)
    if facts.forbidden:
        yield "never " + ", ".join(map(repr, facts.forbidden))
