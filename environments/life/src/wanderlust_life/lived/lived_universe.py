"""Universes in which all that happens is decided first: people, places and habits, then months of events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import Random
from typing import get_args

from msgspec.structs import replace

from wanderlust.errors import UsageError
from wanderlust_life.lived import official_happenings, private_happenings, smalltalk
from wanderlust_life.lived.chronicle import CLOSE_TIES, SERVICE_VOICES, VOICES, Chronicle
from wanderlust_life.lived.facts_ledger import FactsLedger
from wanderlust_life.lived.slots import WordSource
from wanderlust_life.universes.generate import (
    UNIVERSE_CACHE_ENTRIES,
    SizeName,
    Universe,
    life_apps,
    make_flats,
    make_products,
)
from wanderlust_life.universes.ledger import AppRows
from wanderlust_life.universes.people import LIFE_SIZES, People, Person, acquaintances
from wanderlust_life.universes.personas import Persona, names_of_split
from wanderlust_life.universes.text_templates import Split, shuffled
from wanderlust_worlds.engine.cow_dict import FrozenRecord


class LivedSize(FrozenRecord):
    """How much happens in a life."""

    much: int
    """Multiplies the number of happenings of each kind."""
    dialogues: int
    letters: int
    round_letters: int
    clubs: int


LIVED_SIZES: Mapping[SizeName, LivedSize] = {
    "small": LivedSize(much=1, dialogues=90, letters=24, round_letters=6, clubs=2),
    "medium": LivedSize(much=4, dialogues=380, letters=90, round_letters=50, clubs=4),
    "gaia2": LivedSize(much=10, dialogues=700, letters=420, round_letters=318, clubs=8),
}
HAPPENINGS: Mapping[Callable[[Chronicle], None], int] = {
    private_happenings.meal: 18,
    private_happenings.loan: 6,
    private_happenings.advice: 6,
    private_happenings.trip: 3,
    private_happenings.collection: 4,
    private_happenings.favour: 4,
    private_happenings.referral: 3,
    private_happenings.party: 4,
    private_happenings.parcel: 5,
    official_happenings.appointment: 11,
    official_happenings.meeting: 14,
    official_happenings.handover: 5,
    official_happenings.order: 11,
    official_happenings.viewing: 4,
    official_happenings.course: 3,
}
"""How often each kind happens in a small life."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LivedUniverse(Universe):
    """A life with the ledger of all that happened in it. Nothing in it is ever written to."""

    ledger: FactsLedger

    @property
    def name(self) -> str:
        """A name that no other universe has."""
        return f"lived-{super().name}"


def make_lived_universe(
    seed: int, size: SizeName = "small", split: Split = "train", *, persona: Persona | None = None
) -> LivedUniverse:
    """The lived universe of a seed: the same in every process; the latest few are kept.

    Raises UsageError for another size or split, and where the extra `locales` is missing.
    """
    if size not in LIVED_SIZES:
        raise UsageError(f"there is no size {size!r}: one of {', '.join(LIVED_SIZES)}")
    if split not in get_args(Split):
        raise UsageError(f"there is no split {split!r} of universes: one of {', '.join(get_args(Split))}")
    return _lived(seed, size, split, persona=persona)


