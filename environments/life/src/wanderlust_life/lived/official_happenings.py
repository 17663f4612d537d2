"""What happens with firms and at work: appointments, bills, meetings, orders, flats, courses."""

from __future__ import annotations

from collections.abc import Sequence

from wanderlust_life.lived.chronicle import Chronicle, Line, midnight, moment_words, replace_text
from wanderlust_life.lived.facts_ledger import Happening
from wanderlust_life.lived.private_happenings import FLAT_VERDICTS, close_people, ride
from wanderlust_life.universes.ledger import DAY_SECONDS, HOUR_SECONDS
from wanderlust_life.universes.people import SERVICE_JOBS, Person
from wanderlust_life.universes.text_templates import format_day, format_price, word_list

OPEN_DAYS = 3.0
"""Days in which an order is still being packed."""


def appointment(life: Chronicle) -> None:
    """Somebody who serves the user confirms a visit, and may postpone it."""
    rng, when = life.rng, life.free((8, 17), (9, 16), length=HOUR_SECONDS, weekend=False)
    ties = [tie for tie in sorted(SERVICE_JOBS) if tie in life.ties and tie != "landlord"]
    if when is None or not ties:
        return
    who = life.ties[rng.choice(ties)][0]
    number, at = f"B-{life.rows.new_id('')[-11:-4]}", life.before(when, 15 * DAY_SECONDS)
    facts = {**moment_words(when), "place": who.address, "number": number}
    subject = rng.choice(("Your visit", "Confirmation", f"Booking {number}"))
    mail = life.mail(who, life.user, rule="appointment.confirm", facts=facts, subject=subject, at=at)
    about, lines = life.begin("appointment"), [mail]
    about.records["mail"] = mail.record
    life.fact(about, "provider", who.id, mail.record)
    life.stated(about, [mail], number=number, place=who.address)
    later = life.between(at + 4 * HOUR_SECONDS, when - DAY_SECONDS)
    other = when + rng.choice((1, 2, 6, 7)) * DAY_SECONDS
    if later is not None and rng.random() < 0.3 and not life.busy(other, HOUR_SECONDS):
        lines = _postponed(life, about, who, mail=mail, days=(when, other), at=later, subject=subject)
        life.stated(about, [mail], first_day=midnight(when))
        when = other
    life.stated(about, lines, day=midnight(when), time=when % DAY_SECONDS)
    life.entry(about, f"{who.tie.capitalize()}: {who.name}", when, hours=0.5, place=who.address, who=[who])
    life.fact(about, "provider", who.id, about.records["entry"])
    if when + 5 * HOUR_SECONDS > life.rows.start:
        return
    if rng.random() < 0.5:
        ride(life, who.address, when - 0.5 * HOUR_SECONDS)
    if rng.random() < 0.7:
        bill(life, who, when)


def _postponed(
    life: Chronicle,
    about: Happening,
    who: Person,
    *,
    mail: Line,
    days: tuple[float, float],
    at: float,
    subject: str,
) -> list[Line]:
    reason = life.words.draw("reason")
    facts = {**moment_words(days[1]), "old": format_day(days[0]), "reason": reason}
    moved = life.mail(
        who, life.user, rule="appointment.move", facts=facts, subject=f"Re: {subject}", at=at, parent=mail
    )
    answer_at = life.between(at, at + 8 * HOUR_SECONDS)
    lines = [moved]
    if answer_at is not None:
        answer = life.mail(
            life.user, who, rule="appointment.ok", facts=facts, subject=f"Re: {subject}", at=answer_at, parent=moved
        )
        lines.append(answer)
    life.stated(about, [moved], reason=reason)
    return lines


