"""The stage of a scenario: a copy of a universe's apps, functions that plant rows in them (mails, messages, dates,
orders, rides, files), and the story of what happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace as changed
from random import Random
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from wanderlust.errors import UsageError
from wanderlust_life.universes.generate import Universe
from wanderlust_life.universes.ledger import HOUR_SECONDS, USER_ID, AppRows, add_file, calendar_event
from wanderlust_life.universes.people import Person
from wanderlust_life.universes.text_templates import Split, expand_pattern, word_list
from wanderlust_worlds.apps import (
    CalendarEvent,
    CartItem,
    ChatMessage,
    Conversation,
    Email,
    Messages,
    Product,
    Ride,
    ShopOrder,
)
from wanderlust_worlds.engine.app import App, format_time
from wanderlust_worlds.engine.events import Event, PlannedCall, Timing, event_id_of
from wanderlust_worlds.engine.scenario import ScenarioBuilder
from wanderlust_worlds.verification.facts import (
    AnswerFacts,
    ClockTime,
    Day,
    Mode,
    Says,
    TextFact,
    Wordings,
    place_wordings,
)

A = TypeVar("A", bound=App)
EventReference: TypeAlias = Any
"""The value that a call in a story returned: it refers to the call's event, whatever the action returns."""
DAY = 24 * HOUR_SECONDS
NIGHT_SECONDS = 6.5 * HOUR_SECONDS


