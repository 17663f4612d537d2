"""What a plan knows while it works, and the look-ups in apps that all verbs share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from wanderlust_life.planner.requests import Request, date_and_time, names_in, seconds_of
from wanderlust_life.planner.tools import CannotDo, Notice, Say, Steps, Use
from wanderlust_life.universes.text_templates import format_day, format_price, format_time_of_day

MAX_READ = 12
"""Records of one search that are looked at: mails, files, conversations, pages of rides."""
MAX_TRIES = 3
"""Calls of one step: a call that fails is made again."""
PATIENCE_SECONDS = 600.0
"""How long an answer is waited for where the request does not say."""


@dataclass(slots=True, kw_only=True)
class Desk:
    """A request at work."""

    request: Request
    horizon: int
    """Calls that the plan may have."""
    now: float = 0.0
    """Seconds of the world's clock."""
    people: list[dict[str, Any]] = field(default_factory=list)
    """Contacts who were named last."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Contacts who were written to, in order."""
    text: str = ""
    """What was written last."""
    moment: float | None = None
    """The day and time that somebody proposed or agreed to."""
    awaited: dict[str, Any] = field(default_factory=dict)
    """Somebody who is going to write."""
    gathered: dict[str, str] = field(default_factory=dict)
    """By name, what somebody wrote about what is asked."""
    channel: str = ""
    """App by which it was written."""
    event: dict[str, Any] = field(default_factory=dict)
    """The entry of the calendar that is spoken of."""
    mails: list[dict[str, Any]] = field(default_factory=list)
    """The mails that are spoken of."""
    order: dict[str, Any] = field(default_factory=dict)
    """What was ordered last: a product's variants, or a ride."""
    facts: dict[str, str] = field(default_factory=dict)
    """What was found out, by what a report may be asked for."""
    learnt: list[str] = field(default_factory=list)
    """Sentences for the report."""
    calls: int = 0
    unread: list[Notice] = field(default_factory=list)
    """Notices that came with the results of calls."""


def use(desk: Desk, app: str, does: str, **args: Any) -> Steps[Any]:
    """The result of a call; the words of an argument's name are joined by underscores.

    Raises CannotDo when the call fails, and when the plan has had all its calls.
    """
    for _ in range(MAX_TRIES):
        if desk.calls >= desk.horizon:
            raise CannotDo("the plan is too long")
        desk.calls += 1
        seen = yield Use(app, does, args)
        desk.unread += seen.notices
        if not seen.failed:
            return seen.result
    raise CannotDo(str(seen.result))


def look_at_clock(desk: Desk) -> Steps[float]:
    """The world's time, also kept on the desk."""
    time = yield from use(desk, "System", "tell the time")
    desk.now = float(time["current_timestamp"])
    return desk.now


def wait(desk: Desk, seconds: float) -> Steps[list[Notice]]:
    """The next notices, within so many seconds."""
    if not desk.unread:
        yield from use(desk, "System", "wait until the next notification", seconds=max(1, round(seconds)))
        yield from look_at_clock(desk)
    notices, desk.unread = [one for one in desk.unread if one.app != "world"], []
    return notices


def find_person(desk: Desk, name: str) -> Steps[dict[str, Any]]:
    """The contact of a name. Where several share it the user is asked which one is meant, by their whole names."""
    found = yield from use(desk, "Contacts", "find contacts with a text", query_text=name)
    people = [one for one in found if name in (one["first_name"], one["last_name"], full_name(one))]
    if len(people) > 1:
        names = " or ".join(full_name(one) for one in people)
        seen = yield Say(f"Do you mean {names}?")
        people = [one for one in people if one["last_name"] in seen.user_text] or people
    if not people:
        raise CannotDo(f"there is no {name}")
    return people[0]  # type: ignore[no-any-return]


def find_people(desk: Desk, text: str) -> Steps[list[dict[str, Any]]]:
    """The contacts whom a text names: by whole names, by a first name alone at its beginning, or as `them`."""
    names = names_in(text)
    first = re.match(r"([A-Z][\w'-]+)(?=,? (?:and|that|whether|when|in|by)\b|[.?,]|$)", text)
    if first is not None:
        names = [first[1], *names]
    if names:
        desk.people = []
        for name in dict.fromkeys(names):
            person = yield from find_person(desk, name)
            desk.people.append(person)
    return desk.people


def full_name(person: dict[str, Any]) -> str:
    """First and last name."""
    return f"{person['first_name']} {person['last_name']}".strip()


