"""Requests in parts: clauses with their conditions and verbs, names, quotes, days, times and filters."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from wanderlust_worlds.verification.reading import MONTHS, SMALL_NUMBERS, WEEKDAYS, fits_day, read_text

VERBS = (
    "add", "answer", "ask", "book", "cancel", "delete", "drop", "find", "forward", "get", "keep", "mail", "message",
    "move", "need", "order", "put", "remove", "reply", "report", "save", "send", "take", "tell", "thank", "wait",
    "watch", "write",
)  # fmt: skip
POLITE = re.compile(r"^(?:please|then|and|can you|could you|would you|i|also|now|go on and|do so)\s+", re.IGNORECASE)
CONDITION = re.compile(r"^(?:and )?(?P<when>(?:if|should|as soon as|when|once)\b.+?), (?P<then>.+)$", re.IGNORECASE)
VERB = re.compile(rf"^(?P<verb>{'|'.join(VERBS)})\b\s*(?P<rest>.*)$", re.IGNORECASE | re.DOTALL)
NEXT_CLAUSE = re.compile(
    r"(?:: (?=if |should )|,? (?:and|then) (?!ask (?:whether|for)\b|need not\b)"
    rf"(?=(?:please |then )?(?:{'|'.join(VERBS)})\b))"
)
QUOTE = re.compile(r"(?<!\w)'(.+?)'(?!\w)")
HIDDEN = re.compile(r"\x00(\d+)\x00")
PLACE = re.compile(r"\bThe (?:[A-Z][\w']+ ?){1,3}\b")
NAME = re.compile(r"\b[A-Z][\w'-]+(?: (?:van|von|de|der|den|da|di|la))* [A-Z][\w'-]+\b")
NO_NAMES = {*(one.capitalize() for one in (*MONTHS, *WEEKDAYS)), "The", "In", "On", "If", "Is", "It"}
CLOCK = re.compile(r"\b(\d\d):(\d\d)\b")
DURATION = re.compile(rf"\b(\d+|{'|'.join(SMALL_NUMBERS)}) (minute|hour)s?\b")
QUESTION = re.compile(r"^(?:who|whom|whose|which|what|when|where|why|how|did|is|in which)\b", re.IGNORECASE)
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing that is asked for. `verb` is empty for a statement, and `question` for a question."""

    verb: str
    rest: str
    """All after the verb."""
    condition: str = ""
    """In small letters; empty where it is to be done anyway."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a user wrote, in clauses."""

    text: str
    clauses: tuple[Clause, ...]


def read_request(text: str) -> Request:
    """The clauses of a text; what stands in quotes is never cut."""
    quotes: list[str] = []

    def hide(match: re.Match[str]) -> str:
        quotes.append(match[0])
        return f"\x00{len(quotes) - 1}\x00"

    def shown(part: str) -> str:
        return HIDDEN.sub(lambda match: quotes[int(match[1])], part)

    hidden = QUOTE.sub(hide, text)
    clauses: list[Clause] = []
    for sentence in re.split(r"(?<=[.?!])\s+(?=[A-Z])", hidden):
        condition = ""
        for part in NEXT_CLAUSE.split(sentence):
            clause = _clause(shown(part.strip()), condition)
            condition = clause.condition
            clauses.append(clause)
    return Request(text, tuple(clauses))


def _clause(part: str, condition: str) -> Clause:
    """A clause, under the condition of the clause before it in the same sentence unless it has its own."""
    match = CONDITION.match(part)
    if match is not None:
        condition, part = match["when"].lower(), match["then"]
    while (shorter := POLITE.sub("", part, count=1)) != part:
        part = shorter
    if QUESTION.match(part):
        return Clause("question", part, condition)
    found = VERB.match(part)
    return Clause("", part, condition) if found is None else Clause(found["verb"].lower(), found["rest"], condition)


def quotes_in(text: str) -> list[str]:
    """What stands in quotes."""
    return QUOTE.findall(text)


def places_in(text: str) -> list[str]:
    """Names that begin with The."""
    return [match[0].strip() for match in PLACE.finditer(QUOTE.sub("", text))]


def names_in(text: str) -> list[str]:
    """Names of two words, of people or firms, in their order."""
    bare = PLACE.sub("", QUOTE.sub("", text))
    return [match[0] for match in NAME.finditer(bare) if not NO_NAMES & {*match[0].split()}]


def day_in(text: str, now: float, *, past: bool = False) -> float | None:
    """The beginning of the first day that a text names: the next one that fits, or the last one."""
    days = next((one.days for one in read_text(text).mentions if one.kind == "day"), None)
    today = now - now % DAY_SECONDS
    for n in range(370) if days else ():
        at = today + (-n if past else n) * DAY_SECONDS
        if fits_day(days or (), at):
            return at
    return None


def moment_in(text: str, now: float) -> float | None:
    """The day and the time that a text names, the same day where it names the time alone; None without a time."""
    minutes = next((one.minutes for one in read_text(text).mentions if one.kind == "time"), None)
    if not minutes:
        return None
    day = day_in(text, now)
    return (now - now % DAY_SECONDS if day is None else day) + 60.0 * min(minutes)


def seconds_in(text: str) -> float | None:
    """The first duration in minutes or hours, in seconds."""
    match = DURATION.search(text.lower())
    if match is None:
        return None
    number = int(match[1]) if match[1].isdecimal() else SMALL_NUMBERS[match[1]]
    return float(number * (60 if match[2] == "minute" else 3600))


def amounts_in(text: str) -> list[float]:
    """Amounts of money in a text."""
    found = [one.numbers for one in read_text(text).mentions if one.kind == "number" and one.is_money]
    return [max(numbers) for numbers in found]


def date_and_time(at: float) -> str:
    """As tools take moments."""
    return f"{datetime.fromtimestamp(at, tz=UTC):%Y-%m-%d %H:%M:%S}"


def seconds_of(moment: str | float) -> float:
    """A moment as tools give it, in seconds since 1970."""
    if isinstance(moment, int | float):
        return float(moment)
    read = datetime.fromisoformat(moment)
    return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()
