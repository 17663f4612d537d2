"""Faults planted in lived universes: each kind contradicts the ledger of facts, or another record, in one place."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import replace as changed
from random import Random
from typing import Any

from msgspec.structs import replace

from wanderlust_life.lived.facts_ledger import ATTRIBUTE_TYPES, LedgerFact
from wanderlust_life.lived.lived_universe import LivedUniverse
from wanderlust_life.universes.generate import LifeApps
from wanderlust_life.universes.ledger import DAY_SECONDS, HOUR_SECONDS, calendar_event
from wanderlust_life.universes.text_templates import format_day, format_price
from wanderlust_worlds.apps import Entry

Plant = Callable[[LivedUniverse, LifeApps, Random], None]
FAULTS: dict[str, Plant] = {}


def fault(plant: Plant) -> Plant:
    """Register a kind of fault by the name of its function."""
    FAULTS[plant.__name__.replace("_", " ")] = plant
    return plant


def with_fault(universe: LivedUniverse, kind: str, seed: int) -> LivedUniverse:
    """A copy of the universe with one fault of a kind. Raises IndexError where nothing could be wrong so."""
    life = universe.life.with_own_tables()
    FAULTS[kind](universe, life, Random(f"{kind}/{seed}"))
    return changed(universe, life=life)


def some_fact(universe: LivedUniverse, rng: Random, *, types: tuple[str, ...], app: str) -> tuple[LedgerFact, str]:
    """A fact of a type and a record of an app that states it."""
    return rng.choice(
        [
            (fact, name)
            for fact in universe.ledger.facts
            for name in fact.records
            if ATTRIBUTE_TYPES[fact.attribute] in types and name.startswith(f"{app}/")
            if fact.attribute not in ("said", "status")
        ]
    )


def set_field(table: Any, key: str, **fields: Any) -> None:
    """Change fields of a row."""
    table[key] = replace(table[key], **fields)


def mail_folder(life: LifeApps, key: str) -> Any:
    """The folder of a mail."""
    return life.mail.inbox if key in life.mail.inbox else life.mail.sent


def edit_text(life: LifeApps, record: str, edit: Callable[[str], str]) -> None:
    """Change the text of a mail or a message."""
    app, *ids = record.split("/")
    if app == "Emails":
        folder = mail_folder(life, ids[0])
        set_field(folder, ids[0], content=edit(folder[ids[0]].content), subject=edit(folder[ids[0]].subject))
    else:
        edit_message(life, record, lambda one: replace(one, content=edit(one.content)))


def edit_message(life: LifeApps, record: str, edit: Callable[[Any], Any]) -> None:
    """Change a message in its place."""
    app, talk, message = record.split("/")
    talks = (life.chats if app == "Chats" else life.texts).conversations
    messages = tuple(edit(one) if one.message_id == message else one for one in talks[talk].messages)
    set_field(talks, talk, messages=messages, last_updated=messages[-1].timestamp)


def wording(universe: LivedUniverse, fact: LedgerFact) -> str:
    """A fact's value as texts write it."""
    if ATTRIBUTE_TYPES[fact.attribute] == "person":
        return universe.people[str(fact.value)].name
    if isinstance(fact.value, str):
        return fact.value
    return format_day(fact.value) if ATTRIBUTE_TYPES[fact.attribute] == "day" else format_price(fact.value)


def another(universe: LivedUniverse, rng: Random, fact: LedgerFact) -> str:
    """Another value of the same type, in words."""
    kind = ATTRIBUTE_TYPES[fact.attribute]
    if kind == "day" and isinstance(fact.value, float):
        return format_day(fact.value + rng.choice((-2, -1, 1, 2, 7)) * DAY_SECONDS)
    if kind == "amount" and isinstance(fact.value, float):
        return format_price(fact.value + rng.choice((-0.5, 1, 10)))
    others = [one for one in universe.ledger.facts if one.attribute == fact.attribute and one.value != fact.value]
    return wording(universe, rng.choice(others))


