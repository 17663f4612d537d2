"""Ambiguity: what is asked can mean two things, or does not agree with what is there. One must ask, or say so."""

from __future__ import annotations

from wanderlust.worlds.engine.app import format_time
from wanderlust.worlds.life.families import builder
from wanderlust.worlds.life.families.builder import FamilyBuilder
from wanderlust.worlds.life.families.family import family
from wanderlust.worlds.life.grading import clock_wordings, day_wordings, wordings
from wanderlust.worlds.life.universes.text_templates import format_day, format_time_of_day

ASKING_WORDINGS = wordings("?", "which")
REFUSAL_WORDINGS = wordings("not", "cannot", "can't", "unable", "no longer", "couldn't", "too late")


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
    question = s.reports(request, f"Do you mean {friend.name} or {colleague.name}?", ASKING_WORDINGS)
    how = "my friend" if meant is friend else "the one at work"
    answer = s.answers(question, "[I mean|Sorry, I mean] {who}: {last}.", who=how, last=meant.name)
    sent = s.agent(s.mail, after=answer).send_email(
        recipients=[meant.email],
        subject="See you",
        content=f"Hi {meant.first}, I am at {place} on {format_day(when)} from {format_time_of_day(when)} on.",
    )
    s.expects(sent, "subject")
    s.expects(sent, "content", wordings(place, place.removeprefix("The ")), day_wordings(when), clock_wordings(when))
    s.reports(
        sent, f"{meant.name} has your mail.", wordings(meant.name, meant.last, "sent", "done"), never=[other.last]
    )


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
    question = s.reports(request, text, day_wordings(at))
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
        done.append(s.expects(sent, "content", wordings("20", "twenty"), never=day_wordings(wrong)))
    s.reports(done, "They all know.")


@family(
    "ambiguity",
    asks="Cancel an order that has been delivered already.",
    hard="It cannot be done: one must say why, and cancel nothing else, though a like order could be.",
)
def too_late(s: FamilyBuilder) -> None:
    """An order that cannot be cancelled any more."""
    product = s.rng.choice([*s.shop.products.values()])
    items = s.rng.sample([*product.variants], min(len(product.variants), 1 + s.decoys))
    gone = builder.plant_order(s, product, items[0], status="delivered", days=s.rng.uniform(4, 12))
    for item in items[1:]:
        builder.plant_order(s, product, item, status=s.rng.choice(("processed", "shipped")), days=s.rng.uniform(0.5, 2))
    colour = str(product.variants[items[0]].options["colour"])
    request = s.asks(
        "[Cancel|Please cancel] my order {number}, the {what} in {colour}. [Tell me whether it worked.|Did it work?]",
        number=gone.order_id,
        what=product.name,
        colour=colour,
    )
    text = f"Order {gone.order_id} cannot be cancelled: it has been delivered already."
    s.reports(request, text, wordings("delivered"), REFUSAL_WORDINGS)


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
    question = s.reports(request, text, ASKING_WORDINGS, wordings(first, format_day(days[0]), *day_wordings(days[0])))
    answer = s.answers(question, "[The one|I mean the one] on {day}.", day=format_day(days[meant]))
    booked = s.agent(s.cabs, after=answer).order_ride(
        start_location=s.user.address,
        end_location=place,
        service_type="Default",
        ride_time=format_time(days[meant] - 1_800),
    )
    s.expects(booked, "start_location", wordings(s.user.street))
    s.expects(booked, "end_location", wordings(place, place.removeprefix("The ")))
    s.reports(booked, f"A cab to {place} is ordered.", wordings(place, place.removeprefix("The ")))
