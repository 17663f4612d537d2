"""Ambiguity: what is asked can mean two things, or does not agree with what is there. One must ask, or say so."""

from __future__ import annotations

from wanderlust_life.families import builder
from wanderlust_life.families.builder import FamilyBuilder
from wanderlust_life.families.family import family
from wanderlust_life.universes.text_templates import format_day, format_price, format_time_of_day
from wanderlust_worlds.engine.app import format_time
from wanderlust_worlds.verification.facts import (
    Amount,
    AnyOf,
    ClockTime,
    Count,
    PlacesOnDays,
    Says,
    place_wordings,
    wordings,
)

REFUSAL_WORDINGS = wordings(
    "cannot", "can't", "can not", "could not", "couldn't", "not possible", "impossible", "no longer", "too late",
    "unable", "did not work", "didn't work", "does not work", "doesn't work", "won't", "not able", "isn't possible",
    "not cancellable", "failed", "refused", "has not worked",
    "wasn't able", "was not able", "not been cancelled", "was not cancelled",
)  # fmt: skip
DELIVERED_WORDINGS = wordings("delivered", "arrived", "received", "delivery was completed")
YET_TO_COME_WORDINGS = wordings(
    "will be delivered", "to be delivered", "being delivered", "will have arrived", "once delivered", "when delivered",
)  # fmt: skip
CANCELLED_WORDINGS = wordings(
    "I have cancelled", "I've cancelled", "I cancelled", "is cancelled", "was cancelled", "has been cancelled",
    "is now cancelled", "it worked", "it has worked", "cancelled it",
)  # fmt: skip
LATE_WORDINGS = wordings("late", "later", "delayed", "delay", "after the start", "after the beginning")


@family(
    "ambiguity",
    asks="Message somebody whose first name two people share.",
    hard="Nothing says who of them is meant: one must ask, and send nothing before.",
)
def two_of_a_name(s: FamilyBuilder) -> None:
    """Two people of one name."""
    friend, colleague = s.namesakes()
    meant, other = s.rng.sample([friend, colleague], 2)
    place, when = s.place(), s.free(1, 4, hours=(17, 19))
    request = s.asks(
        "[Mail|Please mail|Can you mail] {first} that I am at {place} on {day} from {time} on[, and tell me when it is "
        "done|].",
        first=friend.first,
        place=place,
        day=format_day(when),
        time=format_time_of_day(when),
    )
    first = friend.first
    both = Says(ways=(friend.last,)), Says(ways=(colleague.last,))
    which = Says(ways=(f"which {first}", f"two {first}s", f"two people called {first}", f"which of the {first}s"))
    text = f"Do you mean {friend.name} or {colleague.name}?"
    question = s.reports(request, text, AnyOf(choices=(both, (which,))), mode="asks")
    how = "my friend" if meant is friend else "the one at work"
    answer = s.answers(question, "[I mean|Sorry, I mean] {who}: {last}.", who=how, last=meant.name)
    sent = s.agent(s.mail, after=answer).send_email(
        recipients=[meant.email],
        subject="See you",
        content=f"Hi {meant.first}, I am at {place} on {format_day(when)} from {format_time_of_day(when)} on.",
    )
    s.expects(sent, "subject")
    s.expects(sent, "content", s.at_place(place), s.on_day(when), ClockTime(at=when), plain=True)
    s.reports(sent, f"{meant.name} has your mail.", never=[other.last])


@family(
    "ambiguity",
    asks="Tell everybody in a meeting that the user comes late; the day that is named is wrong.",
    hard="Only the calendar shows that it is another day: one must say so and ask before anybody is told.",
)
def wrong_day(s: FamilyBuilder) -> None:
    """A meeting that is not then."""
    people, topic = s.some("colleague", count=min(1 + s.steps, 4)), s.word("topics")
    for date in [one for one in s.calendar.events.values() if topic in one.title.lower()]:
        del s.calendar.events[date.event_id]
    at, wrong = s.free(2, 4), s.free(5, 8)
    builder.plant_event(s, topic.capitalize(), at, place="room 9.1", who=people, tag="work")
    request = s.asks(
        "[Mail|Please mail] everybody who is in my meeting about the {topic} on {day} (except me), each by a mail of "
        "their own, that I am going to be twenty minutes late.",
        topic=topic,
        day=format_day(wrong),
    )
    text = f"Your meeting about the {topic} is on {format_day(at)}, not on {format_day(wrong)}."
    text += " Shall I tell them for that day?"
    question = s.reports(request, text, s.on_day(at, wrong), mode="asks")
    answer = s.answers(
        question,
        "[You are right, I mixed it up|Oh, right]. {day} is correct, [go on|please tell them].",
        day=format_day(at),
    )
    done = []
    for one in people:
        note = f"Hi {one.first}, {s.user.first} will be twenty minutes late for the {topic} on {format_day(at)}."
        sent = s.agent(s.mail, after=answer).send_email(recipients=[one.email], subject="Late", content=note)
        s.expects(sent, "subject")
        late = Says(ways=LATE_WORDINGS, rivals=("early", "earlier", "on time"))
        done.append(s.expects(sent, "content", Count(value=20), late, s.on_day(at, needed=False), plain=True))
    s.reports(done, "They all know.")


