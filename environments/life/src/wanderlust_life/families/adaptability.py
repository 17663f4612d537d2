"""Adaptability: the world answers back, and the plan must change."""

from __future__ import annotations

from wanderlust_life.families import builder
from wanderlust_life.families.builder import EventReference, FamilyBuilder
from wanderlust_life.families.family import family
from wanderlust_life.universes.ledger import HOUR_SECONDS
from wanderlust_life.universes.people import Person
from wanderlust_life.universes.text_templates import format_day, format_price, format_time_of_day
from wanderlust_worlds.engine.app import format_time
from wanderlust_worlds.verification.facts import Amount, Says, wordings


@family(
    "adaptability",
    asks="Ask somebody by mail for a date, and put what comes of it into the calendar.",
    hard="The date is declined and another one proposed; from level 2 on it moves once more after it was entered.",
)
def plan_b(s: FamilyBuilder) -> None:
    """A date that does not stay."""
    who, place = s.one("friend", "neighbour"), s.place()
    first, second, third = (s.free(1 + 3 * n, 3 + 3 * n, hours=(9, 16)) for n in range(3))
    title = f"Coffee with {who.first}"
    request = s.asks(
        "Mail {name} and ask whether {day} at {time} suits for a coffee at {place}. [If not|Should it not suit], "
        "whatever {first} proposes instead is fine with me and need not be confirmed. As soon as it is settled, put "
        "an hour called '{title}' into my calendar, with {name} and the place, and keep it right [if anything "
        "changes|should it change]. Report when nothing has come for ten minutes.",
        name=who.name,
        first=who.first,
        day=format_day(first),
        time=format_time_of_day(first),
        place=place,
        title=title,
    )
    mailed = s.agent(s.mail, after=request).send_email(
        recipients=[who.email],
        subject="Coffee?",
        content=f"Does {format_day(first)} at {format_time_of_day(first)} suit? At {place}.",
    )
    s.expects(mailed, "subject")
    s.expects(mailed, "content", s.on_day(first), s.at_time(first), s.at_place(place), mode="asks")
    answer_text = f"Sorry, I cannot then. But {format_day(second)} at {format_time_of_day(second)} would be fine."
    answer = s.env(s.mail, after=mailed, delay=90).reply_to_email_from_user(
        sender=who.email, email_id=mailed, content=answer_text
    )
    last, at = _add_entry(s, answer, title, at=second, place=place, who=who), second
    if s.steps > 1:
        then = f"{format_day(third)} at {format_time_of_day(third)}"
        moved = f"Sorry again, something has come up: can we make it {then}? Same place."
        more = s.env(s.mail, after=last, delay=120).send_email_to_user_only(
            sender=who.email, subject="Re: Coffee?", content=moved
        )
        s.agent(s.calendar, after=more).delete_calendar_event(event_id=last)
        last, at = _add_entry(s, more, title, at=third, place=place, who=who), third
    text = f"It is on {format_day(at)} at {format_time_of_day(at)}."
    s.reports(last, text, s.on_day(at), s.at_time(at), quiet=600, plain=False)
    s.duration = 2_400


def _add_entry(s: FamilyBuilder, after: EventReference, title: str, *, at: float, place: str, who: Person) -> str:
    added = s.agent(s.calendar, after=after).add_calendar_event(
        title=title,
        start_datetime=format_time(at),
        end_datetime=format_time(at + HOUR_SECONDS),
        location=place,
        attendees=[who.name],
    )
    s.expects(added, "title", Says(ways=(title, f"Coffee with {who.name}")))
    return s.expects(added, "location", s.at_place(place))


@family(
    "adaptability",
    asks="Order something; if the shop cancels, order the second choice.",
    hard="The shop cancels after a while; with more steps there is a second cancellation and a third choice.",
)
def sold_out(s: FamilyBuilder) -> None:
    """A product that is not available."""
    product = s.rng.choice([one for one in s.shop.products.values() if len(one.variants) > 2])
    items = s.rng.sample([*product.variants], 3 if s.steps > 1 else 2)
    for item in items:
        builder.put_in_stock(s, product.product_id, item)
    colours = [str(product.variants[item].options["colour"]) for item in items]
    request = s.asks(
        "Order the {what} in {first} (one piece). [If the shop cancels, take|Should the shop cancel it, order] "
        "{rest} instead. Wait for ten minutes after ordering whether they do, and only then tell me [which "
        "colour it is and what it costs|the colour and the price].",
        what=product.name,
        first=colours[0],
        rest=", and if that is cancelled too, ".join(colours[1:]),
    )
    after = request
    for n, item in enumerate(items):
        put = s.agent(s.shop, after=after).add_to_cart(item_id=item)
        bought = s.agent(s.shop, after=put).checkout()
        if n < len(items) - 1:
            after = s.env(s.shop, after=bought, delay=s.rng.randrange(60, 400, 20)).cancel_order(order_id=bought)
    price = product.variants[items[-1]].price
    text = f"It is the {product.name} in {colours[-1]}, for {format_price(price)}."
    colour = Says(ways=(colours[-1],), rivals=tuple(one for one in colours if one != colours[-1]))
    s.reports(bought, text, colour, Amount(value=price), quiet=600, plain=False)
    s.env(s.mail, after=request, delay=45).send_email_to_user_only(
        sender=s.one("shop").email, subject="Our new catalogue", content="Two hundred pages, and three recipes."
    )
    s.duration = 2_400


