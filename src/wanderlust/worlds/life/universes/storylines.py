"""What happens in a life: each kind of matter writes to several apps what they should know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from wanderlust.worlds.life.universes.ledger import DAY, HOUR, Ledger, Matter, awake
from wanderlust.worlds.life.universes.people import SERVICES, Person
from wanderlust.worlds.life.universes.text_templates import day_of, deck, form, money, say, time_of, titles, words


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What matters are made from."""

    ledger: Ledger
    rng: Random
    people: Mapping[str, tuple[Person, ...]]
    """By what they are to the user."""
    places: tuple[str, ...]
    streets: tuple[str, ...]
    town: str

    @property
    def user(self) -> Person:
        """Whose life it is."""
        return self.ledger.user

    def any_of(self, *ties: str) -> Person:
        """Somebody of these."""
        return self.rng.choice([one for tie in ties for one in self.people.get(tie, ())])

    def letter(self, sender: Person, to: Person, text: str) -> str:
        """A mail around a text."""
        known = {"to": to.first, "me": sender.first if to.last and sender.last else sender.name}
        opening = form(self.rng, "<hello>~~", known)
        kind = form(self.rng, "<hope> ", known) if sender.last and self.rng.random() < 0.4 else ""
        return f"{opening}{kind}{text}\n\n{say(self.rng, 'bye', known)}"

    def number(self, letters: str) -> str:
        """A number of an order, a booking or an invoice."""
        return f"{letters}-{self.ledger.new_id('')[-11:-6]}{self.rng.randrange(100):02d}"

    def before(self, when: float, most: float = 9 * DAY) -> float:
        """A time before something, in the past, when people are awake."""
        latest = min(when - 3 * HOUR, self.ledger.start - HOUR)
        at = latest - self.rng.uniform(0, most)
        return awake(self.rng, at)


Making: TypeAlias = Callable[[Life], Matter | None]


def meeting(life: Life) -> Matter | None:
    """A colleague asks for a meeting; the user says yes, or not."""
    rng, ledger, user = life.rng, life.ledger, life.user
    when = ledger.free((-40, 20), (9, 16))
    if when is None:
        return None
    who = rng.sample(life.people["colleague"], min(len(life.people["colleague"]), rng.randint(1, 3)))
    topic, place, at = rng.choice(words("topics")), f"room {rng.randint(1, 4)}.{rng.randint(10, 29)}", life.before(when)
    facts = {"topic": topic, "day": day_of(when), "time": time_of(when), "place": place}
    text = life.letter(who[0], user, form(rng, "<ask.meeting> <work.more> <work.more>", facts))
    asked = ledger.mail(who[0], user, subject=topic.capitalize(), text=text, at=at)
    comes = rng.random() < 0.75
    answer = life.letter(user, who[0], say(rng, "yes.meeting" if comes else "no.meeting", facts))
    soon = at + rng.uniform(0.1, 0.9) * HOUR
    replied = ledger.mail(user, who[0], subject=f"Re: {topic.capitalize()}", text=answer, at=soon, parent=asked)
    known: dict[str, Any] = {"who": tuple(one.id for one in who), "when": when, "place": place, "what": topic}
    if not comes:
        return Matter(kind="declined", mails=(asked, replied), **known)
    event = ledger.event(topic.capitalize(), when, when + HOUR, place=place, who=who, tag="work")
    if when < ledger.start - DAY and rng.random() < 0.5:
        after = life.letter(who[0], user, say(rng, "meeting.after", facts))
        ledger.mail(who[0], user, subject=f"Re: {topic.capitalize()}", text=after, at=when + 3 * HOUR, parent=replied)
    return Matter(kind="meeting", mails=(asked, replied), event=event, **known)


def dinner(life: Life) -> Matter | None:
    """Somebody asks the user to dinner in a chat."""
    rng, ledger, user = life.rng, life.ledger, life.user
    when = ledger.free((-30, 18), (18, 20), length=2 * HOUR, weekend=True)
    if when is None:
        return None
    friend, place, at = life.any_of("friend", "partner", *FAMILY), rng.choice(life.places), life.before(when, 5 * DAY)
    facts = {"day": day_of(when), "time": time_of(when), "place": place}
    talk = ledger.say("Chats", [friend], sender=friend, text=say(rng, "chat.dinner", facts), at=at)
    ledger.say("Chats", [friend], sender=user, text=say(rng, "chat.yes", facts), at=at + rng.uniform(60, HOUR))
    title = f"Dinner with {friend.first}"
    event = ledger.event(title, when, when + 2 * HOUR, place=place, who=[friend], tag="private")
    return Matter(kind="dinner", who=(friend.id,), when=when, place=place, talk=talk, event=event)


