"""What a planner does for each verb, by what it is about: write, order, put down, save, delete, forward."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from wanderlust_life.planner.answers import filters_in, look_up
from wanderlust_life.planner.desk import (
    MAX_READ,
    Desk,
    add_event,
    find_events,
    find_mails,
    find_people,
    find_person,
    full_name,
    price,
    send,
    use,
    wait_until,
    when_and_where,
)
from wanderlust_life.planner.requests import (
    CLOCK,
    DAY_SECONDS,
    Clause,
    amounts_in,
    date_and_time,
    day_in,
    moment_in,
    names_in,
    places_in,
    quotes_in,
    seconds_in,
    seconds_of,
)
from wanderlust_life.planner.tools import CannotDo, Say, Steps, words_of
from wanderlust_life.universes.text_templates import format_day

Act = Callable[[Desk, Clause], Steps[None]]
PHONE = re.compile(r"\+\d[\d ]{7,}\d")
SERVICES = ("Default", "Premium", "Van")


def channel_of(desk: Desk, clause: Clause) -> str:
    """The app by which a clause asks to write."""
    whole = f"{clause.verb} {clause.rest}"
    if "Chats" in whole or "chat" in whole:
        return "Chats"
    if "Messages" in whole or "message" in whole:
        return "Messages"
    return "Emails" if "mail" in whole else desk.channel or "Chats"


def write(desk: Desk, clause: Clause) -> Steps[None]:
    """Write to everybody who is meant, each by themselves."""
    desk.channel = channel = channel_of(desk, clause)
    addressed = re.split(r"\b(?:that|whether|when|where|what|how|and ask|who brings)\b|:", clause.rest)[0].strip()
    if "everybody" in addressed or "my meeting" in addressed:
        yield from _people_of_event(desk, clause.rest)
    else:
        yield from find_people(desk, addressed)
    if not desk.people:
        raise CannotDo("nobody is named")
    people = list(desk.people)
    text = yield from content_of(desk, clause)
    for person in people:
        yield from send(desk, person, text, app=channel)
    desk.people = people


def _people_of_event(desk: Desk, text: str) -> Steps[None]:
    """Who is in the entry that a text names. Where it names another day than the calendar the user is asked."""
    topic = re.search(r"about the ([\w ]+?)(?: on\b| \(|,|$)", text)
    events = yield from find_events(desk, topic[1] if topic is not None else text)
    if not events:
        raise CannotDo("there is no such entry")
    desk.event = events[0]
    named, at = day_in(text, desk.now), seconds_of(desk.event["start_datetime"])
    if named is not None and named != at - at % DAY_SECONDS:
        yield Say(
            f"It is on {format_day(at)} in your calendar, not on {format_day(named)}. Shall I go on for that day?"
        )
    user = yield from use(desk, "Contacts", "read what is known of the user")
    names = [one for one in desk.event["attendees"] if one != full_name(user)]
    desk.people = []
    for name in names:
        person = yield from find_person(desk, name)
        desk.people.append(person)


def content_of(desk: Desk, clause: Clause) -> Steps[str]:  # noqa: PLR0911 (a form of speech each)
    """The text that a clause asks to write: quoted, reported, or looked up."""
    rest = clause.rest
    if quoted := quotes_in(rest):
        return quoted[-1]
    reported = re.search(r"\bthat ((?:I|we|it|the|he|she)\b.+?)[.?]?$", rest)
    if reported is not None:
        return reported[1][0].upper() + reported[1][1:] + "."
    asked = re.search(r"\b(whether .+?)[.?]?$", rest)
    if asked is not None:
        return f"Could you tell me {asked[1]}?"
    if re.search(r"\bthe same\b", rest):
        return desk.text
    wanted = re.search(r"\bask for (.+?)[.?]?$", rest)
    if wanted is not None:
        named = re.search(r"\b(?:mail|send|write|bring) me (.+?)\.", desk.request.text)
        what = named[1] if wanted[1] in ("it", "them") and named is not None else wanted[1]
        return f"Could you send me {what}?"
    if desk.event and re.search(r"\bday\b.*\btime\b", rest):
        return f"{desk.event['title']}: {when_and_where(desk.event)}."
    learnt = yield from look_up(desk, rest)
    return learnt


def forward(desk: Desk, clause: Clause) -> Steps[None]:
    """Forward the mail that is spoken of, or every one that is described, each by itself."""
    whom, _, what = clause.rest.partition(" every ")
    mails = desk.mails
    names = names_in(clause.rest)
    if what:
        kind = what.split()[0]
        sender = yield from find_person(desk, names_in(what)[0])
        since = day_in(what, desk.now, past=True) or 0.0
        found = yield from find_mails(desk, sender["email"])
        mails = [
            one
            for one in found
            if words_of(kind) <= words_of(one["subject"] + " " + one["content"])
            and one["sender"] == sender["email"]
            and seconds_of(one["timestamp"]) >= since
        ]
        desk.facts["sum"] = price(sum(sum(amounts_in(one["content"])[:1]) for one in mails))
        names = names_in(whom)
    if not mails or not names:
        raise CannotDo("there is no such mail")
    keeper = yield from find_person(desk, names[-1])
    for mail in mails:
        yield from use(
            desk,
            "Emails",
            "forward a mail",
            id_of_the_mail_to_forward=mail["email_id"],
            addresses_it_goes_to=[keeper["email"]],
        )
    desk.learnt.append(f"Forwarded to {full_name(keeper)}.")


def order(desk: Desk, clause: Clause) -> Steps[None]:
    """Order a cab or a product; `take` or `order` a word alone is another kind of what was ordered last."""
    if re.search(r"\b(?:cab|taxi|ride)\b", clause.rest):
        yield from _order_cab(desk, clause.rest)
    elif desk.order and len(clause.rest.split()) < 4:
        yield from _order_again(desk, clause.rest)
    else:
        yield from _order_product(desk, clause.rest)


def _order_cab(desk: Desk, text: str) -> Steps[None]:
    user = yield from use(desk, "Contacts", "read what is known of the user")
    ride: dict[str, Any] = {
        "where_it_begins": user["address"],
        "where_it_ends": next(iter(places_in(text)), ""),
        "service": next((one for one in SERVICES if one in text), SERVICES[0]),
    }
    early = re.search(r"(half an hour|\w+ minutes?) before", desk.request.text)
    if not ride["where_it_ends"]:
        name = names_in(text)[-1]
        events = yield from find_events(desk, name)
        if len(events) > 1:
            seen = yield Say(
                "Which one: " + ", or ".join(f"{one['title']} {when_and_where(one)}" for one in events) + "?"
            )
            day = day_in(seen.user_text, desk.now)
            events = [
                one for one in events if 0 <= seconds_of(one["start_datetime"]) - (day or 0) < DAY_SECONDS
            ] or events
        desk.event = events[0]
        ride["where_it_ends"] = desk.event["location"]
        minutes = 1800.0 if early is not None and early[1] == "half an hour" else seconds_in(desk.request.text) or 0.0
        ride["when_it_begins"] = date_and_time(seconds_of(desk.event["start_datetime"]) - minutes)
    yield from use(desk, "Cabs", "order a ride", **ride)
    desk.order = ride
    desk.learnt.append(f"A cab ({ride['service']}) to {ride['where_it_ends']} is ordered.")


def _order_again(desk: Desk, text: str) -> Steps[None]:
    if "service" in desk.order:
        desk.order["service"] = next((one for one in SERVICES if one in text), SERVICES[0])
        yield from use(desk, "Cabs", "order a ride", **desk.order)
        desk.learnt.append(f"The first cab was cancelled; another one ({desk.order['service']}) is ordered.")
    else:
        yield from _buy(desk, _variant(desk.order["variants"], text), 1)


def _order_product(desk: Desk, text: str) -> Steps[None]:
    named = re.search(r"(?:the|of the|an?) (.+?)(?: in | that | \(|[.,?]|$)", text)
    if named is None:
        raise CannotDo("no product is named")
    products = yield from use(desk, "Shopping", "find products with a text in their name", text=named[1])
    if not products:
        raise CannotDo(f"there is no {named[1]}")
    desk.order = products[0]
    count = re.match(r"(\d+) ", text)
    if "bought" in text:
        item = yield from _bought_before(desk, desk.order["variants"])
    else:
        item = _variant(desk.order["variants"], text)
    code = ""
    if "code" in desk.request.text:
        code = yield from _discount_code(desk, named[1], item)
    yield from _buy(desk, item, int(count[1]) if count is not None else 1, code=code)


def _variant(variants: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The variant with most of its options in a text, one that is available before others."""
    rated = [
        (sum(str(value) in text for value in one["options"].values()), bool(one["available"]), one)
        for one in variants.values()
    ]
    best = max(rated, key=lambda one: one[:2])
    if not best[0]:
        raise CannotDo(f"there is none: {text}")
    return best[2]  # type: ignore[no-any-return]


