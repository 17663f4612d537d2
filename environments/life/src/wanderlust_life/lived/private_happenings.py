"""What happens among family, friends and neighbours: meals, loans, advice, trips, presents, favours, parties."""

from __future__ import annotations

from collections.abc import Sequence

from wanderlust_life.lived.chronicle import CLOSE_TIES, Chronicle, Line, midnight, moment_words
from wanderlust_life.lived.facts_ledger import Happening
from wanderlust_life.universes.ledger import DAY_SECONDS, HOUR_SECONDS
from wanderlust_life.universes.people import SERVICE_JOBS, Person
from wanderlust_life.universes.text_templates import format_day, format_price, word_list

HABIT_SHARE = 0.4
"""Share of meals at one of the places that are habits."""
VERDICTS = ("splendid", "tedious", "clever", "gripping", "gloomy", "overrated", "touching", "predictable")
FLAT_VERDICTS = ("dark", "lovely", "pricey", "damp", "charming", "noisy", "perfect", "tiny")


def meal(life: Chronicle) -> None:
    """Somebody proposes a meal; it takes place, is moved or is called off."""
    rng, when = life.rng, life.free((12, 13), (18, 20))
    if when is None:
        return
    circle = rng.choice(life.circles)
    people = rng.sample(circle, min(len(circle), rng.choice((1, 1, 2))))
    place = rng.choice(life.places[:4] if rng.random() < HABIT_SHARE else life.places)
    facts = {**moment_words(when), "place": place}
    lines = life.talk("Chats", people, "meal.plan", facts=facts, at=life.before(when))
    about = life.begin("meal")
    life.fact(about, "proposer", people[0].id, lines[0].record)
    for one in people:
        life.fact(about, "present", one.id, *(line.record for line in lines if line.sender is one))
    life.stated(about, lines, place=place)
    later, fate = life.between(lines[-1].at, when - HOUR_SECONDS), rng.random()
    if later is not None and fate < 0.22:
        _called_off(life, about, people, when=when, at=later, place=place)
        life.stated(about, lines, day=midnight(when), time=when % DAY_SECONDS)
        return
    if later is not None and fate < 0.45 and (other := _moved(life, about, people, when=when, at=later)):
        life.stated(about, lines, first_day=midnight(when))
        when = other
    else:
        life.stated(about, lines, day=midnight(when), time=when % DAY_SECONDS)
    life.entry(about, "Meal", when, hours=2, place=place, who=people)
    for one in people:
        life.fact(about, "present", one.id, about.records["entry"])
    _around_meal(life, about, people, when=when, place=place)


def _called_off(
    life: Chronicle, about: Happening, people: Sequence[Person], *, when: float, at: float, place: str
) -> None:
    who, reason = life.rng.choice(people), life.words.draw("reason")
    order = [who, *(one for one in people if one is not who)]
    facts = {**moment_words(when), "place": place, "reason": reason}
    lines = life.talk("Chats", order, "meal.cancel", facts=facts, at=at)
    life.fact(about, "canceller", who.id, lines[0].record)
    life.stated(about, lines, reason=reason)


def _moved(life: Chronicle, about: Happening, people: Sequence[Person], *, when: float, at: float) -> float | None:
    """The new time, which somebody asks for."""
    other = when + life.rng.choice((1, 2, 3, 4, 5)) * DAY_SECONDS
    if life.busy(other, 2 * HOUR_SECONDS):
        return None
    who, reason = life.rng.choice(people), life.words.draw("reason")
    order = [who, *(one for one in people if one is not who)]
    facts = {**moment_words(other), "old": format_day(when), "reason": reason}
    lines = life.talk("Chats", order, "meal.move", facts=facts, at=at)
    life.fact(about, "mover", who.id, lines[0].record)
    life.stated(about, lines, day=midnight(other), time=other % DAY_SECONDS, reason=reason)
    return other