def appointment(life: Life) -> Matter | None:
    """A practice, a salon or a garage confirms an appointment."""
    rng, ledger = life.rng, life.ledger
    when = ledger.free((-50, 25), (8, 17), length=HOUR / 2)
    ties = [tie for tie in SERVICES if tie in life.people and tie != "landlord"]
    if when is None or not ties:
        return None
    who = life.any_of(rng.choice(ties))
    number, place, at = life.number("T"), who.address, life.before(when, 20 * DAY)
    facts = {"day": day_of(when), "time": time_of(when), "place": place, "number": number}
    text = life.letter(who, life.user, say(rng, "dentist.mail", facts))
    mail = ledger.mail(who, life.user, subject=f"Your appointment on {day_of(when)}", text=text, at=at)
    if rng.random() < 0.3:
        thanks = life.letter(life.user, who, say(rng, "thanks.mail", {}))
        subject = f"Re: Your appointment on {day_of(when)}"
        ledger.mail(life.user, who, subject=subject, text=thanks, at=at + HOUR, parent=mail)
    title = f"{who.tie.capitalize()}: {who.name}"
    event = ledger.event(title, when, when + HOUR / 2, place=place, who=[who], tag="errand", about=f"Booking {number}")
    return Matter(kind="appointment", who=(who.id,), when=when, place=place, number=number, mails=(mail,), event=event)


def order(life: Life) -> Matter | None:
    """Something is ordered; the shop writes, and writes again when it is on its way."""
    rng, ledger, shop = life.rng, life.ledger, life.any_of("shop")
    product = rng.choice([*ledger.products.values()])
    item, quantity, number = rng.choice([*product.variants]), rng.choice((1, 1, 1, 2, 3)), life.number("W")
    days = rng.uniform(1, 60)
    at = awake(rng, ledger.start - days * DAY - HOUR)
    status = "processed" if days < 3 else "shipped" if days < 6 else rng.choice(("delivered",) * 6 + ("cancelled",))
    made = ledger.order(product, item, quantity=quantity, at=at, status=status, number=number)
    options = ", ".join(map(str, product.variants[item].options.values()))
    name = f"{product.name} ({options})"
    each = product.variants[item].price
    facts = {"number": number, "day": day_of(at), "lines": f"{quantity} x {name}, {money(each)} each"}
    facts |= {"amount": money(made.order_total), "what": name}
    text = life.letter(shop, life.user, say(rng, "order.mail", facts))
    mails = [ledger.mail(shop, life.user, subject=f"Your order {number}", text=text, at=at + 120)]
    if status in ("shipped", "delivered"):
        later = at + 2 * DAY + rng.uniform(0, 5) * HOUR
        gone = life.letter(shop, life.user, say(rng, "shipped.mail", {**facts, "day": day_of(later)}))
        mails.append(ledger.mail(shop, life.user, subject=f"Order {number} is on its way", text=gone, at=later))
    return Matter(
        kind="order", who=(shop.id,), when=at, what=name, amount=made.order_total, number=number, mails=tuple(mails)
    )


def invoice(life: Life) -> Matter | None:
    """A bill comes by mail, and is kept as a file."""
    rng, ledger = life.rng, life.ledger
    who = life.any_of(*(tie for tie in SERVICES if tie in life.people))
    number, at = life.number("R"), ledger.start - rng.uniform(1, 80) * DAY
    what = "the rent of last month" if who.tie == "landlord" else f"my work as your {who.tie}"
    amount = round(rng.uniform(25, 480) if who.tie != "landlord" else 100 * rng.randint(7, 14), 2)
    due = at + 14 * DAY
    facts = {"number": number, "day": day_of(at), "what": what, "amount": money(amount), "due": day_of(due)}
    text = life.letter(who, life.user, say(rng, "invoice.mail", facts))
    mail = ledger.mail(who, life.user, subject=f"Invoice {number}", text=text, at=at)
    body = f"Invoice {number}\nFrom: {who.name}\nFor: {what}\nAmount: {money(amount)}\nDue: {day_of(due)}\n"
    path = ledger.file(f"Documents/Invoices/{who.last.lower()}-{number}.txt", body)
    return Matter(
        kind="invoice", who=(who.id,), when=at, what=what, amount=amount, number=number, mails=(mail,), path=path
    )


