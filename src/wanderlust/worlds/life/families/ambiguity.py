"""Ambiguity: what is asked can mean two things, or does not agree with what is there. One must ask, or say so."""

from __future__ import annotations

from wanderlust.worlds.engine.app import told_time
from wanderlust.worlds.life.answer_checks import clock, day, words
from wanderlust.worlds.life.families import builder
from wanderlust.worlds.life.families.builder import Stage
from wanderlust.worlds.life.families.family import family
from wanderlust.worlds.life.universes.text_templates import day_of, time_of

ASKING = words("?", "which")
NO = words("not", "cannot", "can't", "unable", "no longer", "couldn't", "too late")


@family(
    "ambiguity",
    asks="Message somebody whose first name two people share.",
    hard="Nothing says who of them is meant: one must ask, and send nothing before.",
)
def two_of_a_name(s: Stage) -> None:
    """Which of them?"""
    friend, colleague = s.namesakes()
    meant, other = s.rng.sample([friend, colleague], 2)
    place, when = s.place(), s.free(1, 4, hours=(17, 19))
    asked = s.asks(
        "[Mail|Please mail|Can you mail] {first} that I am at {place} on {day} from {time} on[, and tell me when it is "
        "done|].",
        first=friend.first,
        place=place,
        day=day_of(when),
        time=time_of(when),
    )
    question = s.reports(asked, f"Do you mean {friend.name} or {colleague.name}?", ASKING)
    how = "my friend" if meant is friend else "the one at work"
    said = s.answers(question, "[I mean|Sorry, I mean] {who}: {last}.", who=how, last=meant.name)
    sent = s.agent(s.mail, after=said).send_email(
        recipients=[meant.email],
        subject="See you",
        content=f"Hi {meant.first}, I am at {place} on {day_of(when)} from {time_of(when)} on.",
    )
    s.expects(sent, "subject")
    s.expects(sent, "content", words(place, place.removeprefix("The ")), day(when), clock(when))
    s.reports(sent, f"{meant.name} has your mail.", words(meant.name, meant.last, "sent", "done"), never=[other.last])


@family(
    "ambiguity",
    asks="Tell everybody in a meeting that the user comes late; the day that is named is wrong.",
    hard="Only the calendar shows that it is another day: one must say so and ask before anybody is told.",
)
def wrong_day(s: Stage) -> None:
    """A meeting that is not then."""
    people, topic = s.some("colleague", count=min(1 + s.steps, 4)), s.word("topics")
    for date in [one for one in s.calendar.events.values() if topic in one.title.lower()]:
        del s.calendar.events[date.event_id]
    at, wrong = s.free(2, 4), s.free(5, 8)
    builder.date(s, topic.capitalize(), at, place="room 9.1", who=people, tag="work")
    asked = s.asks(
        "[Mail|Please mail] everybody who is in my meeting about the {topic} on {day} (except me), each by a mail of "
        "their own, that I am going to be twenty minutes late.",
        topic=topic,
        day=day_of(wrong),
    )
    text = f"Your meeting about the {topic} is on {day_of(at)}, not on {day_of(wrong)}. Shall I tell them for that day?"
    question = s.reports(asked, text, day(at))
    said = s.answers(
        question,
        "[You are right, I mixed it up|Oh, right]. {day} is correct, [go on|please tell them].",
        day=day_of(at),
    )
    done = []
    for one in people:
        note = f"Hi {one.first}, {s.user.first} will be twenty minutes late for the {topic} on {day_of(at)}."
        sent = s.agent(s.mail, after=said).send_email(recipients=[one.email], subject="Late", content=note)
        s.expects(sent, "subject")
        done.append(s.expects(sent, "content", words("20", "twenty"), never=day(wrong)))
    s.reports(done, "They all know.")


@family(
    "ambiguity",
    asks="Cancel an order that has been delivered already.",
    hard="It cannot be done: one must say why, and cancel nothing else, though a like order could be.",
)
def too_late(s: Stage) -> None:
    """What cannot be cancelled any more."""
    product = s.rng.choice([*s.shop.products.values()])
    items = s.rng.sample([*product.variants], min(len(product.variants), 1 + s.decoys))
    gone = builder.order(s, product, items[0], status="delivered", days=s.rng.uniform(4, 12))
    for item in items[1:]:
        builder.order(s, product, item, status=s.rng.choice(("processed", "shipped")), days=s.rng.uniform(0.5, 2))
    colour = str(product.variants[items[0]].options["colour"])
    asked = s.asks(
        "[Cancel|Please cancel] my order {number}, the {what} in {colour}. [Tell me whether it worked.|Did it work?]",
        number=gone.order_id,
        what=product.name,
        colour=colour,
    )
    text = f"Order {gone.order_id} cannot be cancelled: it has been delivered already."
    s.reports(asked, text, words("delivered"), NO)


@family(
    "ambiguity",
    asks="Order a cab to an evening with somebody, of which there are two.",
    hard="Both are in the calendar, on different evenings and at different places: one must ask.",
)
def which_evening(s: Stage) -> None:
    """Two evenings."""
    who, (first, second) = s.one("friend"), s.rng.sample(s.universe.places[40:], 2)
    for date in [one for one in s.calendar.events.values() if who.name in one.attendees]:
        del s.calendar.events[date.event_id]
    days = [s.free(1, 3, hours=(18, 20)), s.free(4, 6, hours=(18, 20))]
    for at, place in zip(days, (first, second), strict=True):
        builder.date(s, f"Evening with {who.first}", at, place=place, who=[who])
    meant = s.rng.randrange(2)
    place = (first, second)[meant]
    asked = s.asks(
        "[Get|Order] me a cab (Default) from home, {home}, to my evening with {name}: it should pick me up half an "
        "hour before it begins.",
        home=s.user.address,
        name=who.name,
    )
    text = f"There are two: {day_of(days[0])} at {first}, and {day_of(days[1])} at {second}. Which one?"
    question = s.reports(asked, text, ASKING, words(first, day_of(days[0]), *day(days[0])))
    said = s.answers(question, "[The one|I mean the one] on {day}.", day=day_of(days[meant]))
    booked = s.agent(s.cabs, after=said).order_ride(
        start_location=s.user.address,
        end_location=place,
        service_type="Default",
        ride_time=told_time(days[meant] - 1_800),
    )
    s.expects(booked, "start_location", words(s.user.street))
    s.expects(booked, "end_location", words(place, place.removeprefix("The ")))
    s.reports(booked, f"A cab to {place} is ordered.", words(place, place.removeprefix("The ")))