class FamilyBuilder:
    """The stage that a family's function gets. Guarantees that the universe itself is never changed."""

    def __init__(self, universe: Universe, rng: Random, *, steps: int, decoys: int):
        self.universe, self.rng, self.steps, self.decoys = universe, rng, steps, decoys
        self.user, self.now, self.duration = universe.user, universe.start, 1_200.0
        own = universe.life.with_own_tables()
        self.apps: dict[str, App] = {app.name: app for app in own}
        self.ui, self.mail, self.chats, self.texts = own.ui, own.mail, own.chats, own.texts
        self.calendar, self.contacts, self.files = own.calendar, own.contacts, own.files
        self.shop, self.flats, self.cabs, self.city = own.shop, own.flats, own.cabs, own.city
        self.story = ScenarioBuilder(tuple(self.apps.values()))
        self.facts: dict[str, dict[str, AnswerFacts]] = {}
        self.info: dict[str, Any] = {}
        """What the scenario's `info` has besides; no agent sees it."""
        self._people_used: set[str] = set()
        self._count = 0

    # What to tell of

    def some(self, *ties: str, count: int = 1) -> list[Person]:
        """Different people with one of these ties whom the story does not use yet; fewer where the universe has fewer.

        First names may be shared: use full ones.
        """
        candidates = [
            one for one in self.universe.people.values() if one.tie in ties and one.id not in self._people_used
        ]
        chosen = self.rng.sample(candidates, min(count, len(candidates)))
        self._people_used.update(one.id for one in chosen)
        return chosen

    def one(self, *ties: str) -> Person:
        """A person with one of these ties, as `some` finds them."""
        people = self.some(*ties)
        if not people:
            raise UsageError(f"there is nobody left among {', '.join(ties)} in {self.universe.name}")
        return people[0]

    def namesakes(self) -> tuple[Person, Person]:
        """A friend and a colleague who share a first name, which no other friend or colleague has."""
        people = [one for one in self.universe.people.values() if one.tie in ("friend", "colleague")]
        friend = next(one for one in people if one.tie == "friend")
        same = next(one for one in people if one.tie == "colleague" and one.first == friend.first)
        self._people_used.update((friend.id, same.id))
        return friend, same

    def word(self, key: str) -> str:
        """One of the words of a list."""
        return self.rng.choice(word_list(key))

    def firms(self, count: int) -> list[str]:
        """Names of firms that nothing else in the universe is called."""
        taken_names = {one.first for one in self.universe.people.values()} | {self.user.firm}
        names = [name for name in self.universe.names.firms if name not in taken_names]
        return self.rng.sample(names, count)

    def place(self) -> str:
        """Somewhere to meet that no matter of this universe names."""
        return self.rng.choice(self.universe.places[40:])

    def free(self, first: int, last: int, *, hours: tuple[int, int] = (9, 16), length: float = HOUR_SECONDS) -> float:
        """A time within these days from now at which the calendar is empty. Raises UsageError when none was found."""
        ledger = AppRows(self.user, self.now, rng=self.rng, identify="")
        ledger.events = self.calendar.events.rows()
        for tried in range(20):  # where the working days are full, a weekend must do
            at = ledger.free((first, last), hours, length=length, weekend=tried > 9)
            if at is not None:
                return at
        raise UsageError(f"there is no free hour between day {first} and day {last} in {self.universe.name}")

    def ago(self, first: float, last: float) -> float:
        """A time between so many days ago, when people are awake."""
        at = self.now - self.rng.uniform(first, last) * DAY - HOUR_SECONDS
        return at + NIGHT_SECONDS if at % DAY < NIGHT_SECONDS else at

    def new_id(self, letter: str) -> str:
        """An id that nothing in the universe has."""
        self._count += 1
        return f"{letter}{self.rng.randrange(16**11):011x}{self._count:03d}"

    # What happens

    def asks(self, pattern: str, **facts: str) -> str:
        """The user asks for something, at the start. `pattern` may have alternatives and slots."""
        return self.story.user(self.ui).send_message_to_agent(expand_pattern(self.rng, pattern, facts))

    def answers(self, after: EventReference, pattern: str, *, delay: float = 20, **facts: str) -> str:
        """The user says something in answer."""
        answer = expand_pattern(self.rng, pattern, facts)
        return self.story.user(self.ui, after=after, delay=delay).send_message_to_agent(answer)

    def agent(self, app: A, *, after: EventReference = None, delay: float = 0.0) -> A:
        """An app as a perfect agent would use it."""
        return self.story.agent(app, after=after, delay=delay)

    def env(self, app: A, *, after: EventReference = None, delay: float = 0.0) -> A:
        """An app as others, or chance, use it."""
        return self.story.env(app, after=after, delay=delay)

    def expects(
        self,
        event: EventReference,
        argument: str,
        *facts: TextFact,
        never: Iterable[str] = (),
        mode: Mode = "any",
        plain: bool = False,
        plain_words: Wordings = (),
    ) -> str:
        """Set the facts of an act's soft argument. Every soft argument needs facts, if only empty ones."""
        name: str = event
        told = AnswerFacts(facts=facts, never=tuple(never), mode=mode, is_plain=plain, plain_words=plain_words)
        self.facts.setdefault(event_id_of(name), {})[argument] = told
        return name

    def expects_fields(self, event: EventReference, argument: str, **fields: str) -> str:
        """Set the fields that a record must have, and no others."""
        name: str = event
        self.facts.setdefault(event_id_of(name), {})[argument] = AnswerFacts(fields=fields)
        return name

    def reports(
        self,
        after: EventReference,
        text: str,
        *facts: TextFact,
        never: Iterable[str] = (),
        quiet: float = 0.0,
        mode: Mode = "reports",
        plain: bool = True,
        plain_words: Wordings = (),
    ) -> str:
        """The agent tells the user, which ends its turn; not before `quiet` seconds have gone by.

        A report is to be plain, unless the family's answers have need of denials."""
        ui: EventReference = self.agent(self.ui, after=after, delay=quiet)
        message = ui.send_message_to_user(text)
        if quiet:
            self.timed(message, "from")
        plain = plain and mode == "reports"
        return self.expects(message, "content", *facts, never=never, mode=mode, plain=plain, plain_words=plain_words)

    def on_day(self, at: float, *also: float, needed: bool = True) -> Day:
        """The fact that a day is named; its weekday alone will do when it is the next of that name."""
        return Day(at=at, since=self.now, also=also, needed=needed)

    def at_time(self, at: float) -> ClockTime:
        """The fact that the time of an hour's beginning is named."""
        return ClockTime(at=at, end=at + HOUR_SECONDS)

    def at_place(self, name: str, *others: str) -> Says:
        """The fact that a place is named, and none of the others."""
        return Says(ways=place_wordings(name), rivals=tuple(way for one in others for way in place_wordings(one)))

    def is_who(self, who: Person, others: Iterable[Person] = (), *, aside: Wordings = ()) -> Says:
        """The fact that a person is named, and none of the others; a first name will do where nobody shares it."""
        rivals = tuple(others)
        firsts = {one.first for one in rivals}
        names = [one.name for one in rivals] + [one.first for one in rivals if one.first != who.first]
        names += [one.name for one in self.universe.people.values() if one.first == who.first and one.name != who.name]
        return Says(
            ways=(who.name,) if who.first in firsts else (who.name, who.first), rivals=tuple(names), aside=aside
        )

    def names_but(self, *people: Person) -> list[str]:
        """The full names of everybody whom the user knows but these: who is named wrongly is one of them."""
        known = {*(one.name for one in people), self.user.name}
        return [one.name for one in self.universe.people.values() if one.name not in known and " " in one.name]

    def timed(self, event: EventReference, timing: Timing) -> None:
        """Hold an act to its time from one side alone: "from" or "by"."""
        name = event_id_of(event)
        made = self.story.events
        for at, one in enumerate(made):
            if one.id == name and isinstance(one, PlannedCall):
                made[at] = changed(one, timing=timing)

    def events(self) -> Sequence[Event]:
        """All that will happen."""
        return self.story.events

    @property
    def split(self) -> Split:
        """The split of the universe."""
        return self.universe.split