def _around_meal(life: Chronicle, about: Happening, people: Sequence[Person], *, when: float, place: str) -> None:
    """A reminder, a mistake about the place, the way there and the bill."""
    rng, past = life.rng, when + 4 * HOUR_SECONDS < life.rows.start
    facts = {**moment_words(when), "place": place, "other": rng.choice([one for one in life.places if one != place])}
    if rng.random() < 0.25 and when - 20 * HOUR_SECONDS < life.rows.start:
        life.talk("Chats", people, "meal.remind", facts=facts, at=when - rng.uniform(20, 23) * HOUR_SECONDS)
    if not past:
        return
    if rng.random() < 0.15:
        life.talk("Chats", people, "meal.wrong", facts=facts, at=when - 900)
    if rng.random() < 0.5:
        ride(life, place, when - 0.5 * HOUR_SECONDS)
    if rng.random() < 0.65:
        payer, amount = rng.choice(people), round(rng.uniform(18, 140), 2)
        order = [payer, *(one for one in people if one is not payer)]
        words = {"amount": format_price(amount)}
        lines = life.talk("Chats", order, "meal.paid", facts=words, at=when + 3 * HOUR_SECONDS)
        life.fact(about, "payer", payer.id, lines[0].record)
        life.stated(about, lines, amount=amount)


def ride(life: Chronicle, place: str, at: float) -> None:
    """A ride in a cab from home, and sometimes its receipt."""
    rng = life.rng
    service = rng.choice(("Default", "Default", "Premium", "Van"))
    made = life.rows.ride(life.user.address, place, service=service, km=round(rng.uniform(2, 19), 1), at=at)
    about, price = life.begin("ride"), made.price or 0.0
    record = f"Cabs/{made.ride_id}"
    for attribute, value in (("place", place), ("day", midnight(at)), ("amount", price), ("service", service)):
        life.fact(about, attribute, value, record)
    if rng.random() < 0.4:
        facts = {
            "start": life.user.address,
            "place": place,
            "km": f"{made.distance_km:g}",
            "amount": format_price(price),
        }
        facts |= moment_words(at)
        cab = life.ties["cab"][0]
        line = life.mail(
            cab, life.user, rule="ride.receipt", facts=facts, subject="Your receipt", at=at + 2 * HOUR_SECONDS
        )
        life.stated(about, [line], place=place, day=midnight(at), amount=price)


def loan(life: Chronicle) -> None:
    """Somebody borrows a thing; it comes back, or is asked for."""
    rng = life.rng
    who = rng.choice([one for tie in ("neighbour", "friend") for one in life.ties[tie]])
    app, thing = "Messages" if who.tie == "neighbour" else "Chats", rng.choice(word_list("things") + word_list("tools"))
    at = life.before(life.rows.start, 130 * DAY_SECONDS)
    due = midnight(at) + rng.randint(3, 20) * DAY_SECONDS
    lines = life.talk(app, [who], "loan.ask", facts={"thing": thing, "due": format_day(due)}, at=at)
    about = life.begin("loan")
    life.fact(about, "borrower", who.id, lines[0].record)
    life.fact(about, "said", midnight(at), lines[0].record)
    life.stated(about, lines[:1], thing=thing)
    life.stated(about, lines, due=due)
    late = life.between(due + 12 * HOUR_SECONDS, due + 9 * DAY_SECONDS)
    if late is not None and rng.random() < 0.4:
        reply = life.talk(app, [who], "loan.late", facts={"thing": thing}, at=late)
        life.fact(about, "status", "late", reply[0].record)
    elif (back := life.between(at + DAY_SECONDS, due + 15 * HOUR_SECONDS)) is not None:
        returned = life.talk(app, [who], "loan.back", facts={"thing": thing}, at=back)
        life.fact(about, "status", "returned", returned[0].record)


