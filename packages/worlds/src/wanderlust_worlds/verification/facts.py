"""Facts that a text must state, judged as values: who brings what, which day, how much, what was asked.

A fact holds when the text affirms it, and affirms nothing else in its place. What is denied ("not on Friday"), left
open ("either ... or", "if") or superseded ("it was to be Monday") is not affirmed. Not covered: tone, irony, and false
sentences about what no fact is about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from wanderlust_worlds.engine.cow_dict import FrozenRecord
from wanderlust_worlds.verification.affirmation import (
    DENIED,
    HARMLESS,
    OPEN,
    Place,
    affirmed,
    any_affirmed,
    is_bounded,
    is_denied,
    is_open,
    is_plain,
)
from wanderlust_worlds.verification.reading import Mention, Text, fits_day, plain_text, read_text, word_pattern

Wordings: TypeAlias = tuple[str, ...]
"""Ways of writing one thing; any of them is accepted. `*` stands for up to six words."""
Mode: TypeAlias = Literal["any", "states", "asks", "reports"]
"""What a text is to be: a statement, a question or request, a report that all is done; `any` is not looked at."""
MAX_CHECKED_ANSWER_CHARS = 1_500
"""Characters of a text; a longer one fails."""
AMOUNT_TOLERANCE = 0.005

_NOT_FOUND = re.compile(
    r"\bi (?:could not|couldn't|cannot|can't|did not|didn't|was not able to|wasn't able to|was unable to|failed to) "
    r"(?:find|identify|determine|locate|tell|place|order|book|get|forward|delete|remove|save|send|mail|message|add|do)\b"
)
_ASKS = re.compile(
    r"\?|(?:^|[.;!?\n:,] ?|\bhi \S+ |\bhello \S+ )"
    r"(?:which|who|what|when|is|are|do|does|did|should|shall|would|could|can|will|may)\b|"
    r"\b(?:which (?:one|of|day|evening)|please (?:tell|confirm|say|clarify|let|choose|specify|send|bring)|"
    r"let me know|(?:did|do|does|can|could|would|will|shall|should|may|might) (?:i|you|he|she|we|they|that|it|this)|"
    r"wonder(?:ed|ing)?|ask(?:s|ed|ing)?|needs?|is (?:it|that|this)|possible|looking for|wants? to know|would like)\b"
)
_ACTED = re.compile(
    r"\bi(?:'ve| have| had)?(?: already| now| just)? (?:mailed|sent|ordered|booked|told|written|wrote|informed|"
    r"cancelled|forwarded|messaged)\b"
)
_FAILED = re.compile(
    r"\b(?:could not|couldn't|cannot|can't|unable|failed|fail|nobody|none|nothing|"
    r"(?:do|does|did|is|was|were|has|have|are|will)(?:n't| not)|not (?:yet|sent|done|over|all)|no (?:mail|message|one)|"
    r"never|without|neither)\b"
)
_UNTRUE = re.compile(r"\b(?:not true|untrue|false|not the case|no truth|a lie) (?:that|in)\b")
_NOT_DONE = re.compile(
    r"\bi(?:'ve| have| had| did)?(?:n't| not| never)(?: yet| actually)? (?:place|order|forward|delete|remove|save|"
    r"send|sent|book|told|tell|inform|write|wrote|written|mail|add|move|ask)(?:d|ed)?\b|"
    r"\bi forgot\b|\bleft \w+ alone\b|\bi (?:still )?(?:have to|need to|must)\b|\ban error\b|"
    r"\b(?:i|he|she|they) declined\b"
)
_DID_NOTHING = re.compile(r"\b(?:deleted|removed|saved|forwarded|ordered|booked|sent|did) (?:no|none|nothing)\b")
_DONE = re.compile(
    r"\b(?:done|sent|mailed|told|informed|knows?|know|notified|wrote|written|messaged?|has|have|had|added|invited|"
    r"thanked|over|finished|ended|ends|complete[d]?|went|gone|out|updated|saved|forwarded|booked|ordered|passed|"
    r"posted|set|reached|delivered|ready|is in|are in|up|replied|answered|entered|changed|put|asked|all)\b"
)


class _Fact(FrozenRecord, tag_field="fact"):
    """What one sentence of a text is to say."""


class Says(_Fact, tag="says"):
    """One of the wordings is affirmed, and none of the rivals."""

    ways: Wordings
    rivals: Wordings = ()
    """Wordings of other answers."""
    cancels: bool = True
    """Whether "cancelled" in the same clause denies it."""
    literal: bool = False
    """The wordings themselves may be denials: that they occur is enough."""
    aside: Wordings = ()
    """Words in whose clause rivals may be named ("I asked Ana and Bo"), where the answer stands outside of it."""

    def holds(self, text: Text, *, asks: bool) -> bool:
        """Whether the text states it."""
        places = list(_places(text, self.ways))
        if self.literal:
            return bool(places) and not any(is_open(text, at[0]) for at in places)
        rivals = [at for at in _places(text, self.rivals) if not _inside(at, places)]
        places = [at for at in places if not _inside(at, rivals)]
        outside = [at for at in places if not self._is_aside(text, at)]
        if affirmed(text, outside, asks=asks, cancels=self.cancels):
            rivals = [at for at in rivals if not self._is_aside(text, at)]
        return affirmed(text, places, asks=asks, cancels=self.cancels) and not any_affirmed(text, rivals)

    def _is_aside(self, text: Text, place: Place) -> bool:
        clause = text.clause(place[0])
        return any(word_pattern(word).search(clause) for word in self.aside)


class Day(_Fact, tag="day"):
    """A day is named, and no other."""

    at: float
    """A moment of that day."""
    since: float | None = None
    """The present: a weekday alone names the next day of that name. None where a weekday is not enough."""
    also: tuple[float, ...] = ()
    """Days that may be named as well."""
    needed: bool = True
    """Whether it must be named; if not, it is enough that no other day is."""

    def holds(self, text: Text, *, asks: bool) -> bool:
        """Whether the text states it."""
        days = [one for one in text.mentions if one.kind == "day"]
        right = [one for one in days if fits_day(one.days, self.at)]
        near = self.since is not None and 0 <= self.at // 86_400 - self.since // 86_400 < 7
        whole = [one for one in right if any(day[1] is not None or (near and day[3] is not None) for day in one.days)]
        others = [one for one in days if one not in right and not any(fits_day(one.days, day) for day in self.also)]
        if not self.needed and not whole:
            return not any_affirmed(text, [(one.start, one.end) for one in others])
        return _one_value(text, whole, others, asks=asks)


class ClockTime(_Fact, tag="clock"):
    """A time of the day is named, and no other but for the `end` of what begins then."""

    at: float
    end: float | None = None
    also: tuple[float, ...] = ()

    def holds(self, text: Text, *, asks: bool) -> bool:
        """Whether the text states it."""
        times = [one for one in text.mentions if one.kind == "time"]
        right = [one for one in times if _minute(self.at) in one.minutes and not _is_end(text, one)]
        fine = {_minute(one) for one in (self.end, *self.also) if one is not None}
        others = [one for one in times if one not in right and not one.minutes & fine]
        return _one_value(text, right, others, asks=asks)


class Amount(_Fact, tag="amount"):
    """An amount of money or a measured number, and no other in its place."""

    value: float
    also: tuple[float, ...] = ()
    """Amounts that may be named as well: its parts."""
    near: Wordings = ()
    """Words of which one is in the same clause; empty for amounts of money."""
    apart: Wordings = ()
    """Words of another number's clause: numbers beside them are not this one."""

    def holds(self, text: Text, *, asks: bool) -> bool:
        """Whether the text states it."""
        numbers = [one for one in text.mentions if one.kind == "number" and self._is_meant(text, one)]
        right = [one for one in numbers if _equals(one, self.value)]
        others = [one for one in numbers if one not in right and not any(_equals(one, other) for other in self.also)]
        if not self.near:
            others = [one for one in others if one.is_money]
        return _one_value(text, right, others, asks=asks)

    def _is_meant(self, text: Text, one: Mention) -> bool:
        clause = text.clause(one.start)
        elsewhere = any(word_pattern(word).search(clause) for word in self.apart)
        if self.near:
            return not (elsewhere or one.has_currency) and any(word_pattern(word).search(clause) for word in self.near)
        return one.is_money or not elsewhere