def _bought_before(desk: Desk, variants: Mapping[str, Any]) -> Steps[dict[str, Any]]:
    orders = yield from use(desk, "Shopping", "list all orders")
    past = sorted(orders.values(), key=lambda one: -seconds_of(one["order_date"]))
    item = next((item for one in past for item in one["order_items"] if item in variants), None)
    if item is None:
        raise CannotDo("it was never bought")
    return variants[item]  # type: ignore[no-any-return]


def _discount_code(desk: Desk, product: str, item: dict[str, Any]) -> Steps[str]:
    mails = yield from find_mails(desk, product)
    for mail in mails:
        code = re.search(r"\bcode (?:is )?([A-Z]+\d+)", mail["content"])
        if code is not None and str(item["options"]["colour"]) in mail["content"]:
            about = yield from use(desk, "Shopping", "tell for which items a discount code works", code=code[1])
            off = about.get(item["item_id"], 0.0) if isinstance(about, dict) else 0.0
            desk.facts["off"] = str(off)
            return code[1]
    return ""


def _buy(desk: Desk, item: dict[str, Any], count: int, *, code: str = "") -> Steps[None]:
    yield from use(desk, "Shopping", "put an item into the cart", id_of_item=item["item_id"], how_many=count)
    with_code = {"a_code_that_works": code} if code else {}
    yield from use(desk, "Shopping", "order everything in the cart", **with_code)
    total = item["price"] * count * (1 - float(desk.facts.get("off", "0")) / 100)
    desk.facts["sum"] = price(total)
    desk.facts["colour"] = str(item["options"].get("colour", ""))