def ride(life: Life) -> Matter | None:
    """A ride in a cab, and its receipt."""
    rng, ledger = life.rng, life.ledger
    at, driver = life.before(ledger.start - DAY / 2, 60 * DAY), str(rng.randrange(100, 1000))
    km, place = round(rng.uniform(2, 19), 1), rng.choice(life.places)
    made = ledger.ride(life.user.address, place, service=rng.choice(("Default", "Default", "Premium")), km=km, at=at)
    facts = {"day": day_of(at), "time": time_of(at), "start": life.user.address, "place": place}
    facts |= {"km": f"{km:g}", "amount": money(made.price or 0), "driver": driver}
    cab = life.people["cab"][0]
    text = life.letter(cab, life.user, say(rng, "ride.mail", facts))
    mail = ledger.mail(cab, life.user, subject=f"Your ride to {place}", text=text, at=at + HOUR)
    return Matter(kind="ride", when=at, place=place, amount=made.price or 0, number=made.ride_id, mails=(mail,))


def viewing(life: Life) -> Matter | None:
    """Somebody shows a flat that is on the market."""
    rng, ledger = life.rng, life.ledger
    when = ledger.free((-10, 14), (9, 19), length=HOUR / 2)
    if when is None:
        return None
    flat, who = rng.choice([*ledger.flats.values()]), life.any_of("agency")
    facts = {"flat": flat.name, "street": flat.location, "day": day_of(when), "time": time_of(when)}
    text = life.letter(who, life.user, say(rng, "viewing.mail", {**facts, "amount": money(flat.price)}))
    mail = ledger.mail(who, life.user, subject=f"Viewing: {flat.name}", text=text, at=life.before(when))
    title = f"Viewing: {flat.name}"
    event = ledger.event(title, when, when + HOUR / 2, place=flat.location, who=[who], tag="flat")
    return Matter(
        kind="viewing", who=(who.id,), when=when, what=flat.apartment_id, amount=flat.price, mails=(mail,), event=event
    )


def recommendation(life: Life) -> Matter | None:
    """A friend says what to read."""
    rng, who, work = life.rng, life.any_of("friend"), life.rng.choice(titles())
    at = life.before(life.ledger.start, 40 * DAY)
    text = say(rng, "chat.recommend", {"work": work})
    talk = life.ledger.say("Chats", [who], sender=who, text=text, at=at)
    return Matter(kind="recommendation", who=(who.id,), when=at, what=work, talk=talk)


def loan(life: Life) -> Matter | None:
    """Somebody borrows a thing."""
    rng, who, thing = life.rng, life.any_of("neighbour", "friend"), life.rng.choice(words("things"))
    at = life.before(life.ledger.start, 40 * DAY)
    talk = life.ledger.say("Messages", [who], sender=who, text=say(rng, "chat.borrow", {"thing": thing}), at=at)
    life.ledger.say("Messages", [who], sender=life.user, text=say(rng, "chat.lend", {"thing": thing}), at=at + 900)
    return Matter(kind="loan", who=(who.id,), when=at, what=thing, talk=talk)


def parcel(life: Life) -> Matter | None:
    """A neighbour has taken in a parcel."""
    who, at = life.any_of("neighbour"), life.before(life.ledger.start, 40 * DAY)
    talk = life.ledger.say("Messages", [who], sender=who, text=say(life.rng, "chat.parcel", {}), at=at)
    return Matter(kind="parcel", who=(who.id,), when=at, talk=talk)


def project(life: Life) -> Matter | None:
    """A colleague reports on a topic, and there are notes."""
    rng, who, topic = life.rng, life.any_of("colleague"), life.rng.choice(words("topics"))
    at = life.before(life.ledger.start, 50 * DAY)
    other = rng.choice([one for one in life.people["colleague"] if one is not who])
    facts = {"topic": topic, "other": other.first}
    text = life.letter(who, life.user, say(rng, "project.mail", facts))
    mail = life.ledger.mail(who, life.user, subject=f"{topic.capitalize()}: a report", text=text, at=at)
    number = len(life.ledger.entries)
    path = f"Documents/Projects/{topic.replace(' ', '-')}/notes-{number}.md"
    life.ledger.file(path, say(rng, "note.file", facts))
    return Matter(kind="project", who=(who.id, other.id), when=at, what=topic, mails=(mail,), path=path)