def bill(life: Chronicle, who: Person, when: float) -> None:
    """A bill by mail, whose attachment is kept as a file."""
    rng, at = life.rng, when + life.rng.uniform(6, 60) * HOUR_SECONDS
    if at > life.rows.start:
        return
    number, amount = f"R-{life.rows.new_id('')[-11:-4]}", round(rng.uniform(25, 480), 2)
    due, what = at + 14 * DAY_SECONDS, f"my work as your {who.tie}"
    words = {"number": number, "day": format_day(when), "what": what, "amount": format_price(amount)}
    words["due"] = format_day(due)
    text = (
        f"Invoice {number}\nFrom: {who.name}\nWork of: {words['day']}\nAmount: {words['amount']}\nDue: {words['due']}\n"
    )
    name = f"invoice-{number}.txt"
    mail = life.mail(
        who, life.user, rule="bill.mail", facts=words, subject=f"Invoice {number}", at=at, files={name: text}
    )
    about = life.begin("bill")
    about.records |= {"mail": mail.record, "file": f"Files/{life.rows.file(f'Documents/Invoices/{name}', text)}"}
    file = Line(record=about.records["file"], sender=who, text=text, at=at)
    life.fact(about, "issuer", who.id, mail.record, file.record)
    life.stated(about, [mail, file], number=number, amount=amount, due=midnight(due), day=midnight(when))


def meeting(life: Chronicle) -> None:
    """A colleague asks for a meeting, by mail and with copies; it may be moved or dropped, and has minutes."""
    rng, when = life.rng, life.free((9, 16), length=HOUR_SECONDS, weekend=False)
    if when is None:
        return
    colleagues = life.ties["colleague"]
    people = rng.sample(colleagues, min(len(colleagues), rng.randint(2, 4)))
    topic, place = life.words.draw("topic"), f"room {rng.randint(1, 4)}.{rng.randint(10, 29)}"
    about = life.begin("meeting")
    lines = _asked(life, about, people, when=when, place=place, topic=topic)
    life.fact(about, "organiser", people[0].id, lines[0].record)
    life.stated(about, lines, topic=topic, place=place)
    later, fate = life.between(lines[-1].at, when - HOUR_SECONDS), rng.random()
    subject = f"Re: {topic.capitalize()}"
    if later is not None and fate < 0.35:
        moved, reason = fate < 0.2, life.words.draw("reason")
        other = when + rng.choice((1, 7, 7)) * DAY_SECONDS
        if moved and (life.busy(other, HOUR_SECONDS) or not is_workday(other)):
            moved = False
        facts = {**moment_words(other), "old": format_day(when), "topic": topic, "reason": reason}
        rule = "meeting.move" if moved else "meeting.off"
        note = life.mail(
            people[0], life.user, rule=rule, facts=facts, subject=subject, at=later, parent=lines[-1], cc=people[1:]
        )
        life.stated(about, [note], reason=reason)
        if not moved:
            life.fact(about, "canceller", people[0].id, note.record)
            life.stated(about, lines, day=midnight(when), time=when % DAY_SECONDS)
            return
        life.fact(about, "mover", people[0].id, note.record)
        life.stated(about, lines, first_day=midnight(when))
        when, lines = other, [note]
    life.stated(about, lines, day=midnight(when), time=when % DAY_SECONDS)
    life.entry(about, topic.capitalize(), when, hours=1, place=place, who=people)
    for one in people:
        life.fact(about, "attendee", one.id, about.records["entry"])
    _minutes(life, about, people, when=when, topic=topic)


def _asked(
    life: Chronicle, about: Happening, people: Sequence[Person], *, when: float, place: str, topic: str
) -> list[Line]:
    """The thread that asks for a meeting, and sometimes a copy that somebody passes on."""
    facts, at = {**moment_words(when), "place": place, "topic": topic}, life.before(when)
    text, words = life.words.text("meeting.ask", facts)
    asked, answered = (part.partition(": ")[2] for part in text.split(" // "))
    subject, (first, *others) = topic.capitalize(), people
    question = life.letter(first, life.user, asked)
    sent = Line(record="", sender=first, text=question, at=at, words=words)
    mail = life.post(sent, life.user, subject=subject, cc=others)
    about.records["mail"] = mail.record
    reply = life.letter(life.user, first, answered)
    back = Line(record="", sender=life.user, text=reply, at=at + life.rng.uniform(300, 7_000), words=words)
    answer = life.post(back, first, subject=f"Re: {subject}", parent=mail, cc=others)
    question_alone = asked.partition("?")[0] + "?"
    life.note_turns([replace_text(mail, question_alone), replace_text(answer, answered)])
    if life.rng.random() < 0.3:
        note, _ = life.words.text("meeting.forward", facts)
        text = f"{note}\n\n-------- {first.name} wrote: --------\n{question}"
        passed = Line(record="", sender=others[0], text=text, at=at + life.rng.uniform(300, 7_000))
        life.post(passed, life.user, subject=f"Fwd: {subject}", parent=mail)
    return [mail, answer]


