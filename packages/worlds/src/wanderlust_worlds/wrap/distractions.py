"""What happens in a world by itself and has nothing to do with the task: what each app can distract an agent with.

The people, places and times are none that a task asks for: mails from strangers, small talk in conversations that the
scenario does not touch, dates more than a year ahead, homes in a town of their own at a price above all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wanderlust_worlds.apps.apartments import Apartments
from wanderlust_worlds.apps.calendar import Calendar
from wanderlust_worlds.apps.city import City
from wanderlust_worlds.apps.mail import Mailbox
from wanderlust_worlds.apps.messages import Conversations
from wanderlust_worlds.apps.messages_v1 import USER, MessagesV1
from wanderlust_worlds.apps.shopping import Shopping
from wanderlust_worlds.engine.app import App, format_time
from wanderlust_worlds.engine.events import PlannedCall
from wanderlust_worlds.engine.scenario import Scenario

SUBJECTS = (
    "Newsletter",
    "Your weekly summary",
    "Offer of the day",
    "A survey for you",
    "System maintenance",
)
SENDERS = ("news@example.com", "offers@example.net", "noreply@example.com")
SMALL_TALK = ("Ha, so true!", "Nice.", "Just saw a heron on the roof.", "What weather!", "Greetings from the bus.")
FAR_EVENTS = ("Open day of the waterworks", "Blood donation", "Jumble sale", "Fire drill of the whole street")
FAR_DAYS, DAY_SECONDS, HOUR_SECONDS = 400, 86_400, 3_600
NEW_PRODUCTS = ("Garden gnome", "Fondue set", "Yo-yo", "Hammock for cats", "Bagpipe for beginners")
FAR_TOWN, FAR_ZIP_CODES = "Farawayville", ("00001", "00002", "00003")


@dataclass(frozen=True, slots=True, kw_only=True)
class Distraction:
    """An action of the environment that has nothing to do with the task."""

    app: str
    action: str
    args: dict[str, Any]


Calls = Iterator[tuple[str, dict[str, Any]]]
"""Actions and their arguments."""


def distractions_of_apps(scenario: Scenario) -> dict[str, list[Distraction]]:
    """What can distract from a scenario, by app; apps in which nothing happens by itself are left out."""
    found = {}
    for app in scenario.apps:
        calls = next((make for kind, make in _BY_KIND.items() if isinstance(app, kind)), None)
        if calls is not None:
            found[app.name] = [Distraction(app=app.name, action=a, args=args) for a, args in calls(app, scenario)]
    return {name: one for name, one in found.items() if one}


def _mails(app: Mailbox, scenario: Scenario) -> Calls:
    for sender in SENDERS:
        for subject in SUBJECTS:
            content = f"{subject}: nothing that you must answer."
            yield "send_email_to_user_only", {"sender": sender, "subject": subject, "content": content}


def _messages(app: Conversations, scenario: Scenario) -> Calls:
    people = {key: talk.participant_ids for key, talk in app.conversations.items()}
    return _small_talk(people, scenario, user=app.current_user_id, seat="sender_id")


def _named_messages(app: MessagesV1, scenario: Scenario) -> Calls:
    people = {key: talk.participants for key, talk in app.conversations.items()}
    return _small_talk(people, scenario, user=USER, seat="sender")


def _small_talk(people: Mapping[str, Sequence[str]], scenario: Scenario, *, user: str, seat: str) -> Calls:
    """In conversations, by their people, of which no event of the scenario names the id or anybody but the user."""
    used = _texts_of(scenario)
    for key, everybody in people.items():
        others = [one for one in everybody if one != user]
        if others and used.isdisjoint((key, *others)):
            for number, text in enumerate(SMALL_TALK):
                said = {"conversation_id": key, seat: others[number % len(others)], "content": text}
                yield "create_and_add_message", said


def _texts_of(scenario: Scenario) -> set[str]:
    """Every text in an argument of the scenario's events: ids of people and conversations among them."""
    return {
        text for event in scenario.events if isinstance(event, PlannedCall) for text in _texts([*event.args.values()])
    }


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value.values()])
    elif isinstance(value, Sequence):
        for one in value:
            yield from _texts(one)


def _events(app: Calendar, scenario: Scenario) -> Calls:
    for number, title in enumerate(FAR_EVENTS):
        start = scenario.start + (FAR_DAYS + number) * DAY_SECONDS
        times = {"start_datetime": format_time(start), "end_datetime": format_time(start + HOUR_SECONDS)}
        yield "add_calendar_event_by_attendee", {"who_add": "City Council", "title": title, **times}


def _products(app: Shopping, scenario: Scenario) -> Calls:
    known = {one.name for one in app.products.values()}
    for name in NEW_PRODUCTS:
        if name not in known:
            yield "add_product", {"name": name}


def _apartments(app: Apartments, scenario: Scenario) -> Calls:
    price = 2 * max((one.price for one in app.apartments.values()), default=1000.0)
    for number, zip_code in enumerate(FAR_ZIP_CODES):
        rooms = {"number_of_bedrooms": 9, "number_of_bathrooms": 9, "square_footage": 9000 + number}
        where = {"name": f"Manor {number + 1}", "location": FAR_TOWN, "zip_code": zip_code}
        yield "add_new_apartment", {**where, "price": price, **rooms}


def _crimes(app: City, scenario: Scenario) -> Calls:
    for zip_code in FAR_ZIP_CODES:
        if zip_code not in app.crime_data:
            yield "add_crime_rate", {"zip_code": zip_code, "violent_crime_rate": 1.0, "property_crime_rate": 1.0}


_BY_KIND: Mapping[type[App], Callable[[Any, Scenario], Calls]] = {
    Mailbox: _mails,
    Conversations: _messages,
    MessagesV1: _named_messages,
    Calendar: _events,
    Shopping: _products,
    Apartments: _apartments,
    City: _crimes,
}
