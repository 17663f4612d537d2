"""Families of tasks in lived universes: a question for each attribute of a happening, and acts on what is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple, get_args

from wanderlust.errors import UsageError
from wanderlust_life.families.builder import EventReference, FamilyBuilder
from wanderlust_life.families.family import (
    Capability,
    Difficulty,
    Family,
    FamilyFunction,
    OwnApps,
    universe_seed,
)
from wanderlust_life.lived.facts_ledger import ATTRIBUTE_TYPES, Happening
from wanderlust_life.lived.lived_universe import LivedUniverse, make_lived_universe
from wanderlust_life.lived.question_words import KINDS, WORDS
from wanderlust_life.lived.questions import LifeQuestion, QuestionFinder
from wanderlust_life.universes.generate import SizeName, Universe
from wanderlust_life.universes.text_templates import Split, format_day, format_price, format_time_of_day
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.verification.facts import Amount, ClockTime, Count, Quote, Says, TextFact

JOINS_OF_STEPS = {1: (1,), 2: (2,), 4: (3, 4)}
"""Joins of a question by the steps of a level."""
MAX_RIVALS = 300
"""Other values that an answer must not name."""
MESSAGES = (
    "Thank you again, I have not forgotten it.",
    "Could you ring me tonight? There is something to settle.",
    "I was looking through old messages and thought of you.",
    "Do you still have my address? I have moved the letterbox.",
)


class Found(NamedTuple):
    """What an act is made from."""

    question: LifeQuestion
    after: EventReference
    extra: str
    """An address, or what to write."""

    def record(self, name: str) -> str:
        """The id of a record of the happening in its app."""
        return self.question.happening.records[name].partition("/")[2]


class LifeAct(NamedTuple):
    """An act on a happening that was found."""

    name: str
    asks: str
    """The request; `{}` is whom it is for, or what to write."""
    kinds: tuple[str, ...]
    perform: Callable[[FamilyBuilder, Found], EventReference]
    record: str = ""
    """The record of the happening that it is about."""
    attribute: str = ""
    """The attribute that has to be found out; that of a record is any."""


class NoQuestion(UsageError):
    """A universe has no question of a kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivedFamily(Family):
    """A family in lived universes. Where a life has no question of its kind, a larger one of the same seed is taken."""

    def scenario(
        self,
        seed: int,
        difficulty: Difficulty,
        *,
        split: Split = "train",
        name: str = "",
        within: Universe | None = None,
        apps: Sequence[OwnApps] = (),
    ) -> Scenario:
        """The scenario of a seed, as of Family. Raises UsageError where no life has a question of this kind."""
        sizes = get_args(SizeName)[get_args(SizeName).index(difficulty.size) :]
        persona = within.persona if within is not None else None
        for size in sizes:
            place = within if within is not None and size == difficulty.size else None
            place = place or self.make(universe_seed(seed, split), size, split, persona=persona)
            try:
                return Family.scenario(self, seed, difficulty, split=split, name=name, within=place, apps=apps)
            except NoQuestion:
                if size == sizes[-1]:
                    raise
        raise UsageError(f"the family {self.name} has no size")


# Questions


def ask_value(s: FamilyBuilder, kind: str, attribute: str) -> None:
    """Asks for the value of an attribute."""
    question = find_question(s, kind, attribute)
    request = sent(s, question.messages)
    text, fact, never = expected_answer(s, question)
    s.reports(request, text, fact, never=never, plain_words=plain_words(question))


def sent(s: FamilyBuilder, messages: Sequence[str]) -> EventReference:
    """The user sends messages one after the other; the agent reads all of them before it acts."""
    request: EventReference = None
    for text in messages:
        request = s.story.user(s.ui, after=request).send_message_to_agent(text)
    return request


def find_question(
    s: FamilyBuilder, kind: str, attribute: str, *, only: Iterable[Happening] | None = None
) -> LifeQuestion:
    """A question in the universe of the stage. Raises UsageError where there is none."""
    universe = s.universe
    if not isinstance(universe, LivedUniverse):
        raise UsageError(f"the universe {universe.name} has no ledger: this family needs universe=lived")
    joins = s.rng.choice(JOINS_OF_STEPS.get(s.steps, (min(s.steps, 4),)))
    found = QuestionFinder(universe, s.rng).question(kind, attribute, joins=joins, only=only)
    if found is None:
        what = KINDS[kind].family if kind in KINDS else kind
        raise NoQuestion(f"there is no question for the {attribute} of a {what} in {universe.name}")
    s.info["question"] = {
        "shape": f"{found.query.shape()}.{attribute}",
        "universe": universe.size,
        "joins": found.query.joins,
        "apps": sorted(found.apps),
        "rivals": found.rivals,
        "needed": list(found.needed),
        "answer": [name for fact in found.answer_facts for name in fact.records],
    }
    return found