def advice(life: Chronicle) -> None:
    """Somebody says what to read; later the user says what it was like."""
    rng, who, work = life.rng, life.rng.choice(close_people(life)), life.words.draw("work")
    if any(one.value("work") == work for one in life.happenings.values() if one.kind == "advice"):
        return
    at = life.before(life.rows.start, 120 * DAY_SECONDS)
    lines = life.talk("Chats", [who], "advice.give", facts={"work": work}, at=at)
    about = life.begin("advice")
    life.fact(about, "adviser", who.id, lines[0].record)
    life.fact(about, "said", midnight(at), lines[0].record)
    life.stated(about, lines[:1], work=work)
    later = life.between(at + 5 * DAY_SECONDS, at + 40 * DAY_SECONDS)
    if later is not None and rng.random() < 0.7:
        verdict = rng.choice(VERDICTS)
        after = life.talk("Chats", [who], "advice.after", facts={"work": work, "verdict": verdict}, at=later)
        life.stated(about, after[:1], verdict=verdict)


def close_people(life: Chronicle) -> Sequence[Person]:
    """Friends and family."""
    return [one for tie in CLOSE_TIES for one in life.ties.get(tie, ())]


def trip(life: Chronicle) -> None:
    """A short journey with somebody, booked by mail."""
    rng, when = life.rng, life.free((7, 8), length=HOUR_SECONDS)
    if when is None:
        return
    who, place, nights = rng.choice(close_people(life)), life.words.draw("faraway"), rng.randint(2, 6)
    at, house = life.before(when, 30 * DAY_SECONDS), rng.choice(life.places)
    facts = {**moment_words(when), "place": place, "nights": str(nights), "house": house}
    lines = life.talk("Chats", [who], "trip.plan", facts=facts, at=at)
    about = life.begin("trip")
    life.fact(about, "companion", who.id, lines[0].record)
    number, amount = f"T-{life.rows.new_id('')[-11:-4]}", round(nights * rng.uniform(38, 120), 2)
    agency = life.ties["agency"][0]
    facts |= {"number": number, "amount": format_price(amount)}
    booked = life.mail(
        agency, life.user, rule="trip.booked", facts=facts, subject="Your booking", at=lines[-1].at + 5 * HOUR_SECONDS
    )
    about.records["mail"] = booked.record
    life.stated(about, [*lines, booked], place=place, nights=float(nights), day=midnight(when))
    life.stated(about, [booked], amount=amount, number=number)
    life.entry(about, "Leave for the station", when, hours=1, place="", who=[who])
    life.fact(about, "companion", who.id, about.records["entry"])
    after = life.between(when + (nights + 1) * DAY_SECONDS, when + (nights + 8) * DAY_SECONDS)
    if after is not None:
        life.talk("Chats", [who], "trip.after", facts={"place": place}, at=after)


def collection(life: Chronicle) -> None:
    """People collect money for somebody's present."""
    rng = life.rng
    circle = [one for one in rng.choice(life.circles)]
    if len(circle) < 3:
        return
    asker, helper, receiver = rng.sample(circle, 3)
    gift, amount = rng.choice(word_list("gifts")), float(rng.randrange(5, 41))
    at = life.before(life.rows.start, 120 * DAY_SECONDS)
    day = midnight(at) + rng.randint(4, 24) * DAY_SECONDS
    facts = {"person": receiver.name, "thing": gift, "amount": format_price(amount), "day": format_day(day)}
    lines = life.talk("Chats", [asker, helper], "collect.ask", facts=facts, at=at)
    about = life.begin("collection")
    life.fact(about, "asker", asker.id, lines[0].record)
    life.fact(about, "helper", helper.id, *(line.record for line in lines if line.sender is helper))
    life.stated(about, lines, thing=gift, amount=amount, receiver=receiver.id, day=day)