@lru_cache(maxsize=UNIVERSE_CACHE_ENTRIES)
def _lived(seed: int, size: SizeName, split: Split, *, persona: Persona | None) -> LivedUniverse:
    whose = f"{persona.name}/" if persona is not None else ""
    rng = Random(f"lived/{whose}{split}/{size}/{seed}")
    identify = f"{rng.randrange(16**4):04x}"
    census = People(rng, persona.names(split) if persona is not None else names_of_split(split), identify)
    people = {one.id: one for one in acquaintances(census, LIFE_SIZES[size])}
    for _ in range(LIVED_SIZES[size].clubs):
        club = census.firm("club", f"{next(census.firms)} Circle")
        people[club.id] = club
    people = with_own_numbers(people)
    user = next(iter(people.values()))
    morning = datetime(2025, 7, 7, 8, tzinfo=UTC)  # a Monday
    start = (morning + timedelta(weeks=rng.randrange(180), days=rng.randrange(5))).timestamp()
    rows = AppRows(user, start, rng=rng, identify=identify)
    rows.products.update((one.product_id, one) for one in make_products(rows, census, LIFE_SIZES[size].products))
    rows.flats.update((one.apartment_id, one) for one in make_flats(rows, census, LIFE_SIZES[size].flats))
    life = _chronicle(rows, census, people)
    _live(life, LIVED_SIZES[size])
    return LivedUniverse(
        seed=seed,
        size=size,
        split=split,
        persona=persona,
        start=start,
        people=people,
        storylines=(),
        places=tuple(census.places),
        life=life_apps(rows, people, rng),
        ledger=FactsLedger(happenings=life.happenings, turns=tuple(life.turns), knows=frozenset(life.knows)),
    )


def with_own_numbers(people: Mapping[str, Person]) -> dict[str, Person]:
    """The same people, where two with one phone number get different ones: the later takes the next that is free."""
    taken, found = set[str](), dict[str, Person]()
    for name, one in people.items():
        start, _, last = one.phone.rpartition(" ")
        phones = (f"{start} {(int(last) + more) % 10_000:04d}" for more in range(10_000))
        phone = next(number for number in phones if number not in taken)
        taken.add(phone)
        found[name] = one if phone == one.phone else replace(one, phone=phone)
    return found


def _chronicle(rows: AppRows, census: People, people: Mapping[str, Person]) -> Chronicle:
    """The relations: circles of people who know each other, places, habits, and everybody's voice."""
    rng, ties = rows.rng, dict[str, tuple[Person, ...]]()
    for person in people.values():
        ties[person.tie] = (*ties.get(person.tie, ()), person)
    friends = ties["friend"]
    circles = [friends[n : n + 4] for n in range(0, len(friends), 4)]
    family = tuple(one for tie in CLOSE_TIES[1:] for one in ties.get(tie, ()))
    circles += [family, ties["colleague"][:4], (ties["partner"][0], *friends[:3])]
    life = Chronicle(
        rows=rows,
        words=WordSource(rng),
        people=people,
        ties=ties,
        circles=tuple(one for one in circles if one),
        places=tuple(census.places[: 8 + 2 * len(circles)]),
        voices={one.id: rng.choice(VOICES.get(one.tie, SERVICE_VOICES)) for one in people.values()},
    )
    for group in (*circles, ties["colleague"], ties["neighbour"]):
        life.knows |= {(one.id, other.id) for one in group for other in group if one is not other}
    for one in people.values():
        if one.last:
            _enter_person(life, one)
    return life


def _enter_person(life: Chronicle, one: Person) -> None:
    """What the contacts say of a person."""
    about, record = life.begin("person", one.id), f"Contacts/{one.id}"
    life.fact(about, "tie", one.tie, record)
    life.fact(about, "town", one.city, record)
    life.fact(about, "street", one.street, record)
    life.fact(about, "job", one.job, record)
    life.fact(about, "phone", one.phone, record)
    life.fact(about, "age", float(one.age), record)


def _live(life: Chronicle, size: LivedSize) -> None:
    """All happenings in an order drawn at random, then what fills the days."""
    deeds: Sequence[Callable[[Chronicle], None]] = [
        one for one, often in HAPPENINGS.items() for _ in range(often * size.much)
    ]
    for number in shuffled(life.rng, [str(n) for n in range(len(deeds))]):
        deeds[int(number)](life)
    for fill, count in (
        (smalltalk.dialogue, size.dialogues),
        (smalltalk.letters, size.letters),
        (smalltalk.round_letter, size.round_letters),
    ):
        for _ in range(count):
            fill(life)