def find_events(desk: Desk, query: str) -> Steps[list[dict[str, Any]]]:
    """Entries of the calendar from now on that have a text, in their order."""
    found = yield from use(desk, "Calendar", "find events with a text in title", query_text=query)
    coming = [one for one in found if seconds_of(one["start_datetime"]) >= desk.now]
    return sorted(coming, key=lambda one: seconds_of(one["start_datetime"]))


def find_mails(desk: Desk, query: str) -> Steps[list[dict[str, Any]]]:
    """The newest mails to the user that have a text."""
    found = yield from use(desk, "Emails", "find the mails of a folder with a text", query_text=query)
    return sorted(found, key=lambda one: -seconds_of(one["timestamp"]))[:MAX_READ]


def find_messages(desk: Desk, app: str, query: str) -> Steps[list[dict[str, Any]]]:
    """Messages of others that have a text, with the conversation of each."""
    talks = yield from use(desk, app, "find conversations with a text", query_text=query)
    found = []
    for talk in talks[:MAX_READ]:
        read = yield from use(desk, app, "read the messages of a conversation", id_of_the_conversation=talk, limit=50)
        found += [
            {**one, "conversation_id": talk}
            for one in read["messages"]
            if query.lower() in one["content"].lower() and one["sender_id"] != "me"
        ]
    return found


def send(desk: Desk, person: dict[str, Any], text: str, *, app: str) -> Steps[None]:
    """Write to somebody by an app."""
    if app == "Emails":
        yield from use(
            desk,
            app,
            "send a mail",
            addresses_it_goes_to=[person["email"]],
            its_subject=first_words(text),
            its_text=text,
        )
    else:
        who = person["phone"]
        if app != "Messages":
            who = yield from use(
                desk, app, "find the id of a user by the exact name, nobody is called that", full_name=full_name(person)
            )
        yield from use(desk, app, "send a message to one person", whom_to_send_it_to=who, what_to_say=text)
    desk.text, desk.channel = text, app
    desk.asked.append(person)


def first_words(text: str) -> str:
    """A subject."""
    return " ".join(text.split()[:5]).strip(".,:;?!")


def read_news(desk: Desk, notice: Notice) -> Steps[tuple[str, str, dict[str, Any]]]:
    """Who wrote, what, and the record, of a notice of a mail or a message; empty for another notice."""
    if notice.app == "Emails" and "received" in notice.text:
        newest = yield from use(desk, "Emails", "list the mails of a folder, the newest first", how_many_to_list=1)
        mail = newest["emails"][0]
        return mail["sender"], mail["content"], mail
    talk = re.search(r"conversation ID: (\S+)", notice.text)
    if talk is not None:
        read = yield from use(
            desk, notice.app, "read the messages of a conversation", id_of_the_conversation=talk[1], limit=1
        )
        one = read["messages"][0]
        name = yield from use(
            desk,
            notice.app,
            "find the name of a user by the exact id, there is no such user",
            id_of_user=one["sender_id"],
        )
        return name or one["sender_id"], one["content"], one
    return "", "", {}


def is_from(person: dict[str, Any], sender: str) -> bool:
    """Whether somebody sent it."""
    return sender in (person["email"], person["phone"], full_name(person))


def wait_for_answer(desk: Desk, people: Sequence[dict[str, Any]], seconds: float) -> Steps[str]:
    """The first answer of one of these people within so many seconds; empty when none came."""
    end = desk.now + seconds
    while desk.now < end:
        notices = yield from wait(desk, end - desk.now)
        for notice in notices:
            sender, text, record = yield from read_news(desk, notice)
            if any(is_from(one, sender) for one in people):
                desk.mails = [record] if notice.app == "Emails" else desk.mails
                return text
    return ""


def wait_until(desk: Desk, moment: float) -> Steps[None]:
    """Let time go by."""
    while desk.now < moment:
        desk.unread = []
        yield from wait(desk, moment - desk.now)


def when_and_where(event: dict[str, Any]) -> str:
    """Day, time and place of an entry."""
    at = seconds_of(event["start_datetime"])
    place = f" at {event['location']}" if event.get("location") else ""
    return f"on {format_day(at)} at {format_time_of_day(at)}{place}"


def price(value: float) -> str:
    """An amount as one tells it."""
    return format_price(round(value, 2))


def add_event(desk: Desk, title: str, at: float, *, place: str, names: Sequence[str]) -> Steps[None]:
    """Put an hour into the calendar."""
    event = {"start_datetime": date_and_time(at), "location": place, "title": title}
    desk.event = event
    made = yield from use(
        desk,
        "Calendar",
        "add an event",
        what_to_call_it=title,
        when_it_begins=date_and_time(at),
        when_it_ends=date_and_time(at + 3600),
        where_it_is=place,
        full_names_of_those_who_come=list(names),
    )
    desk.event["event_id"] = made
