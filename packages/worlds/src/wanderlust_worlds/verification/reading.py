"""Values in English texts: days, times of day, amounts and numbers in their usual notations, each with its place; and
the clauses in which they are stated, denied or left open.

Not covered: irony, spelling mistakes, values that only follow from other sentences.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Literal, TypeAlias

ValueKind: TypeAlias = Literal["day", "time", "number", "name"]
PartialDay: TypeAlias = tuple[int | None, int | None, int | None, int | None]
"""Year, month, day of the month and weekday (Monday is 0), as far as they are written."""
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_WEEKDAY = (
    r"(?P<weekday>mon(?:day)?|tue(?:s(?:day)?)?|wed(?:nesday)?|thu(?:rs(?:day)?)?|fri(?:day)?|sat(?:urday)?|"
    r"sun(?:day)?)"
)
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_SHORT = r"(?:(?<!uary)(?<!march)(?<!april)(?<!may)(?<!june)(?<!july)(?<!august)(?<!ember)(?<!tober)\.)?"
"""The point of a month's short form; behind a whole name it ends a sentence."""
_BEFORE_DAY = rf"(?:\b{_WEEKDAY}\.?,? (?:the )?)?"
_AFTER_DAY = r"(?:,? (?:of )?(?P<year>20\d\d)(?!\d))?"
DAY_PATTERNS = tuple(
    map(
        re.compile,
        (
            rf"{_BEFORE_DAY}(?<!\d)(?P<year>\d{{4}})-(?P<m>\d\d)-(?P<d>\d\d)(?!\d)",
            rf"{_BEFORE_DAY}(?<![\d/.])(?P<a>\d\d?)(?P<cut>[./])(?P<b>\d\d?)(?P=cut)(?P<year>\d{{4}}|\d\d)(?!\d)",
            rf"{_BEFORE_DAY}\b(?P<d>\d\d?)(?:st|nd|rd|th)?\.?(?: of)? {_MONTH}\b{_SHORT}{_AFTER_DAY}",
            rf"{_BEFORE_DAY}\b{_MONTH}\b{_SHORT} (?:the )?(?P<d>\d\d?)(?:st|nd|rd|th)?(?![\d:])(?! [ap]\.?m)"
            rf"{_AFTER_DAY}",
            rf"{_BEFORE_DAY}(?<=\bon )(?P<a>\d\d?)(?P<cut>[./])(?P<b>\d\d?)\b(?![./]?\d)",
            r"\bthe (?P<d>\d\d?)(?:st|nd|rd|th)\b",
            r"\b(?P<weekday>monday|tuesday|wednesday|thursday|friday|saturday|sunday)\b",
        ),
    )
)
_HALF = r"(?P<half>a\.?m\b\.?|p\.?m\b\.?)"
TIME_PATTERNS = tuple(
    map(
        re.compile,
        (
            rf"(?<![\d:.])(?P<h>\d\d?)[:.](?P<m>\d\d)(?::\d\d)? ?{_HALF}",
            r"(?<![\d:.])(?P<h>\d\d?)[:h](?P<m>\d\d)(?::\d\d)?(?!\d|:\d)",
            r"(?:(?<=\bat )|(?<=\bfrom ))(?P<h>\d\d?)\.(?P<m>\d\d)(?![\d.])(?! ?(?:€|eur))",
            rf"(?<![\d:.])(?P<h>\d\d?) ?{_HALF}",
            r"\b(?P<h>\d\d?|[a-z]+) o'?clock\b",
            r"\b(?P<word>noon|midday|midnight)\b",
        ),
    )
)
_UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SMALL_NUMBERS: Mapping[str, int] = {word: number for number, word in enumerate(_UNITS)} | {
    word: 20 + 10 * number for number, word in enumerate(_TENS)
}
_WORD = "(?:" + "|".join(sorted((*SMALL_NUMBERS, "hundred", "thousand"), key=len, reverse=True)) + ")"
_DIGITS = r"\d{1,3}(?:[.,' ]\d{3})+(?:[.,]\d{1,2})?|\d+(?:[.,]\d+)?"
_NUMBER = rf"(?:(?<![\w.,-])(?:{_DIGITS})(?![\d])|\b{_WORD}(?:(?:-| and | ){_WORD})*\b)"
_CURRENCY = r"(?:€|\beuros?\b|\beur\b)"
IDENTIFIER = re.compile(r"\b(?!eur\d)[a-z][a-z_]*-?\w*\d\w*|\+\d[\d ()/-]{6,}\d|\b\w+@\S+")
MONEY = re.compile(
    rf"(?P<whole>{_NUMBER}) ?(?:€|euros?|eur),? (?:and )?(?P<cents>\d\d?|{_WORD}(?:-{_WORD})?) ?(?:cents?|ct)\b"
)
NUMBER = re.compile(
    rf"(?P<before>(?:€|\beuros?\b|\beur\b) ?)?(?:(?P<number>{_NUMBER})|(?<=eur)(?P<glued>\d+(?:[.,]\d+)?))"
    rf"(?P<after> ?{_CURRENCY})?"
)
MASK = "\N{CURRENCY SIGN}"
"""Stands for each letter of a value once it is read, so that the points and commas in it end no clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A value as it stands in a text. `read_text("at 4 pm").mentions` has one, of kind `time`, `minutes` {960}."""

    kind: ValueKind
    start: int
    end: int
    days: tuple[PartialDay, ...] = ()
    """The days that it can mean: 03/06 is one of two."""
    minutes: frozenset[int] = frozenset()
    """Minutes after midnight."""
    numbers: frozenset[float] = frozenset()
    """The numbers that it can mean: 1.530 is one of two."""
    is_money: bool = False
    """Whether it is an amount: by a currency, by cents, or in a list with one."""
    has_currency: bool = False
    is_weak: bool = False
    """The word `one`, which is seldom meant as a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text that has been read."""

    plain: str
    """Without marks, in lower case."""
    masked: str
    """With `MASK` in the place of values."""
    mentions: tuple[Mention, ...]
    clauses: tuple[tuple[int, int], ...]
    sentences: tuple[tuple[int, int], ...]

    def clause(self, at: int) -> str:
        """The clause around a place, values masked."""
        return _around(self.masked, self.clauses, at)

    def sentence(self, at: int) -> str:
        """The sentence around a place, values masked."""
        return _around(self.masked, self.sentences, at)


