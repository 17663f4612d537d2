"""A universe: a person's life at a moment, as apps whose contents agree with each other."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from random import Random
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from wanderlust.errors import UsageError
from wanderlust_life.universes.ledger import USER_ID, AppRows, Storyline
from wanderlust_life.universes.people import LIFE_SIZES, LifeSize, People, Person, acquaintances
from wanderlust_life.universes.personas import Names, Persona, names_of_split
from wanderlust_life.universes.storylines import LifeContext, add_chatter, make_storylines
from wanderlust_life.universes.text_templates import Split, shuffled, word_list
from wanderlust_worlds.apps import (
    Apartment,
    Apartments,
    Cabs,
    Calendar,
    City,
    Contacts,
    CrimeDataPoint,
    Files,
    Item,
    Mail,
    Messages,
    Product,
    Reminders,
    Shopping,
)
from wanderlust_worlds.apps.user_interface import System, UserInterface
from wanderlust_worlds.engine.app import App, format_time
from wanderlust_worlds.engine.cow_dict import CowDict

PRICE_RANGE = (9.0, 240.0)
"""Prices of products before their variants, in EUR."""
RENT_RANGE = (620, 2_450)
"""Rents a month before the share for each bedroom, in EUR."""
AMENITIES = ("Balcony", "Bicycle room", "Cellar", "Dishwasher", "Fireplace", "Garden", "Lift", "Parking", "Washer")


def make_products(rows: AppRows, people: People, count: int) -> Iterator[Product]:
    """Products with three to six variants each."""
    rng = people.rng
    brands = people.names.brands
    for kind in shuffled(rng, word_list("products"))[:count]:
        base = rng.uniform(*PRICE_RANGE)
        name, product = f"{rng.choice(brands)} {kind}", rows.new_id("p")
        variants = {}
        for colour in rng.sample(word_list("colours"), rng.randint(3, 6)):
            item = rows.new_id("i")
            price = round(base * rng.uniform(0.85, 1.25), 2)
            options = {"colour": colour, "size": rng.choice(word_list("sizes"))}
            variants[item] = Item(item_id=item, price=price, available=rng.random() < 0.9, options=options)
        yield Product(product_id=product, name=name, variants=variants)


def make_discounts(rng: Random, goods: Mapping[str, Product]) -> Iterator[tuple[str, dict[str, float]]]:
    """Codes that work for one variant each."""
    for product in goods.values():
        if rng.random() < 0.3:
            item = rng.choice([*product.variants])
            yield item, {f"SAVE{rng.randrange(1000):03d}": float(rng.randrange(5, 35, 5))}


def make_flats(rows: AppRows, people: People, count: int) -> Iterator[Apartment]:
    """Flats for rent, no two with one name."""
    rng = people.rng
    kinds = ("Loft", "Court", "House", "Yard", "View", "Corner", "Rooms")
    names = shuffled(rng, [f"{street.split()[0]} {kind}" for street in people.streets for kind in kinds])
    for name in dict.fromkeys(names[: 3 * count]):
        if not count:
            return
        count -= 1
        bedrooms, town = rng.choice((1, 1, 2, 2, 3, 4)), rng.randrange(len(people.towns))
        yield Apartment(
            name=name,
            location=f"{rng.randint(1, 90)} {rng.choice(people.streets)}, {people.towns[town]}",
            zip_code=f"{10_000 + 100 * town + rng.randrange(6):05d}",
            price=float(rng.randint(*RENT_RANGE) // 10 * 10 + 120 * bedrooms),
            bedrooms=bedrooms,
            bathrooms=1 if bedrooms < 3 else 2,
            property_type=rng.choice(("Apartment", "Apartment", "Studio", "Condo", "House")),
            square_footage=320 * bedrooms + rng.randrange(250),
            furnished_status=rng.choice(("Furnished", "Unfurnished", "Semi-furnished")),
            floor_level=rng.choice(("Ground floor", "Upper floors", "Penthouse", "Basement")),
            pet_policy=rng.choice(("Pets allowed", "No pets", "Cats allowed", "Dogs allowed")),
            lease_term=rng.choice(("Month-to-month", "6 months", "1 year", "Long term lease")),
            apartment_id=rows.new_id("f"),
            amenities=tuple(sorted(rng.sample(AMENITIES, rng.randint(1, 4)))),
        )


def make_crime_rates(rng: Random, homes: Mapping[str, Apartment]) -> Iterator[tuple[str, CrimeDataPoint]]:
    """A crime rate for each zip code in which something is for rent."""
    for code in sorted({flat.zip_code for flat in homes.values()}):
        violent, against_property = round(rng.uniform(0.5, 9), 1), round(rng.uniform(2, 30), 1)
        yield code, CrimeDataPoint(violent_crime=violent, property_crime=against_property)


SizeName: TypeAlias = Literal["small", "medium", "gaia2"]
UNIVERSE_CACHE_ENTRIES = 8
"""Universes that a process keeps."""


class LifeApps(NamedTuple):
    """The apps of a life."""

    ui: UserInterface
    system: System
    mail: Mail
    chats: Messages
    """By user."""
    texts: Messages
    """By phone number."""
    calendar: Calendar
    contacts: Contacts
    shop: Shopping
    flats: Apartments
    cabs: Cabs
    city: City
    files: Files
    reminders: Reminders

    def with_own_tables(self) -> LifeApps:
        """The same apps, which may be written to without a change to these."""
        apps: list[Any] = [type(app)(app.name, **{key: getattr(app, key) for key in app.fields()}) for app in self]
        return LifeApps(*apps)


@dataclass(frozen=True, kw_only=True, eq=False)
class Universe:
    """A life and the apps that hold it. Nothing in it is ever written to: scenarios begin with branches."""

    seed: int
    size: SizeName
    split: Split
    persona: Persona | None = None
    """Whose names it has; those of the project where there is none."""
    start: float
    """Now, in seconds since 1970."""
    people: Mapping[str, Person]
    """By id, the user first."""
    storylines: tuple[Storyline, ...]
    """The events of the life, for authors of scenarios and for checks. No app shows them."""
    places: tuple[str, ...]
    life: LifeApps

    @cached_property
    def apps(self) -> Mapping[str, App]:
        """The apps by name."""
        return {app.name: app for app in self.life}

    @property
    def user(self) -> Person:
        """The person whose life it is."""
        return next(iter(self.people.values()))

    @property
    def name(self) -> str:
        """A name that no other universe has."""
        return _universe_name(self.seed, self.size, split=self.split, persona=self.persona, between="-")

    @property
    def names(self) -> Names:
        """All names that it could deal."""
        return self.persona.names(self.split) if self.persona is not None else names_of_split(self.split)


def make_universe(
    seed: int, size: SizeName = "small", split: Split = "train", *, persona: Persona | None = None
) -> Universe:
    """The universe of a seed: the same in every process; the latest few are kept.

    Raises UsageError for another size or split.
    """
    if size not in LIFE_SIZES:
        raise UsageError(f"there is no size {size!r}: one of {', '.join(LIFE_SIZES)}")
    if split not in get_args(Split):
        raise UsageError(f"there is no split {split!r} of universes: one of {', '.join(get_args(Split))}")
    return _universe(seed, size, split, persona=persona)


def _universe_name(seed: int, size: SizeName, *, split: Split, persona: Persona | None, between: str) -> str:
    return between.join([*([persona.name] if persona is not None else []), split, size, str(seed)])


@lru_cache(maxsize=UNIVERSE_CACHE_ENTRIES)
def _universe(seed: int, size: SizeName, split: Split, *, persona: Persona | None) -> Universe:
    name = _universe_name(seed, size, split=split, persona=persona, between="/")
    rng, much = Random(f"universe/{name}"), LIFE_SIZES[size]
    identify = f"{rng.randrange(16**4):04x}"
    census = People(rng, persona.names(split) if persona is not None else names_of_split(split), identify)
    people = {person.id: person for person in acquaintances(census, much)}
    user = next(iter(people.values()))
    morning = datetime(2025, 3, 3, 8, tzinfo=UTC)  # a Monday
    start = (morning + timedelta(weeks=rng.randrange(200), days=rng.randrange(5))).timestamp()
    ledger = AppRows(user, start, rng=rng, identify=identify)
    storylines = _live_a_life(ledger, census, people=people, much=much)
    return Universe(
        seed=seed,
        size=size,
        split=split,
        persona=persona,
        start=start,
        people=people,
        storylines=tuple(storylines),
        places=tuple(census.places),
        life=life_apps(ledger, people, rng),
    )


def _live_a_life(ledger: AppRows, census: People, *, people: Mapping[str, Person], much: LifeSize) -> list[Storyline]:
    """Fill the ledger with products, flats, storylines, small talk and a table of past expenses."""
    ledger.products.update((one.product_id, one) for one in make_products(ledger, census, much.products))
    ledger.flats.update((one.apartment_id, one) for one in make_flats(ledger, census, much.flats))
    ties: dict[str, tuple[Person, ...]] = {}
    for person in people.values():
        ties[person.tie] = (*ties.get(person.tie, ()), person)
    life = LifeContext(
        rows=ledger,
        rng=census.rng,
        people=ties,
        places=tuple(census.places[:40]),
        streets=tuple(census.streets),
        town=ledger.user.city,
    )
    storylines = make_storylines(life, much.storylines)
    add_chatter(life, much.chatter)
    spent = [one for one in storylines if one.amount and one.kind in ("invoice", "ride", "order")]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("date", "kind", "number", "amount"))
    for one in sorted(spent, key=lambda one: one.when):
        table.writerow((format_time(one.when, "%Y-%m-%d"), one.kind, one.number, f"{one.amount:.2f}"))
    ledger.file("Documents/expenses.csv", text.getvalue())
    return storylines


def life_apps(ledger: AppRows, people: Mapping[str, Person], rng: Random) -> LifeApps:
    """The apps with the rows of a life."""
    user = ledger.user
    firms = ("shop", "cab", "agency", "club")
    names = {f"u{one.id}": one.name for one in people.values() if one is not user and one.tie not in firms}
    phones = {one.phone: one.name for one in people.values()}
    talks = {app: CowDict(dict(ledger.conversations(app))) for app in ("Chats", "Messages")}
    return LifeApps(
        ui=UserInterface("AgentUserInterface"),
        system=System("System"),
        mail=Mail("Emails", user_email=user.email, inbox=CowDict(ledger.inbox), sent=CowDict(ledger.sent)),
        chats=Messages(
            "Chats",
            mode="NAME",
            current_user_id=USER_ID,
            current_user_name=user.name,
            names=CowDict({USER_ID: user.name, **names}),
            conversations=talks["Chats"],
        ),
        texts=Messages(
            "Messages",
            mode="PHONE_NUMBER",
            current_user_id=user.phone,
            current_user_name=user.name,
            names=CowDict(phones),
            conversations=talks["Messages"],
        ),
        calendar=Calendar("Calendar", events=CowDict(ledger.events)),
        contacts=Contacts("Contacts", contacts=CowDict({one.id: one.contact() for one in people.values()})),
        shop=Shopping(
            "Shopping",
            products=CowDict(ledger.products),
            orders=CowDict(ledger.orders),
            discount_codes=CowDict(dict(make_discounts(rng, ledger.products))),
        ),
        flats=Apartments("RentAFlat", apartments=CowDict(ledger.flats)),
        cabs=Cabs("Cabs", ride_history=CowDict(ledger.rides)),
        city=City("City", crime_data=CowDict(dict(make_crime_rates(rng, ledger.flats)))),
        files=Files("Files", entries=CowDict(ledger.entries)),
        reminders=Reminders("Reminders"),
    )