class Count(_Fact, tag="count"):
    """How many there are, and no other number."""

    value: int
    unlike: Wordings = ()
    """Words that follow numbers of something else."""

    def holds(self, text: Text, *, asks: bool) -> bool:
        """Whether the text states it."""
        numbers = [one for one in text.mentions if one.kind == "number" and not one.is_money]
        numbers = [one for one in numbers if not self._counts_else(text, one)]
        right = [one for one in numbers if _equals(one, self.value)]
        others = [one for one in numbers if one not in right and not one.is_weak]
        return _one_value(text, right, others, asks=asks)

    def _counts_else(self, text: Text, one: Mention) -> bool:
        rest = text.plain[one.end :].lstrip(" -")
        if not _equals(one, self.value) and re.search(r"\bof (?:the )?$", text.plain[: one.start]):
            return True
        return any((match := word_pattern(word).search(rest)) is not None and not match.start() for word in self.unlike)


class Pairs(_Fact, tag="pairs"):
    """Who goes with what: each person with their own thing, in any order, and with nobody else's."""

    pairs: tuple[tuple[Wordings, Wordings], ...]

    def holds(self, text: Text, *, asks: bool) -> bool:
        """Whether the text states it."""
        people = {way: {n} for n, (ways, _) in enumerate(self.pairs) for way in ways}
        things: dict[str, set[int]] = {}
        for n, (_, ways) in enumerate(self.pairs):
            for way in ways:
                things.setdefault(way, set()).add(n)
        named = sorted(
            [(at, True, people[way]) for way, at in _longest(text, people)]
            + [(at, False, things[way]) for way, at in _longest(text, things)]
        )
        if any(is_denied(text, at, cancels=True) or is_open(text, at) for at, _, _ in named):
            return False
        order = [(person, who) for _, person, who in named]
        return any(self._fits(way, text) for way in (order, order[::-1]))

    def _fits(self, order: list[tuple[bool, set[int]]], text: Text) -> bool:
        if "respectively" in text.plain:
            people = [who for is_person, who in order if is_person]
            things = [who for is_person, who in order if not is_person]
            return len(people) == len(things) == len(self.pairs) and all(map(set.intersection, people, things))
        current: set[int] = set()
        done: set[int] = set()
        for is_person, who in order:
            if is_person:
                current = who
            elif not current & who:
                return False
            else:
                done |= current & who
        return len(done) == len(self.pairs)