def cancel(desk: Desk, clause: Clause) -> Steps[None]:
    """Cancel an order, or say why that cannot be."""
    number = re.search(r"\b[A-Z]+-\w+", clause.rest)
    if number is None:
        raise CannotDo("no order is named")
    found = yield from use(desk, "Shopping", "read an order", id_of_order=number[0])
    if found["order_status"] == "delivered":
        cost = price(found["order_total"])
        desk.learnt.append(f"Order {number[0]} cannot be cancelled: it has been delivered already. You paid {cost}.")
        return
    yield from use(desk, "Shopping", "cancel an order", id_of_order=number[0])
    desk.learnt.append(f"Order {number[0]} is cancelled.")


def put(desk: Desk, clause: Clause) -> Steps[None]:
    """Put something into the calendar, the contacts or the favourites."""
    text = clause.rest
    if "calendar" in text:
        yield from _put_into_calendar(desk, text)
    elif "contacts" in text:
        yield from _put_into_contacts(desk)
    else:
        yield from save(desk, clause)


def _put_into_calendar(desk: Desk, text: str) -> Steps[None]:
    topic = re.search(r"about the ([\w ]+?) (?:into|in) my calendar", text)
    quoted = quotes_in(text)
    title = quoted[0] if quoted else topic[1].capitalize() if topic is not None else "Meeting"
    at = moment_in(text, desk.now) or desk.moment
    if at is None:
        raise CannotDo("no time is named")
    room = re.search(r"\bin (room [\w.]+)", text)
    place = room[1] if room is not None else next(iter(places_in(text) or places_in(desk.request.text)), "")
    _, _, named = text.rpartition(" with ")
    people = yield from find_people(desk, named)
    yield from add_event(desk, title, at, place=place, names=[full_name(one) for one in people])
    desk.learnt.append(f"It is in your calendar {when_and_where(desk.event)}.")


