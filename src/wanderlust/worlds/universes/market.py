"""What can be bought and rented in a universe, and how safe its quarters are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from wanderlust.worlds.apps.apartments import Apartment
from wanderlust.worlds.apps.city import CrimeDataPoint
from wanderlust.worlds.apps.shopping import Item, Product
from wanderlust.worlds.universes.ledger import Ledger
from wanderlust.worlds.universes.people import Census
from wanderlust.worlds.universes.wording import deck, words

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