def news(life: Life) -> Matter | None:
    """A shop writes to its customers."""
    rng, shop, at = life.rng, life.any_of("shop"), life.before(life.ledger.start, 60 * DAY)
    what = rng.choice(words("products"))
    text = say(rng, "news.mail", {"firm": shop.name, "n": str(rng.randrange(5, 45, 5)), "what": what})
    mail = life.ledger.mail(shop, life.user, subject=f"{shop.name}: {what} and more", text=text, at=at)
    return Matter(kind="news", who=(shop.id,), when=at, what=what, mails=(mail,))


FAMILY = ("mother", "father", "sister", "brother", "aunt", "uncle")


def letter(life: Life) -> Matter | None:
    """Somebody close writes, and the user may answer."""
    rng, ledger = life.rng, life.ledger
    who, at = life.any_of("friend", *FAMILY), life.before(ledger.start, 60 * DAY)
    rule = "family.mail" if who.tie in FAMILY else "private.mail"
    kin = rng.choice(["father", "grandmother", "cousin"] if who.tie != "father" else ["mother", "cousin"])
    text = life.letter(who, life.user, say(rng, rule, {"kin": kin}))
    subject = rng.choice(("News", "Hello", "A sign of life", "How are you?", "From us", "Long time"))
    mails = [ledger.mail(who, life.user, subject=subject, text=text, at=at)]
    if rng.random() < 0.5 and at + 5 * HOUR < ledger.start:
        answer = life.letter(life.user, who, say(rng, "private.mail", {}))
        soon = at + rng.uniform(0.5, 4) * HOUR
        mails.append(ledger.mail(life.user, who, subject=f"Re: {subject}", text=answer, at=soon, parent=mails[0]))
    return Matter(kind="letter", who=(who.id,), when=at, mails=tuple(mails))


KINDS: Mapping[str, tuple[Making, float]] = {
    "meeting": (meeting, 1.4),
    "dinner": (dinner, 0.3),
    "appointment": (appointment, 0.4),
    "order": (order, 1.0),
    "invoice": (invoice, 0.8),
    "ride": (ride, 0.7),
    "viewing": (viewing, 0.15),
    "recommendation": (recommendation, 0.4),
    "loan": (loan, 0.3),
    "parcel": (parcel, 0.3),
    "project": (project, 1.2),
    "news": (news, 1.5),
    "letter": (letter, 1.2),
}
"""Each kind, and how often it comes up compared with the others."""


def chatter(life: Life, count: int) -> None:
    """Small talk in chats of two and of groups, and in messages."""
    rng, ledger = life.rng, life.ledger
    pairs: list[tuple[str, Sequence[Person], str | None]] = [
        ("Chats", [one], None) for tie in ("friend", "partner", *FAMILY) for one in life.people.get(tie, ())
    ]
    pairs += [("Messages", [one], None) for tie in ("colleague", "neighbour") for one in life.people.get(tie, ())]
    for tie, heading in (("friend", "Friends"), ("colleague", "Lunch"), ("neighbour", "House")):
        if len(life.people[tie]) >= 3:
            pairs.append(("Chats", life.people[tie][: rng.randint(3, 7)], heading))
    for app, people, title in pairs:
        for at in _moments(rng, ledger.start, max(2, round(rng.gauss(count, count / 4)))):
            sender = rng.choice([*people, life.user])
            rule = "chat.work" if sender.tie == "colleague" and title is None else "chat.small"
            other = rng.choice([one for one in life.people["colleague"] if one not in people[:1]])
            facts = {"topic": rng.choice(words("topics")), "other": other.first}
            ledger.say(app, people, sender=sender, text=say(rng, rule, facts), at=at, title=title)


def _moments(rng: Random, start: float, count: int) -> Iterator[float]:
    days = [rng.uniform(0.1, 60) for _ in range(count)]
    yield from (awake(rng, start - day * DAY) for day in sorted(days, reverse=True))


def live(life: Life, often: int) -> list[Matter]:
    """All matters of a life, in an order drawn at random; `often` is how often a usual one comes up."""
    makings = [making for making, weight in KINDS.values() for _ in range(max(1, round(often * weight)))]
    order = deck(life.rng, [str(n) for n in range(len(makings))])
    found = [makings[int(n)](life) for n in order]
    return [matter for matter in found if matter is not None]
