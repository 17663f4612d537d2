"""Long stories of a life: several wishes in several turns, composed of parts that a seed draws.

A part is a wish that takes one to five acts in one or two apps: a meeting, an order, a ride, a question to somebody, a
reminder, a mail that is waited for, a new number. Some meet an obstacle (a date is declined, a shop or a driver
cancels), some are changed in a later turn, some come while the agent is at work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from wanderlust.errors import UsageError
from wanderlust_life.families import builder
from wanderlust_life.families.builder import EventReference, FamilyBuilder
from wanderlust_life.families.family import Family
from wanderlust_life.universes.ledger import HOUR_SECONDS
from wanderlust_life.universes.people import Person
from wanderlust_life.universes.text_templates import format_day, format_time_of_day
from wanderlust_worlds.engine.app import format_time
from wanderlust_worlds.verification.facts import Says

QUIET_SECONDS = 600.0
"""Seconds without news after which a turn with obstacles is over."""
Play: TypeAlias = Callable[[EventReference], Sequence[EventReference]]
"""Adds the events of a part after an event; gives those that must be over before the report."""


@dataclass(slots=True)
class Wish:
    """A part, as a stage has drawn it."""

    text: str
    """What the user asks for; whole sentences."""
    play: Play
    contingent: bool = False
    """Whether something may come in between, for which one has to wait."""
    changed: Callable[[], Wish] | None = None
    """The same wish changed, for a later turn; known when it was played."""


def meeting(s: FamilyBuilder) -> Wish:
    """An hour with somebody, who is told by mail and may propose another time."""
    who, place = s.one("friend", "neighbour", "colleague"), s.place()
    first, second, third = s.free(1, 4), s.free(5, 8), s.free(9, 12)
    title, moves = f"Hour with {who.first}", s.rng.random() < 0.5
    entered: list[EventReference] = []

    def enter(after: EventReference, at: float) -> EventReference:
        added = s.agent(s.calendar, after=after).add_calendar_event(
            title=title,
            start_datetime=format_time(at),
            end_datetime=format_time(at + HOUR_SECONDS),
            location=place,
            attendees=[who.name],
        )
        s.expects(added, "title", Says(ways=(title,)))
        entered.append(s.expects(added, "location", s.at_place(place)))
        return entered[-1]

    def tell(after: EventReference, at: float) -> EventReference:
        text = f"Hi {who.first}, we meet on {format_day(at)} at {format_time_of_day(at)}, at {place}."
        sent = s.agent(s.mail, after=after).send_email(recipients=[who.email], subject="Our hour", content=text)
        s.expects(sent, "subject")
        return s.expects(sent, "content", s.on_day(at), s.at_time(at), s.at_place(place), plain=True)

    def play(after: EventReference) -> list[EventReference]:
        added, told = enter(after, first), tell(after, first)
        if not moves:
            return [added, told]
        text = f"Sorry, I cannot then. {format_day(second)} at {format_time_of_day(second)} would be fine."
        answer = s.env(s.mail, after=[added, told], delay=s.rng.randrange(60, 400, 20)).reply_to_email_from_user(
            sender=who.email, email_id=told, content=text
        )
        return [s.agent(s.calendar, after=answer).delete_calendar_event(event_id=added), enter(answer, second)]

    def change() -> Wish:
        def again(after: EventReference) -> list[EventReference]:
            gone = s.agent(s.calendar, after=after).delete_calendar_event(event_id=entered[-1])
            return [gone, enter(after, third), tell(after, third)]

        day, time = format_day(third), format_time_of_day(third)
        text = (
            f"The hour with {who.name} has to be on {day} at {time} instead. Change my calendar, and mail {who.first}"
        )
        return Wish(f"{text} the new day and time, and the place.", again)

    day, time = format_day(first), format_time_of_day(first)
    text = f"Put an hour called '{title}' with {who.name} into my calendar, on {day} at {time}, at {place}, and mail "
    text += f"{who.first} when and where it is. If {who.first} proposes another time, only change my calendar."
    return Wish(text, play, contingent=True, changed=change)


def order(s: FamilyBuilder) -> Wish:
    """One product; the shop may cancel it."""
    product = s.rng.choice([one for one in s.shop.products.values() if len(one.variants) > 2])
    items = s.rng.sample([*product.variants], 2)
    for item in items:
        builder.put_in_stock(s, product.product_id, item)
    colours = [str(product.variants[item].options["colour"]) for item in items]
    cancels = s.rng.random() < 0.5
    bought: list[EventReference] = []

    def buy(after: EventReference, item: str) -> EventReference:
        put = s.agent(s.shop, after=after).add_to_cart(item_id=item)
        bought.append(s.agent(s.shop, after=put).checkout())
        return bought[-1]

    def play(after: EventReference) -> list[EventReference]:
        last = buy(after, items[0])
        if cancels:
            delay = s.rng.randrange(60, 400, 20)
            last = buy(s.env(s.shop, after=last, delay=delay).cancel_order(order_id=last), items[1])
        return [last]

    def change() -> Wish:
        return Wish(
            f"I do not need the {product.name} any more: cancel the order.",
            lambda after: [s.agent(s.shop, after=after).cancel_order(order_id=bought[-1])],
        )

    text = f"Order one {product.name} in {colours[0]}. If the shop cancels it, take {colours[1]} instead."
    return Wish(text, play, contingent=True, changed=change)


def ride(s: FamilyBuilder) -> Wish:
    """A cab at once, of which a friend is told; the driver may cancel."""
    who, place, cancels = s.one("friend"), s.place(), s.rng.random() < 0.5

    def book(after: EventReference, service: str) -> EventReference:
        booked = s.agent(s.cabs, after=after).order_ride(
            start_location=s.user.address, end_location=place, service_type=service
        )
        s.expects(booked, "start_location", s.at_place(s.user.street))
        return s.expects(booked, "end_location", s.at_place(place))

    def play(after: EventReference) -> list[EventReference]:
        booked = book(after, "Default")
        told = s.agent(s.chats, after=after).send_message(
            user_id=builder.user_id_of(s.chats, who), content=f"I am coming to {place} by cab."
        )
        s.expects(told, "content", s.at_place(place))
        if not cancels:
            return [booked, told]
        gone = s.env(s.cabs, after=[booked, told], delay=s.rng.randrange(60, 400, 20)).cancel_ride()
        return [book(gone, "Premium")]

    text = (
        f"Get me a cab (Default) from home, {s.user.address}, to {place}, for now, and tell {who.name} in Chats that I "
    )
    return Wish(f"{text}come to {place} by cab. If the driver cancels, take Premium.", play, contingent=True)


def question(s: FamilyBuilder) -> Wish:
    """Somebody is asked, and another one is told the answer."""
    who, other = s.one("friend"), s.one("neighbour", "colleague", "friend")
    dish = s.word("foods")

    def play(after: EventReference) -> list[EventReference]:
        name = builder.user_id_of(s.chats, who)
        asked = s.agent(s.chats, after=after).send_message(
            user_id=name, content=f"Hi {who.first}, what do you bring on Saturday?"
        )
        s.expects(asked, "content", Says(ways=("Saturday",)), Says(ways=("bring", "bringing")), mode="asks")
        answer = s.env(s.chats, after=asked, delay=s.rng.randrange(60, 400, 20)).create_and_add_message(
            conversation_id=asked, sender_id=name, content=f"I am going to bring {dish}."
        )
        sent = s.agent(s.texts, after=answer).send_message(
            user_id=other.phone, content=f"{who.name} brings {dish} on Saturday."
        )
        return [s.expects(sent, "content", Says(ways=(dish,)), s.is_who(who))]

    text = f"Ask {who.name} in Chats what they bring on Saturday. When they have answered, text {other.name} (in "
    return Wish(f"{text}Messages) what {who.first} brings.", play, contingent=True)


def reminder(s: FamilyBuilder) -> Wish:
    """A reminder at a time."""
    at, topic = s.free(2, 9), s.word("topics")
    app = s.apps["Reminders"]

    def play(after: EventReference) -> list[EventReference]:
        acting: Any = s.agent(app, after=after)
        added = acting.add_reminder(title=topic, due_datetime=format_time(at), description=topic)
        s.expects(added, "title", Says(ways=(topic,)))
        return [s.expects(added, "description")]

    return Wish(f"Remind me of the {topic} on {format_day(at)} at {format_time_of_day(at)}.", play)


def awaited_mail(s: FamilyBuilder) -> Wish:
    """A mail that is forwarded when it is there; others with the same subject may come before it."""
    who, keeper, other = s.one("colleague"), s.one("colleague", "friend"), s.one("colleague", "neighbour", "friend")
    topic = s.word("topics")

    def play(after: EventReference) -> list[EventReference]:
        if s.decoys > 1:
            s.env(s.mail, after=after, delay=40).send_email_to_user_only(
                sender=other.email, subject=f"The {topic}", content="Do you have it yet?"
            )
        mail = s.env(s.mail, after=after, delay=s.rng.randrange(80, 400, 20)).send_email_to_user_only(
            sender=who.email, subject=f"The {topic}", content=f"Here it is, number {s.rng.randrange(100, 999)}."
        )
        return [s.agent(s.mail, after=mail).forward_email(email_id=mail, recipients=[keeper.email])]

    text = (
        f"{who.name} is going to mail me about the {topic}. As soon as that mail is there, forward it to {keeper.name}."
    )
    return Wish(text, play, contingent=True)


def new_number(s: FamilyBuilder) -> Wish:
    """A phone number for the contacts."""
    who: Person = s.one("friend", "neighbour")
    number = f"+1 555 018{s.rng.randrange(10)} {s.rng.randrange(10_000):04d}"

    def play(after: EventReference) -> list[EventReference]:
        edited = s.agent(s.contacts, after=after).edit_contact(contact_id=who.id, updates={"phone": number})
        return [s.expects_fields(edited, "updates", phone=number)]

    return Wish(f"{who.name} has a new phone number, {number}: put it into my contacts.", play)


PARTS: Mapping[str, Callable[[FamilyBuilder], Wish]] = {
    "meeting": meeting,
    "order": order,
    "ride": ride,
    "question": question,
    "reminder": reminder,
    "awaited mail": awaited_mail,
    "new number": new_number,
}
ONCE = frozenset({"ride", "order"})
"""Parts that a story has once: a person has one cab and one cart."""
SMALL = ("reminder", "new number")
"""Parts that come while the agent is at work."""


def parts(s: FamilyBuilder) -> Iterator[str]:
    """Names of parts without end; those of ONCE once, and no part twice before all others came."""
    used: set[str] = set()
    while True:
        names = [name for name in PARTS if name not in used & ONCE]
        s.rng.shuffle(names)
        for name in names:
            used.add(name)
            yield name


def draw_wish(s: FamilyBuilder, drawn: Iterator[str]) -> Wish:
    """The next part that this life has people and free hours for. UsageError where it has them for none."""
    for _ in PARTS:
        try:
            return PARTS[next(drawn)](s)
        except UsageError as error:  # nobody is left
            refused = error
    raise refused


def tell(s: FamilyBuilder) -> None:
    """Turns with two or three wishes; changes of mind from the second on; now and then something in between."""
    turns, drawn, changeable = min(s.steps + 1, 5), parts(s), list[Wish]()
    ended: EventReference = None
    for turn in range(turns):
        wishes = []
        if changeable and s.rng.random() < 0.6:
            change = changeable.pop(s.rng.randrange(len(changeable))).changed
            wishes += [change()] if change is not None else []
        wishes += [draw_wish(s, drawn) for _ in range(s.rng.randint(2, 3) - len(wishes))]
        ended = tell_turn(s, wishes, after=ended, last=turn == turns - 1)
        changeable += [one for one in wishes if one.changed is not None]
    s.duration = turns * 3_000.0


def tell_turn(s: FamilyBuilder, wishes: Sequence[Wish], *, after: EventReference, last: bool) -> EventReference:
    """One turn: what is asked, what is done, what comes in between, and the report."""
    waits = any(one.contingent for one in wishes)
    text = " ".join(one.text for one in wishes)
    text += " Report when nothing new has come for ten minutes." if waits else " Tell me when that is done."
    request = s.asks(text) if after is None else s.answers(after, text)
    over = [event for one in wishes for event in one.play(request)]
    if waits and s.rng.random() < 0.4:
        more = PARTS[s.rng.choice(SMALL)](s)
        user: EventReference = s.story.user(s.ui, after=request, delay=s.rng.randrange(30, 200, 10))
        over += more.play(user.send_message_to_agent(f"One more thing. {more.text}"))
    return s.reports(over, "All is done." if last else "That is done.", quiet=QUIET_SECONDS if waits else 0.0)


LONG_STORY = Family(
    name="long-story",
    capability="adaptability",
    asks="Do several things in several turns, with changes of mind, obstacles and interruptions.",
    hard="Up to five turns over six apps, and twenty acts or more; what was done may have to be undone.",
    build=tell,
)