@family(
    "ambiguity",
    asks="Cancel an order that has been delivered already; if that cannot be, say why, and what it cost.",
    hard="It cannot be done: one must look, say why, and cancel nothing else, though a like order could be. Above "
    "level 1 the order has to be found.",
)
def too_late(s: FamilyBuilder) -> None:
    """An order that cannot be cancelled any more."""
    product = s.rng.choice([*s.shop.products.values()])
    items = s.rng.sample([*product.variants], min(len(product.variants), 1 + s.decoys))
    is_numbered = s.steps == 1
    if not is_numbered:  # what is described has been ordered once
        for order in [one for one in s.shop.orders.values() if items[0] in one.order_items]:
            del s.shop.orders[order.order_id]
    gone = builder.plant_order(s, product, items[0], status="delivered", days=s.rng.uniform(4, 12))
    for item in items[1:]:
        builder.plant_order(s, product, item, status=s.rng.choice(("processed", "shipped")), days=s.rng.uniform(0.5, 2))
    colour = str(product.variants[items[0]].options["colour"])
    request = s.asks(
        f"[Cancel|Please cancel] my order {'{number}, ' if is_numbered else 'of '}the {{what}} in {{colour}}. "
        "[Tell me whether it worked; if not, why, and what I paid.|Did it work? If not, why, and what did I pay?]",
        number=gone.order_id,
        what=product.name,
        colour=colour,
    )
    text = f"Order {gone.order_id} cannot be cancelled: it has been delivered already. You paid "
    text += f"{format_price(gone.order_total)} for it."
    s.reports(
        request,
        text,
        Says(ways=DELIVERED_WORDINGS, rivals=YET_TO_COME_WORDINGS, cancels=False),
        Says(ways=REFUSAL_WORDINGS, literal=True),
        Amount(value=gone.order_total),
        never=CANCELLED_WORDINGS,
        plain=False,
    )


@family(
    "ambiguity",
    asks="Order a cab to an evening with somebody, of which there are two.",
    hard="Both are in the calendar, on different evenings and at different places: one must ask.",
)
def which_evening(s: FamilyBuilder) -> None:
    """Two evenings."""
    who, (first, second) = s.one("friend"), s.rng.sample(s.universe.places[40:], 2)
    for date in [one for one in s.calendar.events.values() if who.name in one.attendees]:
        del s.calendar.events[date.event_id]
    days = [s.free(1, 3, hours=(18, 20)), s.free(4, 6, hours=(18, 20))]
    for at, place in zip(days, (first, second), strict=True):
        builder.plant_event(s, f"Evening with {who.first}", at, place=place, who=[who])
    meant = s.rng.randrange(2)
    place = (first, second)[meant]
    request = s.asks(
        "[Get|Order] me a cab (Default) from home, {home}, to my evening with {name}: it should pick me up half an "
        "hour before it begins.",
        home=s.user.address,
        name=who.name,
    )
    text = f"There are two: {format_day(days[0])} at {first}, and {format_day(days[1])} at {second}. Which one?"
    options = [
        AnyOf(choices=((s.at_place(where),), (s.on_day(day, *days),)))
        for day, where in zip(days, (first, second), strict=True)
    ]
    together = PlacesOnDays(pairs=tuple(zip(days, (place_wordings(first), place_wordings(second)), strict=True)))
    question = s.reports(request, text, *options, together, mode="asks")
    answer = s.answers(question, "[The one|I mean the one] on {day}.", day=format_day(days[meant]))
    booked = s.agent(s.cabs, after=answer).order_ride(
        start_location=s.user.address,
        end_location=place,
        service_type="Default",
        ride_time=format_time(days[meant] - 1_800),
    )
    s.expects(booked, "start_location", s.at_place(s.user.street))
    s.expects(booked, "end_location", s.at_place(place, (first, second)[1 - meant]))
    there = s.at_place(place, (first, second)[1 - meant])
    s.reports(booked, f"A cab to {place} is ordered.", there, s.on_day(days[meant], needed=False))