def plain_words(question: LifeQuestion) -> tuple[str, ...]:
    """Words of the answer that a plain text may have."""
    return (question.answer.lower(),) if isinstance(question.answer, str) else ()


def expected_answer(s: FamilyBuilder, question: LifeQuestion) -> tuple[str, TextFact, list[str]]:
    """The oracle's answer, the fact that an answer must state, and names that it must not affirm."""
    value, kind = question.answer, ATTRIBUTE_TYPES[question.attribute]
    if kind == "person":
        person = s.universe.people[str(value)]
        others = [one for one in s.universe.people.values() if one.id not in (value, s.user.id, *question.named)]
        same = [one for one in others if one.first == person.first]
        return f"It was {person.name}.", s.is_who(person, same), [one.name for one in others]
    if isinstance(value, str):
        return said_text(s, question, value)
    if kind == "day":
        return f"It is {format_day(value)}.", s.on_day(value), []
    if kind == "amount":
        return f"It is {format_price(value)}.", Amount(value=value), []
    if kind == "time":
        return f"At {format_time_of_day(value)}.", ClockTime(at=value), []
    return f"It is {value:g}.", Count(value=int(value)), []


def said_text(s: FamilyBuilder, question: LifeQuestion, value: str) -> tuple[str, TextFact, list[str]]:
    """The same for a place, a thing or another text."""
    if question.attribute == "phone":
        return f"The number is {value}.", Says(ways=(value, value.replace(" ", ""), value.replace(" ", "-"))), []
    if ATTRIBUTE_TYPES[question.attribute] == "place":
        others = [one for one in rival_values(s, question) if one not in question.text.story]
        return f"It is {value}.", s.at_place(value, *others), []
    return f"It is {value}.", Says(ways=ways_of(value), rivals=tuple(rival_values(s, question)), cancels=False), []


def ways_of(value: str) -> tuple[str, ...]:
    """A thing with and without its article."""
    bare = value.removeprefix("a ").removeprefix("an ")
    return tuple(dict.fromkeys((value, bare)))


def rival_values(s: FamilyBuilder, question: LifeQuestion) -> list[str]:
    """Other values of the attribute that the life has."""
    universe = s.universe
    assert isinstance(universe, LivedUniverse)
    values: dict[str, None] = {}
    for one in universe.ledger.of_kind(question.query.kind):
        for other in one.values(question.attribute):
            if isinstance(other, str) and other != question.answer:
                values[other] = None
    answer = str(question.answer).lower()
    return [one for one in values if one.lower() not in answer and answer not in one.lower()][:MAX_RIVALS]


# Acts


def ask_act(s: FamilyBuilder, one: LifeAct, kind: str) -> None:
    """Asks for an act on what is found."""
    universe = s.universe
    only = None
    if one.record and isinstance(universe, LivedUniverse):
        only = [happening for happening in universe.ledger.of_kind(kind) if may_act(s, one, happening)]
    question = find_question(s, kind, one.attribute or first_attribute(kind), only=only)
    extra, words = for_whom(s, one)
    if one.record:
        s.info["question"]["answer"] = [question.happening.records[one.record]]
    s.info["question"]["shape"] += f" {one.name}"
    request = sent(s, question.text.messages(one.asks.format(words)))
    s.reports(one.perform(s, Found(question, request, extra)), "It is done.")


def may_act(s: FamilyBuilder, one: LifeAct, happening: Happening) -> bool:
    """Whether a happening has the record that the act is about, and an order can still be cancelled."""
    if one.record not in happening.records:
        return False
    return one.name != "cancel" or happening.value("status") in ("processed", "shipped")


def first_attribute(kind: str) -> str:
    """The attribute by which a happening is known that is to be found for an act."""
    return {"order": "number", "appointment": "number", "bill": "number", "trip": "number"}.get(kind, "day")


def for_whom(s: FamilyBuilder, one: LifeAct) -> tuple[str, str]:
    """What an act needs besides: an address or a message, and its words in the request."""
    if one.name == "forward":
        to = s.one("partner", "sister", "brother", "mother", "father", "friend")
        return to.email, to.name
    text = s.rng.choice(MESSAGES)
    return text, text


def forward(s: FamilyBuilder, found: Found) -> EventReference:
    """Its mail goes to somebody else."""
    return s.agent(s.mail, after=found.after).forward_email(email_id=found.record("mail"), recipients=[found.extra])


