"""Execution: find out what is meant, and do all of it, in the right order and to the right things."""

from __future__ import annotations

from wanderlust_life.families import builder
from wanderlust_life.families.builder import DAY, FamilyBuilder
from wanderlust_life.families.family import family
from wanderlust_life.universes.people import SERVICE_JOBS, Person
from wanderlust_life.universes.text_templates import format_day, format_price, format_time_of_day, join_names
from wanderlust_worlds.engine.app import format_time
from wanderlust_worlds.verification.facts import Amount, Count, Quote, Says


@family(
    "execution",
    asks="Put a meeting into the calendar and mail everybody who comes.",
    hard="More people; from level 2 on one of them shares the first name with a friend and is named by it alone.",
)
def invite(s: FamilyBuilder) -> None:
    """A meeting with colleagues."""
    people = s.some("colleague", count=s.steps + 1)
    names = [one.name for one in people]
    if s.decoys > 1:
        _, same = s.namesakes()
        people.append(same)
        names.append(f"{same.first} from work")
    at, topic, room = s.free(1, 12), s.word("topics"), f"room {s.rng.randint(5, 8)}.{s.rng.randint(10, 29)}"
    request = s.asks(
        "[Please put|Put|Can you put] an hour about the {topic} into my calendar: {day}, {time}, in {room}, with "
        "{who}. [Then mail|Mail] each of them a mail of their own with [day, time and room|the day, the time "
        "and the room].",
        topic=topic,
        day=format_day(at),
        time=format_time_of_day(at),
        room=room,
        who=join_names(names),
    )
    added = s.agent(s.calendar, after=request).add_calendar_event(
        title=topic.capitalize(),
        start_datetime=format_time(at),
        end_datetime=format_time(at + 3600),
        location=room,
        attendees=[one.name for one in people],
    )
    at_room = Says(ways=(room, room.removeprefix("room ")))
    s.expects(added, "title", Says(ways=(topic,)))
    s.expects(added, "location", at_room)
    done = [added]
    for one in people:
        text = f"Hi {one.first}, we meet about the {topic} on {format_day(at)} at {format_time_of_day(at)} in {room}."
        sent = s.agent(s.mail, after=request).send_email(
            recipients=[one.email], subject=topic.capitalize(), content=text
        )
        s.expects(sent, "subject")
        done.append(s.expects(sent, "content", s.on_day(at), s.at_time(at), at_room, plain=True))
    s.reports(done, "It is in your calendar, and everybody has a mail.")


@family(
    "execution",
    asks="Order again what was bought last time, with the discount code that came by mail.",
    hard="The colour stands in an old order; codes for other colours came by mail as well.",
)
def reorder(s: FamilyBuilder) -> None:
    """The same thing once more."""
    product = s.rng.choice([one for one in s.shop.products.values() if len(one.variants) > 3])
    item, *others = s.rng.sample([*product.variants], 4)
    for name in (item, *others):
        builder.put_in_stock(s, product.product_id, name)
    builder.plant_order(s, product, item, status="delivered", days=s.rng.uniform(8, 30))
    shop = s.one("shop")
    numbers = s.rng.sample(range(100, 1000), 4)
    codes = {name: f"{s.rng.choice(DISCOUNT_CODES)}{n}" for name, n in zip((item, *others), numbers, strict=True)}
    for name in (item, *others[: s.decoys]):
        off, colour = float(s.rng.randrange(10, 30)), str(product.variants[name].options["colour"])
        s.shop.discount_codes[name] = {codes[name]: off}
        text = f"For a few days you get {off:g} per cent off the {product.name} in {colour}. The code is {codes[name]}."
        builder.plant_mail(s, shop, subject=f"A code for the {product.name}", text=text, at=s.ago(0.5, 4))
    count = s.rng.randint(2, 4)
    request = s.asks(
        "[Order|Please order|I need] {count} more of the {what} that I bought [last time|a while ago], in the same "
        "colour and size. {shop} has mailed a discount code for it, use that. [Tell me|Then tell me] what they cost "
        "in total.",
        count=str(count),
        what=product.name,
        shop=shop.name,
    )
    put = s.agent(s.shop, after=request).add_to_cart(item_id=item, quantity=count)
    bought = s.agent(s.shop, after=put).checkout(discount_code=codes[item])
    each, left = product.variants[item].price, 1 - s.shop.discount_codes[item][codes[item]] / 100
    total = round(each * count * left, 2)
    cost = Amount(value=total, also=(each, round(each * left, 2), round(each * count, 2)))
    s.reports(bought, f"Ordered. In total they cost {format_price(total)}.", cost)


