"""Right and wrong answers in the place of an oracle's: other notations of the same value, and other values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from wanderlust_life.universes.text_templates import format_day, format_price, format_time_of_day
from wanderlust_worlds.verification.facts import Amount, AnswerFacts, ClockTime, Count, Day, Quote, Says

Text = tuple[str, bool]
"""A text, and whether it is right."""
DAY_SECONDS = 86_400


def answers_of(facts: AnswerFacts, oracle: str) -> Iterator[Text]:
    """Yield texts that are right or wrong where the oracle writes its own."""
    if not facts.facts:
        yield from ((text, False) for text in ("", "I could not do it.", "Shall I do it?", "It failed."))
        yield from ((text, True) for text in ("Done.", "All done.", "I have done it."))
        return
    fact = facts.facts[0]
    yield oracle, True
    yield f"  {oracle}\n", True
    yield oracle.upper(), True
    if not isinstance(fact, Quote):
        yield f"Hello. {oracle}", True
        yield f"I looked it up. {oracle} Best regards.", True
        yield f"According to your messages and mails: {oracle}", True
        yield oracle.replace(".", ", as far as the records go.") if oracle.count(".") == 1 else oracle, True
        yield f"It is not true that {oracle[0].lower()}{oracle[1:]}", False
        yield f"Perhaps {oracle[0].lower()}{oracle[1:]}", False
        yield from ((text, False) for text in ("I do not know.", "I could not find it.", "", "Which one do you mean?"))
    yield from TEXTS[type(fact)](fact, oracle, facts)


def days(fact: Day, oracle: str, facts: AnswerFacts) -> Iterator[Text]:
    """Other notations of a day, and other days."""
    at, written = datetime.fromtimestamp(fact.at, tz=UTC), format_day(fact.at)
    for way in (f"{at:%Y-%m-%d}", f"{at:%B} {at.day}", f"{at.day} {at:%B} {at.year}", f"{at:%a}, {at.day} {at:%b}"):
        yield f"It is {way}.", True
        yield way, True
    for days_off in (-7, -1, 1, 7, 28):
        other = format_day(fact.at + days_off * DAY_SECONDS)
        yield f"It is {other}.", False
        yield f"It is {written} or {other}.", False
    yield f"Not on {written}.", False


def amounts(fact: Amount, oracle: str, facts: AnswerFacts) -> Iterator[Text]:
    """Other notations of an amount, and other amounts."""
    for way in (f"\u20ac{fact.value:.2f}", f"EUR {fact.value:.2f}", f"{fact.value:.2f} euros"):
        yield f"It is {way}.", True
        yield f"That comes to {way}.", True
    for other in (fact.value + 1, fact.value * 10, fact.value + 0.1, fact.value / 2):
        yield f"It is {format_price(other)}.", False
        yield f"It is {format_price(fact.value)} or {format_price(other)}.", False
    yield f"It is less than {format_price(fact.value)}.", False


def times(fact: ClockTime, oracle: str, facts: AnswerFacts) -> Iterator[Text]:
    """Other times."""
    yield from ((f"At {format_time_of_day(fact.at + more)}.", False) for more in (3_600, 1_800, -3_600))


def counts(fact: Count, oracle: str, facts: AnswerFacts) -> Iterator[Text]:
    """Other numbers."""
    yield f"It was {fact.value}.", True
    yield from ((f"It is {fact.value + more}.", False) for more in (1, 2, 10))
    yield f"It is {fact.value} or {fact.value + 1}.", False


def sayings(fact: Says, oracle: str, facts: AnswerFacts) -> Iterator[Text]:
    """The value in other sentences, and other values of its kind in its place or beside it."""
    way, others = fact.ways[0], [one for one in (*fact.rivals, *facts.never) if one not in fact.ways][:12]
    yield from ((text, True) for text in (way, f"{way}.", f"The answer is {way}.", f"I have found it: {way}."))
    for other in others:
        yield oracle.replace(way, other), False
        yield oracle.replace(way, f"{way} or {other}"), False
        yield oracle.replace(way, f"{way}, {other}"), False
    yield oracle.replace(way, f"not {way}"), False


def quotes(fact: Quote, oracle: str, facts: AnswerFacts) -> Iterator[Text]:
    """The words without their last mark, and other words."""
    yield oracle.rstrip(".?!"), True
    yield f"Hello. {oracle}", False
    yield oracle.partition(" ")[2], False
    yield "Thank you.", False


TEXTS: Mapping[type, Callable[..., Iterator[Text]]] = {
    Day: days,
    Amount: amounts,
    ClockTime: times,
    Count: counts,
    Says: sayings,
    Quote: quotes,
}