def _around(text: str, spans: Sequence[tuple[int, int]], at: int) -> str:
    return next((text[start:end] for start, end in spans if start <= at < end), text)


_MARKS = str.maketrans({"\u2019": "'", "\u2018": "'", "\u2013": "-", "\u2014": "-", "\u202f": " ", "\u00a0": " "})


def plain_text(text: str) -> str:
    """The text in lower case, without emphasis, its spaces single and its lines kept."""
    folded = unicodedata.normalize("NFC", text).translate(_MARKS).casefold()
    folded = re.sub(r"(?<!\w)[*_`]+|[*_`]+(?!\w)|\*", "", folded)
    return "\n".join(" ".join(line.split()) for line in folded.splitlines()).strip()


_CLAUSE_ENDS = re.compile(
    r"[.;!?]+(?=[\s)\"']|$)|\n|,(?=\s)|:(?=\s)(?! ¤)|[()]| -+ |"
    r"(?<!anywhere )\bbut\b|\b(?:because|since|so|while|whereas|although|though|after|which|who)\b|"
    r"\bas (?=(?:it|they|he|she|your|that|order|the order)\b)|"
    r"\b(?:and|or) (?=(?:i|he|she|it|they|we|you|that|then|will|have|has|had|am|is|are|was|no|not|cannot|can't|"
    r"nothing|nobody)\b)|"
    r"(?=\b(?:rather than|instead of|no longer|not any ?more|anywhere but)\b)|"
    rf"(?<={MASK}) (?=to (?:the )?{MASK})|"
    rf"(?=\bnot (?:(?:on|at|in|for|to|from|until) )?(?:the )?{MASK})"
)
_SENTENCE_ENDS = re.compile(r"[.;!?]+(?=[\s)\"']|$)|\n")


