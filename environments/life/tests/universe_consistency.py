"""Does a universe agree with itself? Read from its apps, as somebody who does not know how it was made would."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypeVar

from wanderlust_life.universes.generate import Universe
from wanderlust_life.universes.ledger import Storyline
from wanderlust_life.universes.text_templates import format_day, format_price, format_time_of_day
from wanderlust_worlds.apps import check_app
from wanderlust_worlds.apps.apartments import Apartments
from wanderlust_worlds.apps.cabs import Cabs
from wanderlust_worlds.apps.calendar import Calendar
from wanderlust_worlds.apps.contacts import Contacts
from wanderlust_worlds.apps.files import Files
from wanderlust_worlds.apps.mail import Email, Mail
from wanderlust_worlds.apps.messages import Messages
from wanderlust_worlds.apps.shopping import Shopping
from wanderlust_worlds.engine.app import App

A = TypeVar("A", bound=App)
ADDRESS_PATTERN = re.compile(r"[\w.-]+@[\w-]+\.example")
ORDER_NUMBER_PATTERN = re.compile(r"\b[TWR]-[0-9a-f]{7,}\b")
TEMPLATE_REMAINS = re.compile(r"[{}<>|\[\]~]|\.\.|\?\.|!\.")
"""What a sentence that went wrong leaves behind."""


def check_universe(universe: Universe) -> list[str]:
    """What does not agree, one line each; none when all is well."""
    return list(_faults(universe))


def _faults(universe: Universe) -> Iterator[str]:
    for app in universe.apps.values():
        yield from check_app(app)
    yield from _people(universe)
    yield from _mails(universe)
    yield from _talks(universe)
    yield from _dates(universe)
    yield from _things(universe)
    yield from _check_expenses(universe)
    for matter in universe.storylines:
        yield from (
            f"{matter.kind} of {format_day(matter.when)}: {line}" for line in _check_storyline(universe, matter)
        )


def _app(universe: Universe, kind: type[A], name: str) -> A:
    app = universe.apps[name]
    assert isinstance(app, kind)
    return app


def _people(universe: Universe) -> Iterator[str]:
    contacts = [*_app(universe, Contacts, "Contacts").contacts.values()]
    for what in ("email", "phone", "contact_id"):
        yield from _twice(f"the {what}", [getattr(one, what) for one in contacts])
    yield from _twice("the name", [f"{one.first_name} {one.last_name}" for one in contacts])
    if [one.contact_id for one in contacts if one.is_user] != [universe.user.id]:
        yield "not exactly one contact is the user"


def _twice(what: str, values: Iterable[object]) -> Iterator[str]:
    values_so_far = set()
    for value in values:
        if value in values_so_far:
            yield f"{what} {value} is there twice"
        values_so_far.add(value)


def _mails(universe: Universe) -> Iterator[str]:
    mail = _app(universe, Mail, "Emails")
    known_addresses = {one.email for one in _app(universe, Contacts, "Contacts").contacts.values()}
    both = {**mail.inbox.rows(), **mail.sent.rows()}
    numbers = {one.number for one in universe.storylines if one.number}
    for one in both.values():
        where = f"the mail {one.subject!r}"
        addresses = {one.sender, *one.recipients, *ADDRESS_PATTERN.findall(one.content)}
        yield from (f"{where} names {address}, whom nobody knows" for address in sorted(addresses - known_addresses))
        yield from (
            f"{where} names {n}, which does not exist"
            for n in ORDER_NUMBER_PATTERN.findall(one.content)
            if n not in numbers
        )
        if universe.user.email not in (one.sender, *one.recipients):
            yield f"{where} has nothing to do with the user"
        if one.timestamp >= universe.start:
            yield f"{where} comes from the future"
        if one.parent_id and not _answers(one, both.get(one.parent_id)):
            yield f"{where} answers a mail that is not there, or comes before it"
        if remains := TEMPLATE_REMAINS.search(one.content):
            yield f"{where} has {remains[0]!r} in it"


def _answers(answer: Email, question: Email | None) -> bool:
    return (
        question is not None
        and question.timestamp < answer.timestamp
        and answer.subject.endswith(question.subject[-8:])
    )


def _talks(universe: Universe) -> Iterator[str]:
    for name in ("Chats", "Messages"):
        app = _app(universe, Messages, name)
        for talk in app.conversations.values():
            where = f"the conversation {talk.title!r} in {name}"
            strange = set(talk.participant_ids) - {*app.names, app.current_user_id}
            yield from (f"{where} has {one} in it, whom nobody knows" for one in sorted(strange))
            times = [message.timestamp for message in talk.messages]
            if times != sorted(times) or times[-1] >= universe.start or times[-1] != talk.last_updated:
                yield f"{where} is not in order, or comes from the future"
            for message in talk.messages:
                if message.sender_id not in talk.participant_ids:
                    yield f"{where}: {message.sender_id} speaks there without being in it"
                if remains := TEMPLATE_REMAINS.search(message.content):
                    yield f"{where} has {remains[0]!r} in it: {message.content}"


def _dates(universe: Universe) -> Iterator[str]:
    names = {one.name for one in universe.people.values()}
    events = sorted(_app(universe, Calendar, "Calendar").events.values(), key=lambda one: one.start_datetime)
    for one in events:
        yield from (f"{one.title!r}: {who} is no contact" for who in one.attendees if who not in names)
    for one, after in pairwise(events):
        if one.end_datetime > after.start_datetime:
            yield f"{one.title!r} and {after.title!r} are at the same time, {format_day(after.start_datetime)}"


def _things(universe: Universe) -> Iterator[str]:
    shop = _app(universe, Shopping, "Shopping")
    items = {name: item for product in shop.products.values() for name, item in product.variants.items()}
    for order in shop.orders.values():
        total = sum(line.price * line.quantity for line in order.order_items.values())
        if abs(total - order.order_total) > 0.005:
            yield f"the order {order.order_id} costs {order.order_total}, and its parts {total}"
        yield from (
            f"the order {order.order_id} has {i}, which is not sold" for i in order.order_items if i not in items
        )
    yield from (
        f"there is a discount for {item}, which is not sold" for item in shop.discount_codes if item not in items
    )
    for ride in _app(universe, Cabs, "Cabs").ride_history.values():
        if (ride.time_stamp or 0) >= universe.start:
            yield f"the ride to {ride.end_location} comes from the future"


def _check_expenses(universe: Universe) -> Iterator[str]:
    files = _app(universe, Files, "Files")
    rows = [*csv.DictReader(files.read_bytes("Documents/expenses.csv").decode().splitlines())]
    numbers = {one.number: one.amount for one in universe.storylines if one.number}
    yield from (
        f"the table of expenses has {row['number']} for {row['amount']}"
        for row in rows
        if abs(numbers.get(row["number"], -1) - float(row["amount"])) > 0.005
    )


def _check_storyline(universe: Universe, matter: Storyline) -> Iterator[str]:
    """Whether the apps say of a matter what it is."""
    mail = _app(universe, Mail, "Emails")
    texts = [both[name].content for name in matter.mails for both in (mail.inbox, mail.sent) if name in both]
    if len(texts) != len(matter.mails):
        yield "one of its mails is not there"
    yield from (f"{who} is no contact" for who in matter.who if who not in universe.people)
    wanted = [format_price(matter.amount)] if matter.amount else []
    if matter.kind in ("meeting", "declined", "appointment", "viewing"):
        wanted += [format_day(matter.when), format_time_of_day(matter.when)]
    yield from (f"its mail does not say {words}" for words in wanted if texts and words not in texts[0])
    if matter.event:
        yield from _check_dates_of(universe, matter)
    yield from _check_traces_of(universe, matter)


def _check_dates_of(universe: Universe, matter: Storyline) -> Iterator[str]:
    event = _app(universe, Calendar, "Calendar").events.get(matter.event)
    if event is None or event.start_datetime != matter.when:
        yield "the calendar has it at another time, or not at all"
    elif [universe.people[who].name for who in matter.who] != [*event.attendees]:
        yield "the calendar has other people"


def _check_traces_of(universe: Universe, matter: Storyline) -> Iterator[str]:
    """Flats, orders, files and chats."""
    if matter.kind == "viewing" and matter.what not in _app(universe, Apartments, "RentAFlat").apartments:
        yield "the flat is not on the market"
    if matter.kind == "order":
        order = _app(universe, Shopping, "Shopping").orders.get(matter.number)
        if order is None or order.order_total != matter.amount:
            yield "the shop knows nothing of it"
    if matter.path and matter.number.encode() not in _app(universe, Files, "Files").read_bytes(matter.path):
        yield "its file does not name it"
    if matter.talk and matter.place + matter.what:
        app = _app(universe, Messages, "Messages" if matter.kind in ("loan", "parcel") else "Chats")
        words = " ".join(one.content for one in app.conversations[matter.talk].messages)
        if (matter.place or matter.what) not in words:
            yield "nobody speaks of it"