def reply(s: FamilyBuilder, found: Found) -> EventReference:
    """Its mail is answered."""
    answered = s.agent(s.mail, after=found.after).reply_to_email(email_id=found.record("mail"), content=found.extra)
    return s.expects(answered, "content", Quote(text=found.extra))


def take_out(s: FamilyBuilder, found: Found) -> EventReference:
    """Its entry in the calendar is deleted."""
    return s.agent(s.calendar, after=found.after).delete_calendar_event(event_id=found.record("entry"))


def remove_file(s: FamilyBuilder, found: Found) -> EventReference:
    """Its file is deleted."""
    return s.agent(s.files, after=found.after).rm(found.record("file"))


def cancel(s: FamilyBuilder, found: Found) -> EventReference:
    """It is cancelled in the shop."""
    return s.agent(s.shop, after=found.after).cancel_order(order_id=found.record("order"))


def order_cab(s: FamilyBuilder, found: Found) -> EventReference:
    """A cab to its place."""
    place = str(found.question.answer)
    booked = s.agent(s.cabs, after=found.after).order_ride(
        start_location=s.user.address, end_location=place, service_type="Default"
    )
    s.expects(booked, "start_location", s.at_place(s.user.street))
    return s.expects(booked, "end_location", s.at_place(place, *rival_values(s, found.question)))


def message(s: FamilyBuilder, found: Found) -> EventReference:
    """A message to the person who is the answer."""
    sent = s.agent(s.chats, after=found.after).send_message(user_id=f"u{found.question.answer}", content=found.extra)
    return s.expects(sent, "content", Quote(text=found.extra))


ACTS: tuple[LifeAct, ...] = (
    LifeAct(
        "forward",
        "Forward the first mail about it that came to me, as it is, to {}.",
        ("appointment", "bill", "party", "trip", "handover", "viewing", "order"),
        forward,
        "mail",
    ),
    LifeAct(
        "reply",
        "Answer the first mail about it that came to me with these words alone: '{}'",
        ("party", "appointment", "handover"),
        reply,
        "mail",
    ),
    LifeAct(
        "take-out",
        "Delete its entry in my calendar.",
        ("meal", "appointment", "meeting", "party", "viewing"),
        take_out,
        "entry",
    ),
    LifeAct("remove-file", "Delete the file about it in my documents.", ("bill", "meeting"), remove_file, "file"),
    LifeAct("cancel", "Cancel it.", ("order",), cancel, "order"),
    LifeAct(
        "cab-to",
        "Order a cab of the kind Default from my home to where it was to be, for now.",
        ("meal", "appointment", "party"),
        order_cab,
        attribute="place",
    ),
    LifeAct(
        "message-proposer",
        "Send whoever suggested it these words in Chats: '{}'",
        ("meal",),
        message,
        attribute="proposer",
    ),
    LifeAct(
        "message-borrower",
        "Send whoever asked for it these words in Chats: '{}'",
        ("loan",),
        message,
        attribute="borrower",
    ),
    LifeAct(
        "message-organiser",
        "Send whoever asked for it these words in Chats: '{}'",
        ("meeting",),
        message,
        attribute="organiser",
    ),
    LifeAct(
        "message-taker", "Send the new owner these words in Chats: '{}'", ("handover",), message, attribute="taker"
    ),
)


@cache
def lived_families() -> Mapping[str, Family]:
    """The families of lived universes by name: `ask-KIND-ATTRIBUTE`, and `ACT-KIND`."""
    found: dict[str, Family] = {}

    def add(name: str, capability: Capability, asks: str, *, build: FamilyFunction) -> None:
        hard = "No search for a word of the request finds it: values lead from one happening to the next."
        made = LivedFamily(
            name=name, capability=capability, asks=asks, hard=hard, build=build, make=make_lived_universe
        )
        found[name] = made

    for (kind, attribute), words in WORDS.items():
        if words.asks:
            what = (f"a {KINDS[kind].family}", "it") if kind in KINDS else ("somebody", "this person")
            asks = f"Find {what[0]}. {words.asks.format(what[1])}"
            add(f"ask-{kind}-{attribute}", "search", asks, build=partial(ask_value, kind=kind, attribute=attribute))
    for one in ACTS:
        for kind in one.kinds:
            asks = f"Find a {KINDS[kind].family}. {one.asks.format('...')}"
            add(f"{one.name}-{kind}", "execution", asks, build=partial(ask_act, one=one, kind=kind))
    return found