def another_value_in(universe: LivedUniverse, life: LifeApps, rng: Random, **where: Any) -> None:
    """Write another value of a fact into one record that states it."""
    fact, record = some_fact(universe, rng, **where)
    right, wrong = re.compile(re.escape(wording(universe, fact)), re.IGNORECASE), another(universe, rng, fact)
    edit_text(life, record, lambda text: right.sub(wrong, text))


@fault
def another_day_in_a_mail(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    another_value_in(universe, life, rng, types=("day",), app="Emails")


@fault
def another_amount_in_a_mail(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    another_value_in(universe, life, rng, types=("amount",), app="Emails")


@fault
def another_place_in_a_chat(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    another_value_in(universe, life, rng, types=("place",), app="Chats")


@fault
def another_day_in_a_chat(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    another_value_in(universe, life, rng, types=("day",), app="Chats")


@fault
def another_thing_in_a_message(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    another_value_in(universe, life, rng, types=("thing", "text"), app=rng.choice(("Chats", "Messages")))


@fault
def a_meal_proposed_by_another_person(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    fact = rng.choice([one for one in universe.ledger.facts if one.attribute in ("proposer", "borrower", "adviser")])
    app, talk, _ = fact.records[0].split("/")
    talks = (life.chats if app == "Chats" else life.texts).conversations[talk]
    sender = {f"u{fact.value}", universe.people[str(fact.value)].phone}
    other = rng.choice([one for one in talks.participant_ids if one not in sender])
    edit_message(life, fact.records[0], lambda one: replace(one, sender_id=other))


@fault
def an_entry_on_another_day(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    key = rng.choice([*life.calendar.events])
    one, shift = life.calendar.events[key], rng.choice((-1, 1, 7)) * DAY_SECONDS
    set_field(
        life.calendar.events, key, start_datetime=one.start_datetime + shift, end_datetime=one.end_datetime + shift
    )


@fault
def an_entry_at_another_time(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    key = rng.choice([*life.calendar.events])
    one = life.calendar.events[key]
    set_field(
        life.calendar.events,
        key,
        start_datetime=one.start_datetime - HOUR_SECONDS,
        end_datetime=one.end_datetime - HOUR_SECONDS,
    )


@fault
def an_entry_at_another_place(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    key = rng.choice([key for key, one in life.calendar.events.rows().items() if one.location])
    set_field(life.calendar.events, key, location="The Wrong Door")


@fault
def an_entry_with_other_people(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    key = rng.choice(
        [key for key, one in life.calendar.events.rows().items() if one.tag in ("meal", "meeting", "party")]
    )
    others = [
        one for one in universe.people.values() if one.last and one.name not in life.calendar.events[key].attendees
    ]
    set_field(life.calendar.events, key, attendees=(rng.choice(others).name,))


@fault
def two_entries_at_one_time(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    one = rng.choice([*life.calendar.events.values()])
    made = calendar_event(
        "another", "Gym", one.start_datetime + 60, end=one.end_datetime + 60, place="", who=(), tag="private"
    )
    life.calendar.events["another"] = made


@fault
def a_meal_that_was_called_off_in_the_calendar(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    one = rng.choice([one for one in universe.ledger.of_kind("meal") if one.values("canceller")])
    day, time, place = (one.value(name) for name in ("day", "time", "place"))
    assert isinstance(day, float)
    assert isinstance(time, float)
    when = day + time
    life.calendar.events["again"] = calendar_event(
        "again", "Meal", when, end=when + 60, place=str(place), who=(), tag="meal"
    )


@fault
def a_message_from_the_future(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    talk = rng.choice([*life.chats.conversations])
    last = life.chats.conversations[talk].messages[-1].message_id
    edit_message(life, f"Chats/{talk}/{last}", lambda one: replace(one, timestamp=universe.start + 60))


@fault
def an_answer_before_its_question(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    turn = rng.choice([one for one in universe.ledger.turns if one.answer.startswith("Chats/")])
    edit_message(life, turn.answer, lambda one: replace(one, timestamp=one.timestamp - DAY_SECONDS))


@fault
def an_answer_to_another_question(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    turns = [one for one in universe.ledger.turns if one.answer.startswith("Chats/")]
    turn, other = rng.choice(turns), rng.choice(turns)
    while other.about == turn.about:
        other = rng.choice(turns)
    app, talk, message = other.answer.split("/")
    text = next(m.content for m in life.chats.conversations[talk].messages if m.message_id == message)
    assert app == "Chats"
    if turn.about.casefold() in text.casefold():
        text = "Yes."
    edit_message(life, turn.answer, lambda one: replace(one, content=text))


@fault
def an_answer_to_a_mail_that_is_gone(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    parents = [one.parent_id for one in (*life.mail.inbox.values(), *life.mail.sent.values()) if one.parent_id]
    key = rng.choice(parents)
    del mail_folder(life, key)[key]


@fault
def a_ride_of_another_price(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    key = rng.choice([*life.cabs.ride_history])
    set_field(life.cabs.ride_history, key, price=(life.cabs.ride_history[key].price or 0) + 1)


@fault
def a_ride_to_another_place(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    key = rng.choice([*life.cabs.ride_history])
    set_field(life.cabs.ride_history, key, end_location="The Wrong Door")


@fault
def an_order_of_another_total(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    key = rng.choice([*life.shop.orders])
    set_field(life.shop.orders, key, order_total=life.shop.orders[key].order_total + 0.5)


@fault
def an_order_that_nobody_made(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    key = rng.choice([key for key, one in life.mail.inbox.rows().items() if "W-" in one.content])
    edit_text(life, f"Emails/{key}", lambda text: re.sub(r"W-[0-9a-f]{7}", "W-0000000", text))


@fault
def a_host_of_another_age(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    key = str(rng.choice(universe.ledger.of_kind("party")).value("host"))
    set_field(life.contacts.contacts, key, age=(life.contacts.contacts[key].age or 0) + rng.choice((-1, 1, 5)))


@fault
def a_contact_in_another_town(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    key = rng.choice([key for key, one in life.contacts.contacts.rows().items() if one.last_name and not one.is_user])
    set_field(life.contacts.contacts, key, city_living="Elsewhere")


@fault
def a_file_of_another_amount(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    bill = rng.choice(universe.ledger.of_kind("bill"))
    path, amount = bill.records["file"].partition("/")[2], bill.value("amount")
    assert isinstance(amount, float)
    text = (life.files.entries[path].content or b"").decode().replace(format_price(amount), format_price(amount + 9))
    life.files.entries[path] = Entry(type="file", content=text.encode(), size=len(text.encode()))


@fault
def an_attachment_of_another_text(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    key = rng.choice([key for key, one in life.mail.inbox.rows().items() if one.attachments])
    files: Mapping[str, str] = {name: base64.b64encode(b"x").decode() for name in life.mail.inbox[key].attachments}
    set_field(life.mail.inbox, key, attachments=files)


@fault
def somebody_who_is_not_known(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    services = [one for one in universe.people.values() if one.tie == "neighbour"]
    stranger = rng.choice(services).name
    talk = rng.choice([key for key, one in life.chats.conversations.rows().items() if len(one.participant_ids) == 2])
    last = life.chats.conversations[talk].messages[-1].message_id
    edit_message(life, f"Chats/{talk}/{last}", lambda one: replace(one, content=f"{one.content} {stranger} agrees."))


@fault
def a_date_of_another_weekday(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    pattern = re.compile(r"\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (?=\d)")
    key = rng.choice([key for key, one in life.mail.inbox.rows().items() if pattern.search(one.content)])
    text = life.mail.inbox[key].content
    weekday = pattern.search(text)
    assert weekday is not None
    wrong = "Sunday, " if weekday[0] != "Sunday, " else "Monday, "
    set_field(life.mail.inbox, key, content=pattern.sub(wrong, text, count=1))


@fault
def a_sender_whom_nobody_knows(universe: LivedUniverse, life: LifeApps, rng: Random) -> None:
    key = rng.choice([*life.mail.inbox])
    set_field(life.mail.inbox, key, sender="someone@nowhere.example")