def favour(life: Chronicle) -> None:
    """Somebody asks the user to do something while they are away; a neighbour has the key."""
    rng = life.rng
    asker, keeper = rng.sample(life.ties["neighbour"], 2)
    at = life.before(life.rows.start, 120 * DAY_SECONDS)
    day, task = midnight(at) + rng.randint(2, 9) * DAY_SECONDS, rng.choice(word_list("favours"))
    facts = {"task": task, "day": format_day(day), "keeper": keeper.name}
    lines = life.talk("Messages", [asker], "favour.ask", facts=facts, at=at)
    about = life.begin("favour")
    life.fact(about, "asker", asker.id, lines[0].record)
    life.stated(about, lines[:1], task=task, day=day, keeper=keeper.id)
    thanks = life.between(day + 2 * DAY_SECONDS, day + 9 * DAY_SECONDS)
    if thanks is not None:
        life.talk("Messages", [asker], "favour.thanks", facts={}, at=thanks)


def referral(life: Chronicle) -> None:
    """A friend names somebody who serves the user ever since."""
    rng = life.rng
    named = {one.value("provider") for one in life.happenings.values() if one.kind == "referral"}
    services = [one for tie in sorted(SERVICE_JOBS) for one in life.ties.get(tie, ()) if one.id not in named]
    if not services:
        return
    who, provider = rng.choice(close_people(life)), rng.choice(services)
    at = life.before(life.rows.start - 60 * DAY_SECONDS, 70 * DAY_SECONDS)
    life.knows |= {(who.id, provider.id), (provider.id, who.id)}
    facts = {"trade": provider.tie, "person": provider.name}
    lines = life.talk("Chats", [who], "referral.ask", facts=facts, at=at)
    about = life.begin("referral")
    answer = lines[1:]
    life.fact(about, "adviser", who.id, answer[0].record)
    life.fact(about, "said", midnight(answer[0].at), answer[0].record)
    life.stated(about, answer, provider=provider.id)


def party(life: Chronicle) -> None:
    """A birthday: an invitation, and the user's answer."""
    rng, when = life.rng, life.free((15, 19), length=3 * HOUR_SECONDS)
    hosts = {one.value("host") for one in life.happenings.values() if one.kind == "party"}
    people = [one for one in close_people(life) if one.id not in hosts]
    if when is None or not people:
        return
    host = rng.choice(people)
    age = host.age + (when > life.rows.start)
    place = host.address if rng.random() < 0.4 else rng.choice(life.places)
    facts = {**moment_words(when), "age": str(age), "place": place}
    at = life.before(when, 20 * DAY_SECONDS)
    mail = life.mail(host, life.user, rule="party.invite", facts=facts, subject="An invitation", at=at)
    about = life.begin("party")
    about.records["mail"] = mail.record
    life.fact(about, "host", host.id, mail.record)
    life.stated(about, [mail], day=midnight(when), time=when % DAY_SECONDS, place=place, age=float(age))
    reply_at = life.between(at, when - DAY_SECONDS)
    if reply_at is None:
        return
    words = {"day": facts["day"], "food": rng.choice(word_list("foods"))}
    answer = life.mail(
        life.user, host, rule="party.yes", facts=words, subject="Re: An invitation", at=reply_at, parent=mail
    )
    life.entry(about, "Birthday", when, hours=3, place=place, who=[host])
    life.fact(about, "host", host.id, about.records["entry"])
    life.stated(about, [answer], day=midnight(when), thing=words["food"])


def parcel(life: Chronicle) -> None:
    """A neighbour has signed for a parcel of a shop."""
    who, shop = life.rng.choice(life.ties["neighbour"]), life.rng.choice(life.ties["shop"])
    at = life.before(life.rows.start, 120 * DAY_SECONDS)
    lines: list[Line] = life.talk("Messages", [who], "parcel.here", facts={"shop": shop.name}, at=at)
    about = life.begin("parcel")
    life.fact(about, "helper", who.id, lines[0].record)
    life.fact(about, "said", midnight(at), lines[0].record)
    life.stated(about, lines[:1], shop=shop.id)