def _spans(text: str, ends: re.Pattern[str]) -> tuple[tuple[int, int], ...]:
    cuts = [0, *(match.end() for match in ends.finditer(text)), len(text)]
    return tuple((a, b) for a, b in pairwise(cuts) if a < b)


@lru_cache(maxsize=2_048)
def read_text(text: str, names: tuple[str, ...] = ()) -> Text:
    """The text with all values in it. Words of `names` are masked like values, so that commas in them end nothing."""
    plain = plain_text(text)
    masked, mentions = _moments(plain)
    for match in IDENTIFIER.finditer(masked):
        masked = _mask(masked, match)
    for found in _numbers(masked):
        mentions.append(found)
        masked = masked[: found.start] + MASK * (found.end - found.start) + masked[found.end :]
    for name in sorted(names, key=len, reverse=True):
        for match in word_pattern(name).finditer(masked):
            masked = _mask(masked, match)
    return Text(
        plain=plain,
        masked=masked,
        mentions=tuple(sorted(mentions, key=lambda one: one.start)),
        clauses=_spans(masked, _CLAUSE_ENDS),
        sentences=_spans(masked, _SENTENCE_ENDS),
    )


def _moments(text: str) -> tuple[str, list[Mention]]:
    """Days and times, and the text without them."""
    found: list[Mention] = []
    for pattern in DAY_PATTERNS:
        for match in pattern.finditer(text):
            if days := _days(match):
                found.append(Mention(kind="day", start=match.start(), end=match.end(), days=days))
                text = _mask(text, match)
    for pattern in TIME_PATTERNS:
        for match in pattern.finditer(text):
            if minutes := _minutes(match):
                found.append(Mention(kind="time", start=match.start(), end=match.end(), minutes=minutes))
                text = _mask(text, match)
    return text, found


def _mask(text: str, match: re.Match[str]) -> str:
    return text[: match.start()] + MASK * (match.end() - match.start()) + text[match.end() :]


@lru_cache(maxsize=8_192)
def word_pattern(way: str) -> re.Pattern[str]:
    """The words of `way` as whole words; `*` stands for up to six words between them."""
    plain = plain_text(way.replace("*", "\x00"))
    before = r"(?<!\w)(?<!\d[.,])" if plain[:1].isalnum() else ""
    after = r"(?!\w)(?![.,]\d)" if plain[-1:].isalnum() else ""
    body = r"\s+".join(map(re.escape, plain.split()))
    return re.compile(before + body.replace(re.escape("\x00"), r"(?:\S+\s+){0,6}?\S*") + after)


def _days(match: re.Match[str]) -> tuple[PartialDay, ...]:
    """The days that a match can mean; none when it is no day."""
    groups = match.groupdict()
    name = groups.get("weekday")
    weekday = next((n for n, one in enumerate(WEEKDAYS) if name and one.startswith(name[:3])), None)
    year = int(groups["year"]) if groups.get("year") else None
    year = year + 2000 if year is not None and year < 100 else year
    if groups.get("a"):
        a, b = int(groups["a"]), int(groups["b"])
        pairs = {(a, b), (b, a)} if groups.get("cut") == "/" else {(a, b)}
        return tuple((year, month, day, weekday) for day, month in sorted(pairs) if 1 <= month <= 12 and 1 <= day <= 31)
    if groups.get("m"):
        return ((year, int(groups["m"]), int(groups["d"]), weekday),)
    month = next((n for n, one in enumerate(MONTHS, 1) if one.startswith((groups.get("month") or "?")[:3])), None)
    day = int(groups["d"]) if groups.get("d") else None
    return () if day is not None and not 1 <= day <= 31 else ((year, month, day, weekday),)