class PlacesOnDays(_Fact, tag="places on days"):
    """No place is named with the day of another one. Naming only places, or only days, is fine."""

    pairs: tuple[tuple[float, Wordings], ...]
    """A moment of the day, and ways of writing the place."""

    def holds(self, text: Text, *, asks: bool) -> bool:
        """Whether the text states it."""
        days = [
            (one.start, True, {n for n, (at, _) in enumerate(self.pairs) if fits_day(one.days, at)})
            for one in text.mentions
            if one.kind == "day"
        ]
        ways = {way: n for n, (_, names) in enumerate(self.pairs) for way in names}
        places = [(at, False, {ways[way]}) for way, at in _longest(text, ways)]
        if not days or not places:
            return True
        order = [(is_day, which) for _, is_day, which in sorted([*days, *places], key=lambda one: one[0])]
        return any(_each_with_its_own(way) for way in (order, order[::-1]))


def _each_with_its_own(order: list[tuple[bool, set[int]]]) -> bool:
    """Whether each second kind of thing follows one of the first kind that it goes with."""
    current: set[int] = set()
    for is_first, which in order:
        if is_first:
            current = which
        elif not current & which:
            return False
    return True


class Quote(_Fact, tag="quote"):
    """These words and no others; marks, case and spaces aside."""

    text: str

    def holds(self, text: Text, *, asks: bool) -> bool:
        """Whether the text states it."""
        return re.findall(r"\w+", text.plain) == re.findall(r"\w+", plain_text(self.text))