def _put_into_contacts(desk: Desk) -> Steps[None]:
    people = yield from find_people(desk, desk.request.text)
    mails = yield from find_mails(desk, people[0]["email"])
    number = next((match[0] for one in mails if (match := PHONE.search(one["content"]))), None)
    if number is None:
        raise CannotDo("there is no number in the mails")
    yield from use(
        desk,
        "Contacts",
        "change a contact",
        id_of_the_contact=people[0]["contact_id"],
        fields_to_change_and_their_new_values={"phone": number},
    )
    desk.people = [{**people[0], "phone": number}]


def save(desk: Desk, clause: Clause) -> Steps[None]:
    """Save every flat that is described."""
    homes = yield from use(desk, "RentAFlat", "find apartments that meet all conditions", **filters_in(clause.rest))
    for home in list(homes)[:MAX_READ]:
        yield from use(desk, "RentAFlat", "save an apartment to the favourites", id_of_the_apartment=home)
    desk.facts["count"] = str(len(homes))


def delete(desk: Desk, clause: Clause) -> Steps[None]:
    """Delete every file of a folder in which the words stand that describe it, or an entry of the calendar."""
    folder = re.search(r"\bfolder (\w+)", desk.request.text)
    if folder is None:
        events = yield from find_events(desk, (names_in(clause.rest) or places_in(clause.rest) or [""])[0])
        if not events:
            raise CannotDo("there is no such entry")
        yield from use(desk, "Calendar", "delete an event", id_of_the_event=events[0]["event_id"])
        return
    kind = re.search(r"every (\w+) from (.+?)[.,]?$", clause.rest)
    if kind is None:
        raise CannotDo("it is not said which")
    wanted, gone = words_of(kind[1] + " " + kind[2]), 0
    paths = yield from use(desk, "Files", "list what is in a folder", the_folder=folder[1])
    for path in paths[:MAX_READ]:
        text = yield from use(desk, "Files", "read a file as text", the_file=path)
        if wanted <= words_of(str(text)):
            yield from use(desk, "Files", "remove a file or a folder", what_to_remove=path)
            gone += 1
    desk.facts["count"] = str(gone)


def send_at(desk: Desk, clause: Clause) -> Steps[None]:
    """Send quoted texts, each to the name before it and at the time before that."""
    app = channel_of(desk, Clause("", desk.request.text))
    times, names, texts = CLOCK.findall(_bare(clause.rest)), names_in(clause.rest), quotes_in(clause.rest)
    today = desk.now - desk.now % DAY_SECONDS
    for (hour, minute), name, text in sorted(zip(times, names, texts, strict=False)):
        person = yield from find_person(desk, name)
        yield from wait_until(desk, today + 3600 * int(hour) + 60 * int(minute))
        yield from send(desk, person, text, app=app)


def _bare(text: str) -> str:
    for quoted in quotes_in(text):
        text = text.replace(f"'{quoted}'", "")
    return text


ACTS: Mapping[str, Act] = {
    **dict.fromkeys(("mail", "tell", "write", "message", "ask", "send"), write),
    "forward": forward,
    **dict.fromkeys(("order", "get", "take", "book", "need"), order),
    "cancel": cancel,
    **dict.fromkeys(("put", "add"), put),
    "save": save,
    **dict.fromkeys(("delete", "remove", "drop"), delete),
}
TIMED_TEXT = re.compile(r"at \d\d:\d\d to .+?: '")


def act_of(clause: Clause) -> Act | None:
    """What a clause asks to do; None where it only says or asks something."""
    act = ACTS.get(clause.verb)
    return send_at if act is write and TIMED_TEXT.search(clause.rest) else act