def _minutes(match: re.Match[str]) -> frozenset[int]:
    """The minutes after midnight that a match can mean; none when it is no time."""
    groups = match.groupdict()
    if word := groups.get("word"):
        return frozenset({0 if word == "midnight" else 720})
    written = groups["h"]
    hour = int(written) if written.isdecimal() else SMALL_NUMBERS.get(written, 99)
    minute, half = int(groups.get("m") or 0), (groups.get("half") or "")[:1]
    if hour > 24 or minute > 59 or (half and not 1 <= hour <= 12):
        return frozenset()
    if half:
        return frozenset({hour % 12 * 60 + minute + (720 if half == "p" else 0)})
    if "clock" in match[0]:
        return frozenset({hour % 12 * 60, (hour % 12 + 12) * 60})
    return frozenset({hour % 24 * 60 + minute})


def _numbers(text: str) -> Iterator[Mention]:
    """Yield numbers and amounts in their order."""
    found: list[Mention] = []
    for match in MONEY.finditer(text):
        cents = number_readings(match["cents"])
        values = frozenset(euros + cent / 100 for euros in number_readings(match["whole"]) for cent in cents)
        whole = Mention(kind="number", start=match.start(), end=match.end(), numbers=values)
        found.append(replace(whole, is_money=True, has_currency=True))
        text = _mask(text, match)
    for match in NUMBER.finditer(text):
        written = match["number"] or match["glued"]
        currency = bool(match["before"] or match["after"])
        found.append(
            Mention(
                kind="number",
                start=match.start(),
                end=match.end(),
                numbers=number_readings(written),
                is_money=currency or bool(re.search(r"\d[.,]\d\d$", written)),
                has_currency=currency,
                is_weak=written == "one",
            )
        )
    yield from _with_lists(sorted(found, key=lambda one: one.start), text)


def _with_lists(numbers: list[Mention], text: str) -> Iterator[Mention]:
    """Yield the numbers; those in a list with an amount are amounts too."""
    money = False
    listed: list[Mention] = []
    for one, after in zip(reversed(numbers), [None, *reversed(numbers)], strict=False):
        joined = after is not None and re.fullmatch(r"\s*(?:,|/|or|and|, or|, and)\s*", text[one.end : after.start])
        money = one.is_money or (bool(joined) and money)
        listed.append(replace(one, is_money=money))
    yield from reversed(listed)


@lru_cache(maxsize=4_096)
def number_readings(written: str) -> frozenset[float]:
    """The numbers that a text can mean, in digits or words: `1.530` is 1530 or 1.53."""
    if written[:1].isdecimal():
        return _digits(written)
    total = part = 0
    for word in re.findall(r"[a-z]+", written):
        if word == "hundred":
            part = max(part, 1) * 100
        elif word == "thousand":
            total, part = total + max(part, 1) * 1_000, 0
        elif word != "and":
            part += SMALL_NUMBERS[word]
    return frozenset({float(total + part)})


def _digits(written: str) -> frozenset[float]:
    digits = re.sub(r"[' ]", "", written)
    marks = re.findall(r"[.,]", digits)
    if len(set(marks)) == 2 or (len(marks) > 1 and len(digits.rpartition(marks[-1])[2]) < 3):
        last = marks[-1]
        whole, _, cents = digits.rpartition(last)
        return frozenset({float(re.sub(r"[.,]", "", whole) + "." + cents)})
    if len(marks) > 1:
        return frozenset({float(re.sub(r"[.,]", "", digits))})
    values = {float(digits.replace(",", "."))}
    if marks and len(digits.rpartition(marks[0])[2]) == 3:
        values.add(float(digits.replace(marks[0], "")))
    return frozenset(values)


def fits_day(days: Sequence[PartialDay], seconds: float) -> bool:
    """Whether one of these days is, as far as it is written, the day of this moment."""
    at = datetime.fromtimestamp(seconds, tz=UTC)
    whole = (at.year, at.month, at.day, at.weekday())
    return any(all(part is None or part == true for part, true in zip(day, whole, strict=True)) for day in days)
