"""The ledger of a life while it is made: rows for the apps, with ids, times and free hours kept in order."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from random import Random

import msgspec

from wanderlust_life.universes.people import Person
from wanderlust_worlds.apps import (
    FOLDER_ENTRY,
    LONG_TIME_FORMAT,
    Apartment,
    CalendarEvent,
    CartItem,
    ChatMessage,
    Conversation,
    Email,
    Entry,
    Product,
    Ride,
    ShopOrder,
)
from wanderlust_worlds.engine.app import format_time
from wanderlust_worlds.engine.cow_dict import FrozenRecord

HOUR_SECONDS, DAY_SECONDS = 3_600.0, 86_400.0
USER_ID = "me"
"""The user's id in chats."""


def daytime(rng: Random, at: float) -> float:
    """A time at which people are up: what lies in the night is moved to the evening before."""
    hour = at % DAY_SECONDS / HOUR_SECONDS
    return at - at % DAY_SECONDS - rng.uniform(2, 14) * HOUR_SECONDS if hour < 6.5 else at


def weekday(at: float) -> int:
    """0 for Monday."""
    return int(at // DAY_SECONDS + 3) % 7


def calendar_event(
    id: str, title: str, start: float, *, end: float, place: str, who: Sequence[Person], tag: str, about: str = ""
) -> CalendarEvent:
    """An entry in the calendar."""
    return CalendarEvent(
        event_id=id,
        start_datetime=start,
        end_datetime=end,
        title=title,
        tag=tag,
        description=about or None,
        location=place,
        attendees=tuple(one.name for one in who),
        start_strftime=format_time(start, LONG_TIME_FORMAT),
        end_strftime=format_time(end, LONG_TIME_FORMAT),
    )


def add_file(entries: MutableMapping[str, Entry], path: str, text: str) -> str:
    """Add a file, and the folders that it is in."""
    parts = path.split("/")
    for depth in range(1, len(parts)):
        entries.setdefault("/".join(parts[:depth]), FOLDER_ENTRY)
    content = text.encode()
    entries[path] = Entry(type="file", content=content, size=len(content))
    return path


class Storyline(FrozenRecord):
    """An event of a life that several apps hold, as far as it has these parts."""

    kind: str
    who: tuple[str, ...] = ()
    """Ids of contacts, the one who began it first."""
    when: float = 0.0
    """The time at which it takes place."""
    place: str = ""
    what: str = ""
    amount: float = 0.0
    number: str = ""
    mails: tuple[str, ...] = ()
    talk: str = ""
    """The id of the conversation about it."""
    event: str = ""
    """The id of its entry in the calendar."""
    path: str = ""
    """The path of its file."""


class AppRows:
    """The rows of all apps. Times are seconds since 1970; rows about the past must not lie in the future."""

    def __init__(self, user: Person, start: float, *, rng: Random, identify: str):
        self.user, self.start, self.rng, self._identify = user, start, rng, identify
        self.inbox: dict[str, Email] = {}
        self.sent: dict[str, Email] = {}
        self.events: dict[str, CalendarEvent] = {}
        self.talks: dict[str, dict[str, Conversation]] = {"Chats": {}, "Messages": {}}
        self.products: dict[str, Product] = {}
        self.orders: dict[str, ShopOrder] = {}
        self.rides: dict[str, Ride] = {}
        self.flats: dict[str, Apartment] = {}
        self.entries: dict[str, Entry] = {}
        self._count = 0
        self._messages: dict[str, list[ChatMessage]] = {}
        self._talk_of: dict[tuple[str, tuple[str, ...]], str] = {}

    def new_id(self, letter: str) -> str:
        """An id that no other row has."""
        self._count += 1
        return f"{letter}{self._identify}{self._count:05d}{self.rng.randrange(16**6):06x}"

    def mail(self, sender: Person, to: Person, *, subject: str, text: str, at: float, parent: str | None = None) -> str:
        """A mail; the user's own go to SENT."""
        name = self.new_id("e")
        folder = self.sent if sender is self.user else self.inbox
        folder[name] = Email(
            email_id=name,
            sender=sender.email,
            recipients=(to.email,),
            subject=subject,
            content=text,
            parent_id=parent,
            timestamp=at,
            is_read=sender is self.user or at < self.start - DAY_SECONDS or self.rng.random() < 0.5,
        )
        return name

    def say(
        self, app: str, people: Sequence[Person], *, sender: Person, text: str, at: float, title: str | None = None
    ) -> str:
        """A message in the conversation with these people, which is begun where there is none."""
        ids = tuple(self.id_in(app, one) for one in people)
        key = (app, tuple(sorted(ids)))
        name = self._talk_of.get(key)
        if name is None:
            name = self._talk_of[key] = self.new_id("c")
            heading = title or ", ".join(sorted(one.name for one in people))
            mine = self.id_in(app, self.user)
            self.talks[app][name] = Conversation(conversation_id=name, participant_ids=(mine, *ids), title=heading)
            self._messages[name] = []
        message = ChatMessage(
            sender_id=self.id_in(app, sender), message_id=self.new_id("m"), timestamp=at, content=text
        )
        self._messages[name].append(message)
        return name

    def last_message(self, talk: str) -> str:
        """The id of the message that was said last in a conversation of these rows."""
        return self._messages[talk][-1].message_id

    def id_in(self, app: str, person: Person) -> str:
        """The id of a person in an app for messages."""
        if app == "Messages":
            return person.phone
        return USER_ID if person is self.user else f"u{person.id}"

    def event(
        self, title: str, start: float, end: float, *, place: str, who: Sequence[Person], tag: str, about: str = ""
    ) -> str:
        """An entry in the calendar."""
        made = calendar_event(self.new_id("v"), title, start, end=end, place=place, who=who, tag=tag, about=about)
        self.events[made.event_id] = made
        return made.event_id

    def free(
        self, days: tuple[int, int], hours: tuple[int, int], *, length: float = HOUR_SECONDS, weekend: bool = False
    ) -> float | None:
        """A time of the user's that is free, some days from the start; None when none was found in a few tries."""
        midnight = self.start - self.start % DAY_SECONDS
        for _ in range(20):
            day = self.rng.randint(*days)
            if not weekend and weekday(midnight + day * DAY_SECONDS) > 4:
                continue
            at = (
                midnight
                + day * DAY_SECONDS
                + self.rng.randint(*hours) * HOUR_SECONDS
                + self.rng.choice((0, 0, HOUR_SECONDS / 2))
            )
            inside = (e for e in self.events.values() if e.start_datetime < at + length and e.end_datetime > at)
            if next(inside, None) is None and not self.start - HOUR_SECONDS <= at <= self.start + 2 * HOUR_SECONDS:
                return at
        return None

    def order(self, product: Product, item: str, *, quantity: int, at: float, status: str, number: str) -> ShopOrder:
        """An order of one thing."""
        one = product.variants[item]
        line = CartItem(item_id=item, quantity=quantity, price=one.price, available=True, options=one.options)
        made = ShopOrder(
            order_id=number,
            order_status=status,
            order_date=at,
            order_total=round(quantity * one.price, 2),
            order_items={item: line},
        )
        self.orders[number] = made
        return made

    def ride(self, start: str, end: str, *, service: str, km: float, at: float) -> Ride:
        """A ride that is over."""
        price = round(km * {"Default": 1.0, "Premium": 2.0, "Van": 1.5}[service], 2)
        made = Ride(
            ride_id=self.new_id("r"),
            status="COMPLETED",
            service_type=service,
            start_location=start,
            end_location=end,
            price=price,
            duration=round(km * 1.2, 1),
            time_stamp=at,
            distance_km=km,
        )
        self.rides[str(len(self.rides))] = made
        return made

    def file(self, path: str, text: str) -> str:
        """A file, and the folders that it is in."""
        return add_file(self.entries, path, text)

    def conversations(self, app: str) -> Mapping[str, Conversation]:
        """The conversations of an app, with their messages in the order of time."""
        talks = {}
        for name, talk in self.talks[app].items():
            messages = sorted(self._messages[name], key=lambda one: one.timestamp)
            talks[name] = msgspec.structs.replace(talk, messages=tuple(messages), last_updated=messages[-1].timestamp)
        return talks