class AnyOf(_Fact, tag="any of"):
    """All facts of one of the choices hold."""

    choices: tuple[tuple[TextFact, ...], ...]

    def holds(self, text: Text, *, asks: bool) -> bool:
        """Whether the text states it."""
        return any(all(fact.holds(text, asks=asks) for fact in facts) for facts in self.choices)


TextFact: TypeAlias = Says | Day | ClockTime | Amount | Count | Pairs | PlacesOnDays | Quote | AnyOf


class AnswerFacts(FrozenRecord):
    """What a text, or the fields of a record, must state."""

    facts: tuple[TextFact, ...] = ()
    never: Wordings = ()
    """Wordings that must not be affirmed."""
    mode: Mode = "any"
    fields: Mapping[str, Any] | None = None
    """For a record: its fields and their values, no others; numbers are compared by their digits."""
    is_plain: bool = False
    """Whether nothing in the text may deny, contrast, compare or defer: where a right answer has no need of it."""
    plain_words: Wordings = ()
    """Words of that kind that it may have all the same, as names that the facts state may."""
    max_chars: int = MAX_CHECKED_ANSWER_CHARS

    def hold_for(self, answer: Any) -> bool:
        """Whether the answer states the facts, and only them. An empty text fails."""
        if self.fields is not None:
            return isinstance(answer, Mapping) and _same_fields(answer, self.fields)
        if not isinstance(answer, str) or not answer.strip() or len(answer) > self.max_chars:
            return False
        names = tuple(_names(self.facts))
        text = read_text(answer, names)
        asks = self.mode == "asks"
        if _UNTRUE.search(text.plain) or not all(fact.holds(text, asks=asks) for fact in self.facts):
            return False
        if any(_is_meant(text, way) for way in self.never):
            return False
        if self.is_plain and not is_plain(text, (*self.plain_words, *map(str.lower, names))):
            return False
        return _MODES[self.mode](text, bool(self.facts))


def _asks(text: Text, _: bool) -> bool:
    acted = (match for match in _ACTED.finditer(text.plain) if not is_denied(text, match.start(), cancels=False))
    return _ASKS.search(text.plain) is not None and next(acted, None) is None


def _reports(text: Text, has_facts: bool) -> bool:
    if "?" in text.plain or _DID_NOTHING.search(text.plain) or _NOT_FOUND.search(text.plain):
        return False
    if _NOT_DONE.search(text.plain):
        return False
    return has_facts or (
        _FAILED.search(HARMLESS.sub(" ", text.plain)) is None
        and OPEN.search(text.plain) is None
        and _DONE.search(text.plain) is not None
    )


_MODES: Mapping[Mode, Callable[[Text, bool], bool]] = {
    "any": lambda text, _: True,
    "states": lambda text, _: True,
    "asks": _asks,
    "reports": _reports,
}


def _names(facts: Iterable[TextFact]) -> Iterator[str]:
    """Yield the wordings with commas and points in them, which end no clause."""
    for fact in facts:
        if isinstance(fact, Says):
            yield from (way for way in (*fact.ways, *fact.rivals) if not way.isalpha() and "*" not in way)
        elif isinstance(fact, AnyOf):
            for choice in fact.choices:
                yield from _names(choice)