def plant_mail(stage: FamilyBuilder, sender: Person, *, subject: str, text: str, at: float) -> str:
    """A mail to the user; gives its id."""
    name = stage.new_id("e")
    names = {"to": stage.user.first, "me": sender.first if sender.last else sender.name}
    stage.mail.inbox[name] = Email(
        email_id=name,
        sender=sender.email,
        recipients=(stage.user.email,),
        subject=subject,
        content=expand_pattern(stage.rng, f"<hello>~~{text}~~<bye>", names),
        timestamp=at,
        is_read=stage.rng.random() < 0.5,
    )
    return name


def plant_message(stage: FamilyBuilder, app: Messages, who: Person, *, text: str, at: float) -> str:
    """Plant a message in the sender's conversation with the user; gives the conversation's id."""
    mine, theirs = app.current_user_id, user_id_of(app, who)
    new_message = ChatMessage(sender_id=theirs, message_id=stage.new_id("m"), timestamp=at, content=text)
    talk = next((talk for talk in app.conversations.values() if set(talk.participant_ids) == {mine, theirs}), None)
    if talk is None:
        talk = Conversation(conversation_id=stage.new_id("c"), participant_ids=(mine, theirs), title=who.name)
    all_said = tuple(sorted((*talk.messages, new_message), key=lambda one: one.timestamp))
    talk = replace(talk, messages=all_said, last_updated=all_said[-1].timestamp)
    app.conversations[talk.conversation_id] = talk
    return talk.conversation_id


def user_id_of(app: Messages, who: Person) -> str:
    """The id of a person in an app for messages."""
    if app.mode == "PHONE_NUMBER":
        return who.phone
    return USER_ID if who.tie == "user" else f"u{who.id}"


def plant_event(
    stage: FamilyBuilder, title: str, at: float, *, place: str, who: Sequence[Person] = (), tag: str = "private"
) -> CalendarEvent:
    """An entry of an hour in the calendar."""
    made = calendar_event(stage.new_id("v"), title, at, end=at + HOUR_SECONDS, place=place, who=who, tag=tag)
    stage.calendar.events[made.event_id] = made
    return made


def plant_order(stage: FamilyBuilder, product: Product, item: str, *, status: str, days: float) -> ShopOrder:
    """An order of one thing, some days ago."""
    one = product.variants[item]
    made = ShopOrder(
        order_id=f"W-{stage.new_id('')[:7]}",
        order_status=status,
        order_date=format_time(stage.ago(days, days + 0.2), "%Y-%m-%dT%H:%M:%S+00:00"),
        order_total=one.price,
        order_items={item: CartItem(item_id=item, quantity=1, price=one.price, options=one.options)},
    )
    stage.shop.orders[made.order_id] = made
    return made


def plant_ride(stage: FamilyBuilder, place: str, *, price: float, days: float, status: str = "COMPLETED") -> Ride:
    """A ride of the past, from home to a place."""
    made = Ride(
        ride_id=stage.new_id("r"),
        status=status,
        service_type="Default",
        start_location=stage.user.address,
        end_location=place,
        price=price,
        duration=round(price * 1.2, 1),
        time_stamp=stage.ago(days, days + 0.5),
        distance_km=price,
    )
    stage.cabs.ride_history[str(len(stage.cabs.ride_history))] = made
    return made


def plant_file(stage: FamilyBuilder, path: str, text: str) -> str:
    """A file, and the folders that it is in."""
    return add_file(stage.files.entries, path, text)


def put_in_stock(stage: FamilyBuilder, product: str, item: str) -> None:
    """Have a variant in stock."""
    product_in_shop = stage.shop.products[product]
    stocked = replace(product_in_shop.variants[item], available=True)
    stage.shop.products[product] = replace(product_in_shop, variants={**product_in_shop.variants, item: stocked})
