"""The events of a life: each kind of storyline writes to several apps what they hold of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from wanderlust_life.universes.ledger import DAY_SECONDS, HOUR_SECONDS, AppRows, Storyline, daytime
from wanderlust_life.universes.people import SERVICE_JOBS, Person
from wanderlust_life.universes.text_templates import (
    book_titles,
    expand_pattern,
    expand_rule,
    format_day,
    format_price,
    format_time_of_day,
    shuffled,
    word_list,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeContext:
    """The parts that storylines are made from."""

    rows: AppRows
    rng: Random
    people: Mapping[str, tuple[Person, ...]]
    """By what they are to the user."""
    places: tuple[str, ...]
    streets: tuple[str, ...]
    town: str

    @property
    def user(self) -> Person:
        """The person whose life it is."""
        return self.rows.user

    def any_of(self, *ties: str) -> Person:
        """A person with one of these ties."""
        return self.rng.choice([one for tie in ties for one in self.people.get(tie, ())])

    def letter(self, sender: Person, to: Person, text: str) -> str:
        """A mail around a text."""
        names = {"to": to.first, "me": sender.first if to.last and sender.last else sender.name}
        opening = expand_pattern(self.rng, "<hello>~~", names)
        kind = expand_pattern(self.rng, "<hope> ", names) if sender.last and self.rng.random() < 0.4 else ""
        return f"{opening}{kind}{text}\n\n{expand_rule(self.rng, 'bye', names)}"

    def number(self, letters: str) -> str:
        """A number of an order, a booking or an invoice."""
        return f"{letters}-{self.rows.new_id('')[-11:-6]}{self.rng.randrange(100):02d}"

    def before(self, when: float, most: float = 9 * DAY_SECONDS) -> float:
        """A time before something, in the past, when people are awake."""
        latest = min(when - 3 * HOUR_SECONDS, self.rows.start - HOUR_SECONDS)
        at = latest - self.rng.uniform(0, most)
        return daytime(self.rng, at)


StorylineFunction: TypeAlias = Callable[[LifeContext], Storyline | None]


def meeting_storyline(life: LifeContext) -> Storyline | None:
    """A colleague asks for a meeting; the user says yes, or not."""
    rng, ledger, user = life.rng, life.rows, life.user
    when = ledger.free((-40, 20), (9, 16))
    if when is None:
        return None
    who = rng.sample(life.people["colleague"], min(len(life.people["colleague"]), rng.randint(1, 3)))
    topic, place, at = (
        rng.choice(word_list("topics")),
        f"room {rng.randint(1, 4)}.{rng.randint(10, 29)}",
        life.before(when),
    )
    facts = {"topic": topic, "day": format_day(when), "time": format_time_of_day(when), "place": place}
    text = life.letter(who[0], user, expand_pattern(rng, "<ask.meeting> <work.more> <work.more>", facts))
    first_mail = ledger.mail(who[0], user, subject=topic.capitalize(), text=text, at=at)
    comes = rng.random() < 0.75
    answer = life.letter(user, who[0], expand_rule(rng, "yes.meeting" if comes else "no.meeting", facts))
    soon = at + rng.uniform(0.1, 0.9) * HOUR_SECONDS
    replied = ledger.mail(user, who[0], subject=f"Re: {topic.capitalize()}", text=answer, at=soon, parent=first_mail)
    shared_facts: dict[str, Any] = {"who": tuple(one.id for one in who), "when": when, "place": place, "what": topic}
    if not comes:
        return Storyline(kind="declined", mails=(first_mail, replied), **shared_facts)
    event = ledger.event(topic.capitalize(), when, when + HOUR_SECONDS, place=place, who=who, tag="work")
    if when < ledger.start - DAY_SECONDS and rng.random() < 0.5:
        after = life.letter(who[0], user, expand_rule(rng, "meeting.after", facts))
        ledger.mail(
            who[0], user, subject=f"Re: {topic.capitalize()}", text=after, at=when + 3 * HOUR_SECONDS, parent=replied
        )
    return Storyline(kind="meeting", mails=(first_mail, replied), event=event, **shared_facts)


def dinner_storyline(life: LifeContext) -> Storyline | None:
    """A friend invites the user to dinner in a chat."""
    rng, ledger, user = life.rng, life.rows, life.user
    when = ledger.free((-30, 18), (18, 20), length=2 * HOUR_SECONDS, weekend=True)
    if when is None:
        return None
    friend, place, at = (
        life.any_of("friend", "partner", *FAMILY_TIES),
        rng.choice(life.places),
        life.before(when, 5 * DAY_SECONDS),
    )
    facts = {"day": format_day(when), "time": format_time_of_day(when), "place": place}
    talk = ledger.say("Chats", [friend], sender=friend, text=expand_rule(rng, "chat.dinner", facts), at=at)
    ledger.say(
        "Chats", [friend], sender=user, text=expand_rule(rng, "chat.yes", facts), at=at + rng.uniform(60, HOUR_SECONDS)
    )
    title = f"Dinner with {friend.first}"
    event = ledger.event(title, when, when + 2 * HOUR_SECONDS, place=place, who=[friend], tag="private")
    return Storyline(kind="dinner", who=(friend.id,), when=when, place=place, talk=talk, event=event)


def appointment_storyline(life: LifeContext) -> Storyline | None:
    """A practice, a salon or a garage confirms an appointment."""
    rng, ledger = life.rng, life.rows
    when = ledger.free((-50, 25), (8, 17), length=HOUR_SECONDS / 2)
    ties = [tie for tie in SERVICE_JOBS if tie in life.people and tie != "landlord"]
    if when is None or not ties:
        return None
    who = life.any_of(rng.choice(ties))
    number, place, at = life.number("T"), who.address, life.before(when, 20 * DAY_SECONDS)
    facts = {"day": format_day(when), "time": format_time_of_day(when), "place": place, "number": number}
    text = life.letter(who, life.user, expand_rule(rng, "dentist.mail", facts))
    mail = ledger.mail(who, life.user, subject=f"Your appointment on {format_day(when)}", text=text, at=at)
    if rng.random() < 0.3:
        thanks = life.letter(life.user, who, expand_rule(rng, "thanks.mail", {}))
        subject = f"Re: Your appointment on {format_day(when)}"
        ledger.mail(life.user, who, subject=subject, text=thanks, at=at + HOUR_SECONDS, parent=mail)
    title = f"{who.tie.capitalize()}: {who.name}"
    event = ledger.event(
        title, when, when + HOUR_SECONDS / 2, place=place, who=[who], tag="errand", about=f"Booking {number}"
    )
    return Storyline(
        kind="appointment", who=(who.id,), when=when, place=place, number=number, mails=(mail,), event=event
    )


def order_storyline(life: LifeContext) -> Storyline | None:
    """An order; the shop mails a confirmation, and again when it is sent."""
    rng, ledger, shop = life.rng, life.rows, life.any_of("shop")
    product = rng.choice([*ledger.products.values()])
    item, quantity, number = rng.choice([*product.variants]), rng.choice((1, 1, 1, 2, 3)), life.number("W")
    days = rng.uniform(1, 60)
    at = daytime(rng, ledger.start - days * DAY_SECONDS - HOUR_SECONDS)
    status = "processed" if days < 3 else "shipped" if days < 6 else rng.choice(("delivered",) * 6 + ("cancelled",))
    made = ledger.order(product, item, quantity=quantity, at=at, status=status, number=number)
    options = ", ".join(map(str, product.variants[item].options.values()))
    name = f"{product.name} ({options})"
    each = product.variants[item].price
    facts = {"number": number, "day": format_day(at), "lines": f"{quantity} x {name}, {format_price(each)} each"}
    facts |= {"amount": format_price(made.order_total), "what": name}
    text = life.letter(shop, life.user, expand_rule(rng, "order.mail", facts))
    mails = [ledger.mail(shop, life.user, subject=f"Your order {number}", text=text, at=at + 120)]
    if status in ("shipped", "delivered"):
        later = at + 2 * DAY_SECONDS + rng.uniform(0, 5) * HOUR_SECONDS
        gone = life.letter(shop, life.user, expand_rule(rng, "shipped.mail", {**facts, "day": format_day(later)}))
        mails.append(ledger.mail(shop, life.user, subject=f"Order {number} is on its way", text=gone, at=later))
    return Storyline(
        kind="order", who=(shop.id,), when=at, what=name, amount=made.order_total, number=number, mails=tuple(mails)
    )


def invoice_storyline(life: LifeContext) -> Storyline | None:
    """A bill comes by mail, and is kept as a file."""
    rng, ledger = life.rng, life.rows
    who = life.any_of(*(tie for tie in SERVICE_JOBS if tie in life.people))
    number, at = life.number("R"), ledger.start - rng.uniform(1, 80) * DAY_SECONDS
    what = "the rent of last month" if who.tie == "landlord" else f"my work as your {who.tie}"
    amount = round(rng.uniform(25, 480) if who.tie != "landlord" else 100 * rng.randint(7, 14), 2)
    due = at + 14 * DAY_SECONDS
    facts = {
        "number": number,
        "day": format_day(at),
        "what": what,
        "amount": format_price(amount),
        "due": format_day(due),
    }
    text = life.letter(who, life.user, expand_rule(rng, "invoice.mail", facts))
    mail = ledger.mail(who, life.user, subject=f"Invoice {number}", text=text, at=at)
    body = f"Invoice {number}\nFrom: {who.name}\nFor: {what}\nAmount: {format_price(amount)}\nDue: {format_day(due)}\n"
    path = ledger.file(f"Documents/Invoices/{who.last.lower()}-{number}.txt", body)
    return Storyline(
        kind="invoice", who=(who.id,), when=at, what=what, amount=amount, number=number, mails=(mail,), path=path
    )


def ride_storyline(life: LifeContext) -> Storyline | None:
    """A ride in a cab, and its receipt."""
    rng, ledger = life.rng, life.rows
    at, driver = life.before(ledger.start - DAY_SECONDS / 2, 60 * DAY_SECONDS), str(rng.randrange(100, 1000))
    km, place = round(rng.uniform(2, 19), 1), rng.choice(life.places)
    made = ledger.ride(life.user.address, place, service=rng.choice(("Default", "Default", "Premium")), km=km, at=at)
    facts = {"day": format_day(at), "time": format_time_of_day(at), "start": life.user.address, "place": place}
    facts |= {"km": f"{km:g}", "amount": format_price(made.price or 0), "driver": driver}
    cab = life.people["cab"][0]
    text = life.letter(cab, life.user, expand_rule(rng, "ride.mail", facts))
    mail = ledger.mail(cab, life.user, subject=f"Your ride to {place}", text=text, at=at + HOUR_SECONDS)
    return Storyline(kind="ride", when=at, place=place, amount=made.price or 0, number=made.ride_id, mails=(mail,))


def viewing_storyline(life: LifeContext) -> Storyline | None:
    """An agent shows the user a flat that is on the market."""
    rng, ledger = life.rng, life.rows
    when = ledger.free((-10, 14), (9, 19), length=HOUR_SECONDS / 2)
    if when is None:
        return None
    flat, who = rng.choice([*ledger.flats.values()]), life.any_of("agency")
    facts = {"flat": flat.name, "street": flat.location, "day": format_day(when), "time": format_time_of_day(when)}
    text = life.letter(who, life.user, expand_rule(rng, "viewing.mail", {**facts, "amount": format_price(flat.price)}))
    mail = ledger.mail(who, life.user, subject=f"Viewing: {flat.name}", text=text, at=life.before(when))
    title = f"Viewing: {flat.name}"
    event = ledger.event(title, when, when + HOUR_SECONDS / 2, place=flat.location, who=[who], tag="flat")
    return Storyline(
        kind="viewing", who=(who.id,), when=when, what=flat.apartment_id, amount=flat.price, mails=(mail,), event=event
    )


def recommendation_storyline(life: LifeContext) -> Storyline | None:
    """A friend says what to read."""
    rng, who, work = life.rng, life.any_of("friend"), life.rng.choice(book_titles())
    at = life.before(life.rows.start, 40 * DAY_SECONDS)
    text = expand_rule(rng, "chat.recommend", {"work": work})
    talk = life.rows.say("Chats", [who], sender=who, text=text, at=at)
    return Storyline(kind="recommendation", who=(who.id,), when=at, what=work, talk=talk)


def loan_storyline(life: LifeContext) -> Storyline | None:
    """A person borrows a thing."""
    rng, who, thing = life.rng, life.any_of("neighbour", "friend"), life.rng.choice(word_list("things"))
    at = life.before(life.rows.start, 40 * DAY_SECONDS)
    talk = life.rows.say("Messages", [who], sender=who, text=expand_rule(rng, "chat.borrow", {"thing": thing}), at=at)
    life.rows.say(
        "Messages", [who], sender=life.user, text=expand_rule(rng, "chat.lend", {"thing": thing}), at=at + 900
    )
    return Storyline(kind="loan", who=(who.id,), when=at, what=thing, talk=talk)


def parcel_storyline(life: LifeContext) -> Storyline | None:
    """A neighbour has taken in a parcel."""
    who, at = life.any_of("neighbour"), life.before(life.rows.start, 40 * DAY_SECONDS)
    talk = life.rows.say("Messages", [who], sender=who, text=expand_rule(life.rng, "chat.parcel", {}), at=at)
    return Storyline(kind="parcel", who=(who.id,), when=at, talk=talk)


def project_storyline(life: LifeContext) -> Storyline | None:
    """A colleague reports on a topic, and there are notes."""
    rng, who, topic = life.rng, life.any_of("colleague"), life.rng.choice(word_list("topics"))
    at = life.before(life.rows.start, 50 * DAY_SECONDS)
    other = rng.choice([one for one in life.people["colleague"] if one is not who])
    facts = {"topic": topic, "other": other.first}
    text = life.letter(who, life.user, expand_rule(rng, "project.mail", facts))
    mail = life.rows.mail(who, life.user, subject=f"{topic.capitalize()}: a report", text=text, at=at)
    number = len(life.rows.entries)
    path = f"Documents/Projects/{topic.replace(' ', '-')}/notes-{number}.md"
    life.rows.file(path, expand_rule(rng, "note.file", facts))
    return Storyline(kind="project", who=(who.id, other.id), when=at, what=topic, mails=(mail,), path=path)


def news_storyline(life: LifeContext) -> Storyline | None:
    """A shop writes to its customers."""
    rng, shop, at = life.rng, life.any_of("shop"), life.before(life.rows.start, 60 * DAY_SECONDS)
    what = rng.choice(word_list("products"))
    text = expand_rule(rng, "news.mail", {"firm": shop.name, "n": str(rng.randrange(5, 45, 5)), "what": what})
    mail = life.rows.mail(shop, life.user, subject=f"{shop.name}: {what} and more", text=text, at=at)
    return Storyline(kind="news", who=(shop.id,), when=at, what=what, mails=(mail,))


FAMILY_TIES = ("mother", "father", "sister", "brother", "aunt", "uncle")


def letter_storyline(life: LifeContext) -> Storyline | None:
    """A close person writes a letter, which the user may answer."""
    rng, ledger = life.rng, life.rows
    who, at = life.any_of("friend", *FAMILY_TIES), life.before(ledger.start, 60 * DAY_SECONDS)
    rule = "family.mail" if who.tie in FAMILY_TIES else "private.mail"
    kin = rng.choice(["father", "grandmother", "cousin"] if who.tie != "father" else ["mother", "cousin"])
    text = life.letter(who, life.user, expand_rule(rng, rule, {"kin": kin}))
    subject = rng.choice(("News", "Hello", "A sign of life", "How are you?", "From us", "Long time"))
    mails = [ledger.mail(who, life.user, subject=subject, text=text, at=at)]
    if rng.random() < 0.5 and at + 5 * HOUR_SECONDS < ledger.start:
        answer = life.letter(life.user, who, expand_rule(rng, "private.mail", {}))
        soon = at + rng.uniform(0.5, 4) * HOUR_SECONDS
        mails.append(ledger.mail(life.user, who, subject=f"Re: {subject}", text=answer, at=soon, parent=mails[0]))
    return Storyline(kind="letter", who=(who.id,), when=at, mails=tuple(mails))


STORYLINES: Mapping[str, tuple[StorylineFunction, float]] = {
    "meeting": (meeting_storyline, 1.4),
    "dinner": (dinner_storyline, 0.3),
    "appointment": (appointment_storyline, 0.4),
    "order": (order_storyline, 1.0),
    "invoice": (invoice_storyline, 0.8),
    "ride": (ride_storyline, 0.7),
    "viewing": (viewing_storyline, 0.15),
    "recommendation": (recommendation_storyline, 0.4),
    "loan": (loan_storyline, 0.3),
    "parcel": (parcel_storyline, 0.3),
    "project": (project_storyline, 1.2),
    "news": (news_storyline, 1.5),
    "letter": (letter_storyline, 1.2),
}
"""Each kind, and its frequency relative to the others."""


def add_chatter(life: LifeContext, count: int) -> None:
    """Small talk in chats of two and of groups, and in messages."""
    rng, ledger = life.rng, life.rows
    pairs: list[tuple[str, Sequence[Person], str | None]] = [
        ("Chats", [one], None) for tie in ("friend", "partner", *FAMILY_TIES) for one in life.people.get(tie, ())
    ]
    pairs += [("Messages", [one], None) for tie in ("colleague", "neighbour") for one in life.people.get(tie, ())]
    for tie, heading in (("friend", "Friends"), ("colleague", "Lunch"), ("neighbour", "House")):
        if len(life.people[tie]) >= 3:
            pairs.append(("Chats", life.people[tie][: rng.randint(3, 7)], heading))
    for app, people, title in pairs:
        days = [rng.uniform(0.1, 60) for _ in range(max(2, round(rng.gauss(count, count / 4))))]
        for day in sorted(days, reverse=True):
            at = daytime(rng, ledger.start - day * DAY_SECONDS)
            sender = rng.choice([*people, life.user])
            rule = "chat.work" if sender.tie == "colleague" and title is None else "chat.small"
            other = rng.choice([one for one in life.people["colleague"] if one not in people[:1]])
            facts = {"topic": rng.choice(word_list("topics")), "other": other.first}
            ledger.say(app, people, sender=sender, text=expand_rule(rng, rule, facts), at=at, title=title)


def make_storylines(life: LifeContext, often: int) -> list[Storyline]:
    """All matters of a life, in an order drawn at random; `often` is how often a usual one comes up."""
    makings = [making for making, weight in STORYLINES.values() for _ in range(max(1, round(often * weight)))]
    order = shuffled(life.rng, [str(n) for n in range(len(makings))])
    storylines = [makings[int(n)](life) for n in order]
    return [matter for matter in storylines if matter is not None]
