"""Whether a life agrees with itself: the ledger of facts with the records of its apps, and these with each other."""

from __future__ import annotations

import re
from calendar import month_name
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise

from wanderlust_life.lived.chronicle import written_value
from wanderlust_life.lived.facts_ledger import ATTRIBUTE_TYPES, Happening, LedgerFact
from wanderlust_life.lived.lived_universe import LivedUniverse
from wanderlust_life.lived.records import LifeRecord, day_of, records_of
from wanderlust_life.universes.ledger import DAY_SECONDS
from wanderlust_life.universes.text_templates import format_price
from wanderlust_worlds.apps import check_app

MANY_VALUED = frozenset({"present", "attendee"})
"""Attributes of which a happening may have several values."""
PLANNED = frozenset({"meal", "appointment", "meeting", "party", "viewing"})
"""Kinds whose mails and messages of a day come before it."""
PRICES_PER_KM = {"Default": 1.0, "Premium": 2.0, "Van": 1.5}
MAX_DATE_SECONDS = 230 * DAY_SECONDS
"""Most by which a date lies before or after a text that names it without its year."""
MONTHS = tuple(month_name[1:])
NUMBER = re.compile(r"\b[WRBT]-[0-9a-f]{7}\b")
DATED = re.compile(r"\b((?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day), (\d{1,2}) ([A-Z][a-z]+)\b")
REMAINS = re.compile(r"[{}<>|\[\]~]|//|\.\.|\?\.|!\.")
"""What a sentence that went wrong leaves behind."""


def find_inconsistencies(universe: LivedUniverse) -> list[str]:
    """What does not agree in a lived universe, one line each; none when all is well."""
    return list(_Check(universe).faults())


def _date(year: int, month: str, day: int) -> datetime | None:
    try:
        return datetime(year, MONTHS.index(month) + 1, day, tzinfo=UTC)
    except ValueError:  # no such month, or no such day in that year
        return None


