"""The records of a life's apps by the names that facts give them, as somebody reads them who knows nothing else."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from wanderlust_life.lived.lived_universe import LivedUniverse
from wanderlust_life.universes.ledger import DAY_SECONDS
from wanderlust_life.universes.text_templates import format_day, format_price, format_time_of_day
from wanderlust_worlds.apps import CalendarEvent, Email, Messages


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeRecord:
    """A mail, a message, an entry, an order, a ride, a contact, a flat or a file."""

    name: str
    """As facts name it: `Emails/id`, `Chats/conversation/message`, `Calendar/id`, ..."""
    text: str
    """What somebody reads in it."""
    at: float | None = None
    """When it was written; None for what has no such time."""
    sender: str = ""
    """The id of the person who wrote it."""
    people: frozenset[str] = frozenset()
    """Ids of all people whom it reaches or names in a field."""
    parent: str = ""
    """For a mail, the record that it answers."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Names and texts of attachments."""

    @property
    def app(self) -> str:
        """The app that has it."""
        return self.name.partition("/")[0]


def records_of(universe: LivedUniverse) -> dict[str, LifeRecord]:
    """All records of a universe by their names."""
    found = {one.name: one for kind in (_mails, _messages, _entries, _things, _contacts) for one in kind(universe)}
    files = universe.life.files
    for path, entry in files.entries.rows().items():
        if entry.type == "file":
            name = f"Files/{path}"
            found[name] = LifeRecord(name=name, text=(entry.content or b"").decode())
    return found


def _mails(universe: LivedUniverse) -> Iterator[LifeRecord]:
    mail = universe.life.mail
    owners = {one.email: one.id for one in universe.people.values()}
    for one in (*mail.inbox.values(), *mail.sent.values()):
        yield LifeRecord(
            name=f"Emails/{one.email_id}",
            text=f"{one.subject}\n{one.content}",
            at=one.timestamp,
            sender=owners.get(one.sender, one.sender),
            people=frozenset(owners.get(to, to) for to in (*one.recipients, *one.cc)),
            parent=f"Emails/{one.parent_id}" if one.parent_id else "",
            files=_attachments(one),
        )


def _attachments(mail: Email) -> Mapping[str, str]:
    return {name: base64.b64decode(content).decode() for name, content in mail.attachments.items()}


def _messages(universe: LivedUniverse) -> Iterator[LifeRecord]:
    for app in (universe.life.chats, universe.life.texts):
        ids = _people_of(universe, app)
        for talk in app.conversations.values():
            people = frozenset(ids.get(one, one) for one in talk.participant_ids)
            for one in talk.messages:
                yield LifeRecord(
                    name=f"{app.name}/{talk.conversation_id}/{one.message_id}",
                    text=one.content,
                    at=one.timestamp,
                    sender=ids.get(one.sender_id, one.sender_id),
                    people=people,
                )


def _people_of(universe: LivedUniverse, app: Messages) -> Mapping[str, str]:
    if app.mode == "PHONE_NUMBER":
        return {one.phone: one.id for one in universe.people.values()}
    return {app.current_user_id: universe.user.id, **{f"u{one.id}": one.id for one in universe.people.values()}}


def _entries(universe: LivedUniverse) -> Iterator[LifeRecord]:
    names = {one.name: one.id for one in universe.people.values()}
    for one in universe.life.calendar.events.values():
        yield LifeRecord(
            name=f"Calendar/{one.event_id}",
            text=entry_text(one),
            people=frozenset(names.get(who, who) for who in one.attendees),
        )


def entry_text(one: CalendarEvent) -> str:
    """An entry in the calendar as its fields say it."""
    moment = f"{format_day(one.start_datetime)} {format_time_of_day(one.start_datetime)}"
    return f"{one.title}\n{moment}\n{one.location}\n{', '.join(one.attendees)}"


def _things(universe: LivedUniverse) -> Iterator[LifeRecord]:
    life = universe.life
    for ride in life.cabs.ride_history.values():
        at = ride.time_stamp or 0.0
        text = f"{ride.end_location}\n{format_day(at)}\n{format_price(ride.price or 0)}\n{ride.service_type}"
        yield LifeRecord(name=f"Cabs/{ride.ride_id}", text=text, at=at)
    for order in life.shop.orders.values():
        at = float(order.order_date)
        text = f"{order.order_id}\n{format_day(at)}\n{format_price(order.order_total)}\n{order.order_status}"
        yield LifeRecord(name=f"Shopping/{order.order_id}", text=text, at=at)
    for flat in life.flats.apartments.values():
        text = f"{flat.name}\n{flat.location}\n{format_price(flat.price)}"
        yield LifeRecord(name=f"RentAFlat/{flat.apartment_id}", text=text)


def _contacts(universe: LivedUniverse) -> Iterator[LifeRecord]:
    for one in universe.life.contacts.contacts.values():
        street = (one.address or "").removesuffix(f", {one.city_living}")
        tie = (one.description or "").partition(" at ")[0].lower()
        text = "\n".join(map(str, (tie, one.city_living, street, one.job, one.phone, one.age)))
        yield LifeRecord(name=f"Contacts/{one.contact_id}", text=text, people=frozenset({one.contact_id}))


def day_of(at: float) -> float:
    """The first second of a moment's day."""
    return at - at % DAY_SECONDS
