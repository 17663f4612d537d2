"""What can be bought and rented in a universe, and how safe its quarters are.

A universe: somebody's life at a moment, as apps that agree with each other.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import Random
from typing import Literal, TypeAlias

from wanderlust.errors import UsageError
from wanderlust.worlds.apps.apartments import Apartment, Apartments
from wanderlust.worlds.apps.cabs import Cabs
from wanderlust.worlds.apps.calendar import Calendar
from wanderlust.worlds.apps.city import City, CrimeDataPoint
from wanderlust.worlds.apps.contacts import Contacts
from wanderlust.worlds.apps.files import Files
from wanderlust.worlds.apps.mail import Mail
from wanderlust.worlds.apps.messages import Messages
from wanderlust.worlds.apps.reminders import Reminders
from wanderlust.worlds.apps.shopping import Item, Product, Shopping
from wanderlust.worlds.apps.user_interface import System, UserInterface
from wanderlust.worlds.engine.app import App, told_time
from wanderlust.worlds.engine.cow_dict import Table
from wanderlust.worlds.life.universes.ledger import ME, Ledger, Matter
from wanderlust.worlds.life.universes.people import SIZES, Census, Person, Size, circle
from wanderlust.worlds.life.universes.storylines import Life, chatter, live
from wanderlust.worlds.life.universes.text_templates import Split, deck, words

PRICES = (9.0, 240.0)
RENTS = (620, 2_450)
AMENITIES = ("Balcony", "Bicycle room", "Cellar", "Dishwasher", "Fireplace", "Garden", "Lift", "Parking", "Washer")


def products(ledger: Ledger, census: Census, count: int) -> Iterator[Product]:
    """Products with three to six variants each."""
    rng = census.rng
    brands = words(f"{census.split}.brands")
    for kind in deck(rng, words("products"))[:count]:
        base = rng.uniform(*PRICES)
        name, product = f"{rng.choice(brands)} {kind}", ledger.new_id("p")
        variants = {}
        for colour in rng.sample(words("colours"), rng.randint(3, 6)):
            item = ledger.new_id("i")
            price = round(base * rng.uniform(0.85, 1.25), 2)
            options = {"colour": colour, "size": rng.choice(words("sizes"))}
            variants[item] = Item(item_id=item, price=price, available=rng.random() < 0.9, options=options)
        yield Product(product_id=product, name=name, variants=variants)


def discounts(rng: Random, goods: Mapping[str, Product]) -> Iterator[tuple[str, dict[str, float]]]:
    """Codes that work for one variant each."""
    for product in goods.values():
        if rng.random() < 0.3:
            item = rng.choice([*product.variants])
            yield item, {f"SAVE{rng.randrange(1000):03d}": float(rng.randrange(5, 35, 5))}


def flats(ledger: Ledger, census: Census, count: int) -> Iterator[Apartment]:
    """Flats for rent, no two with one name."""
    rng = census.rng
    kinds = ("Loft", "Court", "House", "Yard", "View", "Corner", "Rooms")
    names = deck(rng, [f"{street.split()[0]} {kind}" for street in census.streets for kind in kinds])
    for name in dict.fromkeys(names[: 3 * count]):
        if not count:
            return
        count -= 1
        yield _flat(ledger, census, name)


def _flat(ledger: Ledger, census: Census, name: str) -> Apartment:
    rng, bedrooms = census.rng, census.rng.choice((1, 1, 2, 2, 3, 4))
    town = rng.randrange(len(census.towns))
    return Apartment(
        name=name,
        location=f"{rng.randint(1, 90)} {rng.choice(census.streets)}, {census.towns[town]}",
        zip_code=f"{10_000 + 100 * town + rng.randrange(6):05d}",
        price=float(rng.randint(*RENTS) // 10 * 10 + 120 * bedrooms),
        bedrooms=bedrooms,
        bathrooms=1 if bedrooms < 3 else 2,
        property_type=rng.choice(("Apartment", "Apartment", "Studio", "Condo", "House")),
        square_footage=320 * bedrooms + rng.randrange(250),
        furnished_status=rng.choice(("Furnished", "Unfurnished", "Semi-furnished")),
        floor_level=rng.choice(("Ground floor", "Upper floors", "Penthouse", "Basement")),
        pet_policy=rng.choice(("Pets allowed", "No pets", "Cats allowed", "Dogs allowed")),
        lease_term=rng.choice(("Month-to-month", "6 months", "1 year", "Long term lease")),
        apartment_id=ledger.new_id("f"),
        amenities=tuple(sorted(rng.sample(AMENITIES, rng.randint(1, 4)))),
    )


def crime(rng: Random, homes: Mapping[str, Apartment]) -> Iterator[tuple[str, CrimeDataPoint]]:
    """A crime rate for each zip code in which something is for rent."""
    for code in sorted({flat.zip_code for flat in homes.values()}):
        yield (
            code,
            CrimeDataPoint(violent_crime=round(rng.uniform(0.5, 9), 1), property_crime=round(rng.uniform(2, 30), 1)),
        )


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
    ledger.products.update((one.product_id, one) for one in products(ledger, census, much.products))
    ledger.flats.update((one.apartment_id, one) for one in flats(ledger, census, much.flats))
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
            discount_codes=Table(dict(discounts(rng, ledger.products))),
        ),
        Apartments("RentAFlat", apartments=Table(ledger.flats)),
        Cabs("Cabs", ride_history=Table(ledger.rides)),
        City("City", crime_data=Table(dict(crime(rng, ledger.flats)))),
        Files("Files", entries=Table(ledger.entries)),
        Reminders("Reminders"),
    ]