@family(
    "execution",
    asks="Take a new phone number out of a mail into the contacts, and write to it.",
    hard="Mails of other people, and older mails of the same person, have other numbers.",
)
def new_number(s: FamilyBuilder) -> None:
    """A friend's new phone number."""
    who, food = s.one("friend", "neighbour"), s.word("foods")
    number, *wrong = (f"+1 555 019{n} {s.rng.randrange(10_000):04d}" for n in range(s.decoys + 1))
    text = "[My phone is gone, and with it my number|I have changed my phone company]. My new number is {number}."
    builder.plant_mail(s, who, subject="New number", text=text.replace("{number}", number), at=s.ago(0.2, 1))
    for n, other in enumerate(wrong):
        sender = who if n % 2 else s.one("friend", "neighbour", "colleague", "partner")
        builder.plant_mail(s, sender, subject="New number", text=text.replace("{number}", other), at=s.ago(20, 50))
    message_text = f"I have got your new number. Shall I bring {food}?"
    request = s.asks(
        "{name} has [mailed me|written me a mail with] a new phone number. [Put it|Please put it] into my contacts "
        "instead of the old one, and send a message to the new number (in Messages): '{said}'",
        name=who.name,
        said=message_text,
    )
    edited = s.agent(s.contacts, after=request).edit_contact(contact_id=who.id, updates={"phone": number})
    s.expects_fields(edited, "updates", phone=number)
    sent = s.agent(s.texts, after=request).send_message(user_id=number, content=message_text)
    s.expects(sent, "content", Quote(text=message_text))
    s.reports([edited, sent], f"{who.first} has the new number in your contacts, and your message.")


@family(
    "execution",
    asks="Delete every scan that is a bill of one firm, and keep the rest.",
    hard="What a scan is stands only inside it; other firms' bills and the same firm's letters look like it.",
)
def clear_scans(s: FamilyBuilder) -> None:
    """Files by what is in them."""
    firm, other = s.firms(2)
    kinds = [("Bill", firm)] * (s.steps + 1) + [("Letter", firm), ("Bill", other)] * s.decoys
    numbers = s.rng.sample(range(1000, 9999), len(kinds))
    paths = []
    for (kind, sender), number in zip(kinds, numbers, strict=True):
        body = f"{kind}\nFrom: {sender}\nTo: {s.user.name}\nDate: {format_day(s.ago(3, 90))}\n"
        body += (
            f"Amount: {format_price(s.rng.uniform(10, 300))}\n" if kind == "Bill" else f"About: {s.word('topics')}\n"
        )
        path = builder.plant_file(s, f"Downloads/scan-{number}.txt", body)
        paths += [path] if (kind, sender) == ("Bill", firm) else []
    request = s.asks(
        "[Go through|Look through] the scans in the folder Downloads and delete every bill from {firm}. [Keep|Leave] "
        "everything else. [How many were there?|Tell me how many there were.]",
        firm=firm,
    )
    gone = [s.agent(s.files, after=request).rm(path) for path in sorted(paths)]
    s.reports(gone, f"There were {len(paths)}; they are deleted.", Count(value=len(paths)))


DISCOUNT_CODES = ("MORE", "AGAIN", "BACK")


@family(
    "execution",
    asks="Forward every invoice of one sender since a day, each by itself, and add them up.",
    hard="Older invoices and other mails of the same sender are beside them, and other people's invoices.",
)
def forward_invoices(s: FamilyBuilder) -> None:
    """Invoices for the person who keeps the books."""
    sender, keeper = s.one(*(tie for tie in SERVICE_JOBS if tie != "accountant")), s.one("partner")
    since = s.now - s.now % DAY - 6 * DAY
    for name in [name for name, one in s.mail.inbox.rows().items() if one.sender == sender.email]:
        if s.mail.inbox[name].timestamp > since - 2 * DAY:
            del s.mail.inbox[name]
    invoices, total, costs = [], 0.0, []
    for _ in range(s.steps + 1):
        cost = round(s.rng.uniform(20, 400), 2)
        invoices.append(_invoice(s, sender, cost, days=(0.3, 5.5)))
        total += cost
        costs.append(cost)
    for _ in range(s.decoys):
        _invoice(s, sender, round(s.rng.uniform(20, 400), 2), days=(8.2, 40))
        builder.plant_mail(s, sender, subject="Your next visit", text="<aside> Call me about a date.", at=s.ago(0.3, 6))
    request = s.asks(
        "[Forward|Please forward] {keeper} every invoice that {sender} has mailed me since {day} (that day included), "
        "each by itself. [Tell me|And tell me] what they come to.",
        keeper=keeper.name,
        sender=sender.name,
        day=format_day(since),
    )
    sent = [s.agent(s.mail, after=request).forward_email(email_id=name, recipients=[keeper.email]) for name in invoices]
    cost_fact = Amount(value=round(total, 2), also=tuple(costs))
    s.reports(sent, f"Done. They come to {format_price(total)}.", cost_fact)


def _invoice(s: FamilyBuilder, sender: Person, cost: float, *, days: tuple[float, float]) -> str:
    at, number = s.ago(*days), f"R-{s.new_id('')[:7]}"
    text = f"Please find below our invoice {number} of {format_day(at)}.~Amount: {format_price(cost)}"
    return builder.plant_mail(s, sender, subject=f"Invoice {number}", text=text, at=at)