def _same_fields(answer: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    given = {name: value for name, value in answer.items() if value is not None}
    return given.keys() == wanted.keys() and all(_same_field(given[name], value) for name, value in wanted.items())


def _same_field(value: Any, wanted: Any) -> bool:
    if re.fullmatch(r"\+?[\d ()/-]{7,}", str(wanted)):
        return re.sub(r"[ ()/.-]", "", str(value)) == re.sub(r"[ ()/.-]", "", str(wanted))
    return plain_text(str(value)) == plain_text(str(wanted))


def _places(text: Text, ways: Iterable[str]) -> Iterator[Place]:
    for way in ways:
        yield from ((match.start(), match.end()) for match in word_pattern(way).finditer(text.plain))


def _longest(text: Text, ways: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield where wordings stand; a shorter one within a longer one does not count."""
    taken: list[Place] = []
    for way in sorted(ways, key=len, reverse=True):
        for start, end in _places(text, (way,)):
            if not _inside((start, end), taken):
                taken.append((start, end))
                yield way, start


def _inside(place: Place, places: Iterable[Place]) -> bool:
    return any(start <= place[0] and place[1] <= end for start, end in places)


def _is_meant(text: Text, way: str) -> bool:
    """Whether a wording is there and not denied; one that is a denial itself need only be there."""
    is_denial = DENIED.search(plain_text(way)) is not None
    return any(is_denial or not is_denied(text, at[0], cancels=False) for at in _places(text, (way,)))


def _one_value(text: Text, right: list[Mention], others: list[Mention], *, asks: bool) -> bool:
    """Whether the right value is affirmed and never denied, and no other may be meant."""
    places = [(one.start, one.end) for one in right if not is_bounded(text, one)]
    denied = any(is_denied(text, at[0], cancels=True) for at in places)
    return (
        not denied
        and affirmed(text, places, asks=asks)
        and not any_affirmed(text, [(one.start, one.end) for one in others])
    )


def _is_end(text: Text, one: Mention) -> bool:
    before = text.plain[: one.start]
    return (
        re.search(r"\b(?:until|till|to|before|by|not after) $|\S ?- ?$|\bend(?:s|ed|ing)\b[^.;,]{0,40}$", before)
        is not None
    )


def _minute(seconds: float) -> int:
    at = datetime.fromtimestamp(seconds, tz=UTC)
    return at.hour * 60 + at.minute


def _equals(one: Mention, value: float) -> bool:
    return any(abs(number - value) < AMOUNT_TOLERANCE for number in one.numbers)


def wordings(*ways: str) -> Wordings:
    """Ways of writing something, as they are."""
    return ways


@lru_cache(maxsize=4_096)
def place_wordings(name: str) -> Wordings:
    """Ways of writing a place or an address: with and without its article, its street short or whole."""
    ways = [name, name.removeprefix("The ")]
    for whole, short in (("Road", "Rd"), ("Street", "St"), ("Avenue", "Ave"), ("Lane", "Ln")):
        ways += [re.sub(rf"\b{whole}\b", short, name), re.sub(rf"\b{whole}\b", f"{short}.", name)]
    return tuple(dict.fromkeys(ways))


def describe_facts(facts: AnswerFacts) -> Iterator[str]:
    """Yield the facts in readable form."""
    if facts.fields is not None:
        yield ", ".join(f"{name} {value}" for name, value in facts.fields.items())
    if facts.mode == "asks":
        yield "a question or request"
    yield from map(describe_fact, facts.facts)
    if facts.never:
        yield "never " + ", ".join(map(repr, facts.never))


def describe_fact(fact: TextFact) -> str:
    """A fact in readable form."""
    match fact:
        case Says():
            text = " or ".join(map(repr, fact.ways[:2])) + (" or ..." if len(fact.ways) > 2 else "")
        case Day():
            text = f"the day {datetime.fromtimestamp(fact.at, tz=UTC):%Y-%m-%d}"
        case ClockTime():
            text = f"the time {datetime.fromtimestamp(fact.at, tz=UTC):%H:%M}"
        case Amount() | Count():
            text = f"the number {fact.value:g}"
        case Pairs():
            text = "; ".join(f"{who[0]}: {what[0]}" for who, what in fact.pairs)
        case PlacesOnDays():
            text = "places with their own days"
        case Quote():
            text = f"exactly {fact.text!r}"
        case AnyOf():
            text = " or ".join(" and ".join(map(describe_fact, choice)) for choice in fact.choices)
    return text