class _Check:
    def __init__(self, universe: LivedUniverse):
        self.universe, self.ledger, self.people = universe, universe.ledger, universe.people
        self.records = records_of(universe)

    def faults(self) -> Iterator[str]:
        for app in self.universe.apps.values():
            yield from check_app(app)
        yield from self._contacts()
        for happening in self.ledger.happenings.values():
            yield from (f"{happening.kind} {happening.id}: {line}" for line in self._happening(happening))
        yield from self._turns()
        for record in self.records.values():
            yield from (f"{record.name}: {line}" for line in self._record(record))
        yield from self._calendar()
        yield from self._conversations()
        yield from self._sums()

    # Facts and their records

    def _happening(self, happening: Happening) -> Iterator[str]:
        times = Counter(fact.attribute for fact in happening.facts if fact.attribute not in MANY_VALUED)
        yield from (f"it has {count} values of {name}" for name, count in times.items() if count > 1)
        for what, name in happening.records.items():
            if name not in self.records:
                yield f"its {what} {name} is not there"
        for fact in happening.facts:
            for name in fact.records:
                record = self.records.get(name)
                if record is None:
                    yield f"{name}, which states its {fact.attribute}, is not there"
                elif not self._states(record, fact):
                    yield f"{name} does not state its {fact.attribute}: {self._written(fact)}"
        yield from self._in_order(happening)
        if happening.values("canceller") and (happening.records.get("entry") or self._entered(happening)):
            yield "it was called off, and is in the calendar"
        if happening.kind == "party":
            yield from self._age(happening)

    def _written(self, fact: LedgerFact) -> str:
        if ATTRIBUTE_TYPES[fact.attribute] == "person" and fact.value not in self.people:
            return f"{fact.value}, whom nobody knows"
        return written_value(fact.attribute, fact.value, self.people)

    def _states(self, record: LifeRecord, fact: LedgerFact) -> bool:
        """Whether a record says so: by its sender, by a field, by its time or by its text."""
        value, kind = fact.value, ATTRIBUTE_TYPES[fact.attribute]
        if fact.attribute == "status" and record.app != "Shopping":
            return record.at is not None  # that a message asks for a thing, or brings it back, is its status
        if fact.attribute == "said":
            return record.at is not None and day_of(record.at) == value
        if kind == "person":
            if record.app in ("Chats", "Messages", "Emails") and self._is_by(fact):
                return record.sender == value
            return value in record.people or self._written(fact) in record.text
        if record.app == "Contacts":
            return self._written(fact) in record.text.split("\n")
        return self._written(fact).casefold() in record.text.casefold()

    def _is_by(self, fact: LedgerFact) -> bool:
        """Whether the person is whoever wrote the record."""
        return fact.attribute not in ("receiver", "keeper", "provider", "taker", "shop", "companion") or (
            self.ledger.happenings[fact.about].kind == "appointment"
        )

    def _in_order(self, happening: Happening) -> Iterator[str]:
        """Plans come before what they are about, bills after it; who borrows says so before it is due."""
        day = happening.value("day")
        for fact, value in ((fact, fact.value) for fact in happening.facts):
            for record in map(self.records.get, fact.records):
                if record is None or record.at is None or not isinstance(value, float):
                    continue
                if fact.attribute == "day" and happening.kind in PLANNED and record.at > value + DAY_SECONDS:
                    yield f"{record.name} plans it after its day"
                if fact.attribute == "due" and happening.kind == "loan" and record.at > value:
                    yield f"{record.name} says after the day when it is due"
                if happening.kind == "bill" and fact.attribute == "day" and record.at < value:
                    yield f"{record.name} comes before the work"
        if day is not None and happening.value("first_day") == day:
            yield "it was moved to the day on which it was"

    def _entered(self, happening: Happening) -> bool:
        """Whether an entry in the calendar that belongs to nothing else has its day, time and place."""
        facts = [happening.value(name) for name in ("day", "time", "place")]
        words = [written_value(n, v, self.people) for n, v in zip(("day", "time", "place"), facts, strict=True) if v]
        return len(words) == 3 and any(
            record.app == "Calendar" and record.name not in self.entries and all(word in record.text for word in words)
            for record in self.records.values()
        )

    @cached_property
    def entries(self) -> set[str]:
        """The entries in the calendar that belong to a happening."""
        return {one.records["entry"] for one in self.ledger.happenings.values() if "entry" in one.records}

    def _age(self, happening: Happening) -> Iterator[str]:
        host, age, day, time = (happening.value(name) for name in ("host", "age", "day", "time"))
        contact = self.universe.life.contacts.contacts.get(str(host))
        if contact is None or not isinstance(day, float) or not isinstance(time, float) or contact.age is None:
            yield "its host is no contact"
        elif age != contact.age + (day + time > self.universe.start):
            yield f"its host turns {age:g} and is {contact.age} in the contacts"

    # Dialogues

    def _turns(self) -> Iterator[str]:
        for turn in self.ledger.turns:
            asked, answer = self.records.get(turn.question), self.records.get(turn.answer)
            if asked is None or answer is None or asked.at is None or answer.at is None:
                yield f"{turn.question}: the question or its answer is not there"
            elif answer.at < asked.at or answer.sender == asked.sender:
                yield f"{turn.answer} answers {turn.question} before it, or by the same person"
            elif not all(turn.about.casefold() in one.text.casefold() for one in (asked, answer)):
                yield f"{turn.answer} and {turn.question} do not both name {turn.about!r}"
            elif answer.parent not in (asked.parent, asked.name):
                yield f"{turn.answer} is not in the thread of {turn.question}"

    # Records among themselves

    def _record(self, record: LifeRecord) -> Iterator[str]:
        if record.at is not None and record.at >= self.universe.start:
            yield "it comes from the future"
        if record.app not in ("Emails", "Chats", "Messages"):
            return
        everybody = {record.sender, *record.people}
        yield from (f"{who} is nobody's address or number" for who in sorted(everybody - self.people.keys()))
        if remains := REMAINS.search(record.text.replace("-------- ", "")):
            yield f"it has {remains[0]!r} in it"
        yield from self._names(record)
        yield from self._weekdays(record)
        for number in NUMBER.findall(record.text):
            if number not in self.numbers:
                yield f"it names {number}, which does not exist"
        for name, text in record.files.items():
            if self.file_texts.get(name) != text:
                yield f"its attachment {name} is no file, or another one"
        if record.parent:
            yield from self._parent(record)

    @cached_property
    def file_texts(self) -> Mapping[str, str]:
        return {name.rpartition("/")[2]: one.text for name, one in self.records.items() if one.app == "Files"}

    @cached_property
    def numbers(self) -> Mapping[object, object]:
        return {fact.value: fact for fact in self.ledger.facts if fact.attribute == "number"}

    def _parent(self, record: LifeRecord) -> Iterator[str]:
        parent = self.records.get(record.parent)
        if parent is None or parent.at is None or record.at is None or parent.at >= record.at:
            yield "it answers a mail that is not there, or comes before it"
        elif parent.text.partition("\n")[0].removeprefix("Re: ") not in record.text.partition("\n")[0]:
            yield "it answers a mail of another subject"
        elif not {record.sender} <= {parent.sender, *parent.people}:
            yield "its sender never got the mail that it answers"

    def _names(self, record: LifeRecord) -> Iterator[str]:
        """Whom a text names is known to who wrote it, and to everybody who reads it privately."""
        sender = self.people.get(record.sender)
        if sender is None or not sender.last:
            return
        private = {record.sender, *record.people} - {self.universe.user.id}
        for name, person in self.names.items():
            if name in record.text and person not in private:
                for one in sorted(private):
                    if (one, person) not in self.ledger.knows and self.people[one].last:
                        yield f"{self.people[one].name} does not know {name}, who is named"

    @cached_property
    def names(self) -> Mapping[str, str]:
        return {one.name: one.id for one in self.people.values() if one.last and one is not self.universe.user}

    def _weekdays(self, record: LifeRecord) -> Iterator[str]:
        """A date that is written with its weekday is one of the months around its record's."""
        for weekday, day, month in DATED.findall(record.text):
            year = datetime.fromtimestamp(record.at or self.universe.start, tz=UTC).year
            days = (_date(year + more, month, int(day)) for more in (-1, 0, 1))
            near = (one for one in days if one and abs(one.timestamp() - (record.at or 0)) < MAX_DATE_SECONDS)
            if not any(f"{one:%A}" == weekday for one in near):
                yield f"{weekday}, {day} {month} is no such day"

    def _contacts(self) -> Iterator[str]:
        contacts = [*self.universe.life.contacts.contacts.values()]
        for what in ("email", "phone", "contact_id"):
            times = Counter(getattr(one, what) for one in contacts)
            yield from (f"the {what} {value} is there {count} times" for value, count in times.items() if count > 1)
        yield from (
            f"{person.name} is no contact"
            for person in self.people.values()
            if person.id not in self.universe.life.contacts.contacts
        )

    def _calendar(self) -> Iterator[str]:
        events = sorted(self.universe.life.calendar.events.values(), key=lambda one: one.start_datetime)
        for one in events:
            yield from (f"{one.title!r}: {who} is no contact" for who in one.attendees if who not in self.names_of_all)
        for one, after in pairwise(events):
            if one.end_datetime > after.start_datetime:
                yield f"{one.title!r} and {after.title!r} are at the same time"

    @cached_property
    def names_of_all(self) -> set[str]:
        return {one.name for one in self.people.values()}

    def _conversations(self) -> Iterator[str]:
        for app in (self.universe.life.chats, self.universe.life.texts):
            for talk in app.conversations.values():
                times = [one.timestamp for one in talk.messages]
                if times != sorted(times) or times[-1] != talk.last_updated:
                    yield f"the conversation {talk.title!r} in {app.name} is not in order"
                for one in talk.messages:
                    if one.sender_id not in talk.participant_ids:
                        yield f"{one.sender_id} speaks in {talk.title!r} without being in it"

    def _sums(self) -> Iterator[str]:
        for order in self.universe.life.shop.orders.values():
            total = sum(line.price * line.quantity for line in order.order_items.values())
            if abs(total - order.order_total) > 0.005:
                yield f"the order {order.order_id} costs {format_price(order.order_total)}, and its parts do not"
        for ride in self.universe.life.cabs.ride_history.values():
            price = PRICES_PER_KM[ride.service_type or "Default"] * (ride.distance_km or 0)
            if abs(price - (ride.price or 0)) > 0.005:
                yield f"the ride to {ride.end_location} costs {ride.price}, and should cost {price:g}"