@family(
    "adaptability",
    asks="Take a cab and tell a friend; if the driver cancels, take another one and say so.",
    hard="The driver cancels while the agent waits.",
)
def ride_cancelled(s: FamilyBuilder) -> None:
    """A driver who does not come."""
    who, place = s.one("friend"), s.place()
    request = s.asks(
        "Order me a cab (Default) from home, {home}, to {place}, for now, and tell {name} in Chats that I am on my way "
        "to {place}. [Keep an eye on it for|Watch it for] ten minutes: if the driver cancels, take Premium, and tell "
        "{name} that I come later. Then report.",
        home=s.user.address,
        place=place,
        name=who.name,
    )
    booked = _book_cab(s, request, place=place, service="Default")
    message = s.agent(s.chats, after=request).send_message(
        user_id=builder.user_id_of(s.chats, who), content=f"I am on my way to {place}."
    )
    s.expects(message, "content", s.at_place(place), Says(ways=ON_MY_WAY_WORDINGS))
    gone = s.env(s.cabs, after=[booked, message], delay=s.rng.randrange(100, 500, 20)).cancel_ride()
    again = _book_cab(s, gone, place=place, service="Premium")
    later = s.agent(s.chats, after=gone).send_message(
        user_id=builder.user_id_of(s.chats, who), content="I come a little later, the cab was cancelled."
    )
    s.expects(later, "content", Says(ways=LATER_WORDINGS, rivals=ON_TIME_WORDINGS, cancels=False), never=["you are"])
    s.reports(
        [again, later],
        f"The first cab was cancelled, the Premium one is ordered, and {who.first} knows.",
        Says(ways=SECOND_CAB_WORDINGS, cancels=False),
        never=SECOND_CAB_GONE_WORDINGS,
        plain=False,
    )


ASKED_ONLY_WORDINGS = wordings("has been asked", "was asked", "is being asked")
NO_NEED_WORDINGS = wordings("need not bring", "needn't bring", "no need", "don't need", "do not bring")
ON_MY_WAY_WORDINGS = wordings(
    "way", "heading", "headed", "left", "leaving", "coming", "come", "arriving", "arrive", "going", "driving", "route",
    "off to", "there soon", "see you",
)  # fmt: skip
LATER_WORDINGS = wordings("later", "late", "delayed", "delay", "delays", "a bit longer", "a little longer")
ON_TIME_WORDINGS = wordings("on time", "early", "earlier", "punctual")
_GONE = (
    *("was cancelled", "has been cancelled", "have been cancelled", "were cancelled", "is cancelled"),
    *("fell through", "cancelled too"),
)
SECOND_CAB_GONE_WORDINGS = tuple(
    f"{which} {what} {gone}"
    for which in ("Premium", "second", "new")
    for what in ("cab", "one", "ride", "taxi")
    for gone in _GONE
)
SECOND_CAB_WORDINGS = wordings("Premium", "another", "second", "new one", "new cab", "new ride")


def _book_cab(s: FamilyBuilder, after: EventReference, *, place: str, service: str) -> str:
    booked = s.agent(s.cabs, after=after).order_ride(
        start_location=s.user.address, end_location=place, service_type=service
    )
    s.expects(booked, "start_location", s.at_place(s.user.street))
    return s.expects(booked, "end_location", s.at_place(place))


@family(
    "adaptability",
    asks="Ask people in turn whether they can bring something, until one can.",
    hard="Who is to be asked next depends on the answer; other people write meanwhile.",
)
def ask_around(s: FamilyBuilder) -> None:
    """One after the other."""
    thing, people = s.word("things"), s.some("friend", count=min(1 + s.steps, 4))
    willing = s.rng.randrange(len(people))
    request = s.asks(
        "I need somebody to bring a {thing} on Saturday. Ask {people} in Chats, [in this order and one at a time|one "
        "after the other, in this order]: go on to the next only when somebody has said no. Tell me who brings it.",
        thing=thing,
        people=", then ".join(one.name for one in people),
    )
    after: EventReference = request
    other = s.one("colleague")
    talk = builder.plant_message(s, s.texts, other, text="Good morning.", at=s.ago(0.1, 0.5))
    s.env(s.texts, after=request, delay=40).create_and_add_message(
        conversation_id=talk, sender_id=other.phone, content="I will bring cake on Saturday!"
    )
    for n, one in enumerate(people[: willing + 1]):
        name = builder.user_id_of(s.chats, one)
        sent = s.agent(s.chats, after=after).send_message(
            user_id=name, content=f"Hi {one.first}, can you bring a {thing} on Saturday?"
        )
        on_saturday = Says(ways=("Saturday",), rivals=OTHER_DAYS)
        s.expects(sent, "content", Says(ways=(thing,)), on_saturday, never=NO_NEED_WORDINGS, mode="asks")
        answer = "Yes, gladly." if n == willing else s.rng.choice(("Sorry, I cannot.", "No, mine is broken."))
        after = s.env(s.chats, after=sent, delay=s.rng.randrange(60, 200, 10)).create_and_add_message(
            conversation_id=sent, sender_id=name, content=answer
        )
    who, others = people[willing], [one for one in people if one is not people[willing]]
    bringer = s.is_who(who, others, aside=("asked", "wrote", "contacted"))
    s.reports(after, f"{who.name} brings it.", bringer, never=ASKED_ONLY_WORDINGS, plain=False)


OTHER_DAYS = wordings("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "today", "tomorrow")