def _minutes(life: Chronicle, about: Happening, people: Sequence[Person], *, when: float, topic: str) -> None:
    """Minutes with an attachment; the task falls to somebody, or another colleague takes over."""
    rng, at = life.rng, when + life.rng.uniform(3, 20) * HOUR_SECONDS
    if at > life.rows.start or rng.random() < 0.35:
        return
    taker = rng.choice(people)
    name = f"minutes-{topic.replace(' ', '-')}-{life.rows.new_id('')[-4:]}.md"
    note = f"# {topic}\n{format_day(when)}\nNotes by {taker.name}\n{life.words.text('w.report', {'topic': topic})[0]}\n"
    mail = life.mail(
        taker,
        life.user,
        rule="meeting.minutes",
        facts={"topic": topic},
        subject=f"Minutes: {topic}",
        at=at,
        files={name: note},
    )
    file = life.rows.file(f"Documents/Minutes/{name}", note)
    about.records |= {"minutes": mail.record, "file": f"Files/{file}"}
    life.fact(about, "writer", taker.id, mail.record, f"Files/{file}")


def is_workday(when: float) -> bool:
    """Whether a time is on a day from Monday to Friday."""
    return int(when // DAY_SECONDS + 3) % 7 < 5


def handover(life: Chronicle) -> None:
    """A colleague passes a task on to another one."""
    rng = life.rng
    giver, taker = rng.sample(life.ties["colleague"], 2)
    at, topic = life.before(life.rows.start, 120 * DAY_SECONDS), life.words.draw("topic")
    day = midnight(at) + rng.randint(2, 12) * DAY_SECONDS
    facts = {"person": taker.name, "topic": topic, "day": format_day(day)}
    mail = life.mail(
        giver,
        life.user,
        rule="handover.mail",
        facts=facts,
        subject=f"{topic.capitalize()}: a change",
        at=at,
        cc=[taker],
    )
    about = life.begin("handover")
    about.records["mail"] = mail.record
    life.fact(about, "giver", giver.id, mail.record)
    life.stated(about, [mail], taker=taker.id, topic=topic, day=day)


def order(life: Chronicle) -> None:
    """Something is bought, often because somebody named it, or as a present; mails of the shop follow."""
    rng, rows, shop = life.rng, life.rows, life.rng.choice(life.ties["shop"])
    product = rng.choice([*rows.products.values()])
    item, number = rng.choice([*product.variants]), f"W-{rows.new_id('')[-11:-4]}"
    days = rng.uniform(0.3, 130) if rng.random() < 0.9 else rng.uniform(0.3, OPEN_DAYS)
    at = rows.start - days * DAY_SECONDS - HOUR_SECONDS
    about = life.begin("order")
    _talked_over(life, about, product.name, at=at)
    status = (
        "processed" if days < OPEN_DAYS else "shipped" if days < 6 else rng.choice(("delivered",) * 7 + ("cancelled",))
    )
    made = rows.order(product, item, quantity=rng.choice((1, 1, 1, 2)), at=at, status=status, number=number)
    lines = "\n".join(f"- {one.quantity} x {product.name}" for one in made.order_items.values())
    facts = {**moment_words(at), "number": number, "lines": lines, "amount": format_price(made.order_total)}
    mail = life.mail(shop, life.user, rule="order.confirm", facts=facts, subject=f"Your order {number}", at=at + 120)
    record = f"Shopping/{number}"
    about.records |= {"mail": mail.record, "order": record}
    life.fact(about, "shop", shop.id, mail.record)
    life.stated(about, [mail], thing=product.name, amount=made.order_total, number=number, day=midnight(at))
    for attribute, value in (
        ("amount", made.order_total),
        ("number", number),
        ("day", midnight(at)),
        ("status", status),
    ):
        life.fact(about, attribute, value, record)
    if status in ("shipped", "delivered"):
        sent = at + DAY_SECONDS * rng.uniform(1, 2)
        facts = {**moment_words(sent), "number": number}
        left = life.mail(
            shop, life.user, rule="order.sent", facts=facts, subject=f"Re: Your order {number}", at=sent, parent=mail
        )
        life.stated(about, [left], number=number)


def _talked_over(life: Chronicle, about: Happening, thing: str, *, at: float) -> None:
    rng, what = life.rng, thing.partition(" ")[2]
    earlier, fate = life.between(at - 9 * DAY_SECONDS, at - 2 * HOUR_SECONDS), rng.random()
    if earlier is None or fate > 0.75:
        return
    circle = rng.choice([one for one in life.circles if len(one) > 1])
    who, receiver = rng.sample(circle, 2)
    if fate < 0.4:
        lines = life.talk("Chats", [who], "order.advice", facts={"what": what, "thing": thing}, at=earlier)
        named = [line for line in lines if line.sender is who]
        life.fact(about, "adviser", who.id, *(line.record for line in named))
    else:
        facts = {"person": receiver.name, "thing": thing}
        lines = life.talk("Chats", [who], "order.gift", facts=facts, at=earlier)
        life.fact(about, "teller", who.id, lines[1].record)
        life.stated(about, lines, receiver=receiver.id)
    life.stated(about, lines, thing=thing)


def viewing(life: Chronicle) -> None:
    """An agency shows the user a flat; the user tells somebody what it is like."""
    rng, when = life.rng, life.free((9, 18), length=HOUR_SECONDS, weekend=False)
    taken = {one.value("place") for one in life.happenings.values() if one.kind == "viewing"}
    flats = [one for one in life.rows.flats.values() if one.name not in taken]
    if when is None or not flats:
        return
    flat, agency, who = rng.choice(flats), life.ties["agency"][0], rng.choice(close_people(life))
    facts = {**moment_words(when), "place": flat.name, "street": flat.location, "amount": format_price(flat.price)}
    mail = life.mail(
        agency, life.user, rule="viewing.offer", facts=facts, subject="A viewing", at=life.before(when, 9 * DAY_SECONDS)
    )
    about = life.begin("viewing")
    about.records["mail"] = mail.record
    life.stated(about, [mail], place=flat.name, day=midnight(when), time=when % DAY_SECONDS, amount=flat.price)
    life.fact(about, "amount", flat.price, f"RentAFlat/{flat.apartment_id}")
    life.entry(about, "Viewing", when, hours=0.5, place=flat.name, who=[agency])
    after = life.between(when + HOUR_SECONDS, when + 9 * HOUR_SECONDS)
    if after is not None:
        verdict = rng.choice(FLAT_VERDICTS)
        lines = life.talk("Chats", [who], "viewing.after", facts={"place": flat.name, "verdict": verdict}, at=after)
        life.fact(about, "companion", who.id, *(line.record for line in lines))
        life.stated(about, lines[:1], verdict=verdict, place=flat.name)


def course(life: Chronicle) -> None:
    """A club calls off an evening."""
    rng, club = life.rng, life.rng.choice(life.ties["club"])
    at, reason = life.before(life.rows.start, 120 * DAY_SECONDS), life.words.draw("reason")
    day, hobby = midnight(at) + rng.randint(1, 9) * DAY_SECONDS, rng.choice(word_list("hobbies"))
    facts = {"reason": reason, "hobby": hobby, "day": format_day(day)}
    mail = life.mail(club, life.user, rule="class.note", facts=facts, subject=f"No {hobby} this time", at=at)
    about = life.begin("course")
    about.records["mail"] = mail.record
    life.fact(about, "organiser", club.id, mail.record)
    life.stated(about, [mail], thing=hobby, reason=reason, day=day)
