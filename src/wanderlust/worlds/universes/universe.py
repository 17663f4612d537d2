"""A universe: somebody's life at a moment, as apps that agree with each other."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import Random
from typing import Literal, TypeAlias

from wanderlust.core.errors import UsageError
from wanderlust.worlds.app import App
from wanderlust.worlds.apps.apartments import Apartments
from wanderlust.worlds.apps.cabs import Cabs
from wanderlust.worlds.apps.calendar import Calendar
from wanderlust.worlds.apps.city import City
from wanderlust.worlds.apps.contacts import Contacts
from wanderlust.worlds.apps.files import Files
from wanderlust.worlds.apps.mail import Mail
from wanderlust.worlds.apps.messages import Messages
from wanderlust.worlds.apps.reminders import Reminders
from wanderlust.worlds.apps.shopping import Shopping
from wanderlust.worlds.apps.system import System
from wanderlust.worlds.apps.user_interface import UserInterface
from wanderlust.worlds.table import Table
from wanderlust.worlds.times import told_time
from wanderlust.worlds.universes import market
from wanderlust.worlds.universes.ledger import ME, Ledger, Matter
from wanderlust.worlds.universes.matters import Life, chatter, live
from wanderlust.worlds.universes.people import SIZES, Census, Person, Size, circle
from wanderlust.worlds.universes.wording import Split

SizeName: TypeAlias = Literal["small", "medium", "gaia2"]
KEPT = 8
"""Universes that a process keeps."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Universe:
    """A life, and the apps that know of it. Nothing in it is ever written to: scenarios begin with branches."""

    seed: int
    size: SizeName
    split: Split
    start: float
    """Now, in seconds since 1970."""
    people: Mapping[str, Person]
    """By id, the user first."""
    matters: tuple[Matter, ...]
    """What happened and will happen, for those who write scenarios and check universes. No app shows it."""
    places: tuple[str, ...]
    apps: Mapping[str, App]
    """By name."""

    @property
    def user(self) -> Person:
        """Whose life it is."""
        return next(iter(self.people.values()))

    @property
    def name(self) -> str:
        """Names it among all universes."""
        return f"{self.split}-{self.size}-{self.seed}"


def universe(seed: int, size: SizeName = "small", split: Split = "train") -> Universe:
    """The universe of a seed: the same in every process; the latest few are kept. Raises UsageError for other sizes."""
    if size not in SIZES:
        raise UsageError(f"there is no size {size!r}: one of {', '.join(SIZES)}")
    return _universe(seed, size, split)


@lru_cache(maxsize=KEPT)
def _universe(seed: int, size: SizeName, split: Split) -> Universe:
    rng, much = Random(f"universe/{split}/{size}/{seed}"), SIZES[size]
    identify = f"{rng.randrange(16**4):04x}"
    census = Census(rng, split, identify)
    people = {person.id: person for person in circle(census, much)}
    user = next(iter(people.values()))
    start = _start(rng)
    ledger = Ledger(user, start, rng=rng, identify=identify)
    matters = _lived(ledger, census, people=people, much=much)
    ledger.file("Documents/expenses.csv", _expenses(matters))
    return Universe(
        seed=seed,
        size=size,
        split=split,
        start=start,
        people=people,
        matters=tuple(matters),
        places=tuple(census.places),
        apps={app.name: app for app in _apps(ledger, people, rng)},
    )


def _start(rng: Random) -> float:
    """A morning of a working day."""
    day = datetime(2025, 3, 3, 8, tzinfo=UTC) + timedelta(weeks=rng.randrange(200), days=rng.randrange(5))
    return day.timestamp()


def _lived(ledger: Ledger, census: Census, *, people: Mapping[str, Person], much: Size) -> list[Matter]:
    ledger.products.update((one.product_id, one) for one in market.products(ledger, census, much.products))
    ledger.flats.update((one.apartment_id, one) for one in market.flats(ledger, census, much.flats))
    ties: dict[str, tuple[Person, ...]] = {}
    for person in people.values():
        ties[person.tie] = (*ties.get(person.tie, ()), person)
    life = Life(
        ledger=ledger,
        rng=census.rng,
        people=ties,
        places=tuple(census.places[:40]),
        streets=tuple(census.streets),
        town=ledger.user.city,
    )
    found = live(life, much.matters)
    chatter(life, much.chatter)
    return found


def _expenses(matters: Iterable[Matter]) -> str:
    """A table of what was spent: bills, orders and rides of the past, in their order."""
    rows = [one for one in matters if one.amount and one.kind in ("invoice", "ride", "order")]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("date", "kind", "number", "amount"))
    for one in sorted(rows, key=lambda one: one.when):
        table.writerow((told_time(one.when, "%Y-%m-%d"), one.kind, one.number, f"{one.amount:.2f}"))
    return text.getvalue()


def _apps(ledger: Ledger, people: Mapping[str, Person], rng: Random) -> list[App]:
    user = ledger.user
    firms = ("shop", "cab", "agency")
    known = {f"u{one.id}": one.name for one in people.values() if one is not user and one.tie not in firms}
    phones = {one.phone: one.name for one in people.values()}
    talks = {app: Table(dict(ledger.conversations(app))) for app in ("Chats", "Messages")}
    return [
        UserInterface("AgentUserInterface"),
        System("System"),
        Mail("Emails", user_email=user.email, inbox=Table(ledger.inbox), sent=Table(ledger.sent)),
        Messages(
            "Chats",
            mode="NAME",
            current_user_id=ME,
            current_user_name=user.name,
            names=Table({ME: user.name, **known}),
            conversations=talks["Chats"],
        ),
        Messages(
            "Messages",
            mode="PHONE_NUMBER",
            current_user_id=user.phone,
            current_user_name=user.name,
            names=Table(phones),
            conversations=talks["Messages"],
        ),
        Calendar("Calendar", events=Table(ledger.events)),
        Contacts("Contacts", contacts=Table({one.id: one.contact() for one in people.values()})),
        Shopping(
            "Shopping",
            products=Table(ledger.products),
            orders=Table(ledger.orders),
            discount_codes=Table(dict(market.discounts(rng, ledger.products))),
        ),
        Apartments("RentAFlat", apartments=Table(ledger.flats)),
        Cabs("Cabs", ride_history=Table(ledger.rides)),
        City("City", crime_data=Table(dict(market.crime(rng, ledger.flats)))),
        Files("Files", entries=Table(ledger.entries)),
        Reminders("Reminders"),
    ]
