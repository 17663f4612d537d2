"""The people of a universe: the user, and all acquaintances of the user."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from wanderlust_life.universes.personas import Names
from wanderlust_life.universes.text_templates import shuffled, word_list
from wanderlust_worlds.apps.contacts import Contact, EmploymentStatus, Gender
from wanderlust_worlds.engine.cow_dict import FrozenRecord

SERVICE_JOBS = {
    "dentist": "dentist",
    "landlord": "landlord",
    "hairdresser": "hairdresser",
    "mechanic": "mechanic",
    "vet": "vet",
    "accountant": "accountant",
    "physiotherapist": "physiotherapist",
    "piano teacher": "music teacher",
}
"""The jobs of people who serve the user, by their tie."""
FAMILY_GENDERS = {
    "mother": "Female",
    "father": "Male",
    "sister": "Female",
    "brother": "Male",
    "aunt": "Female",
    "uncle": "Male",
}


class Person(FrozenRecord):
    """A person, or a firm that sends mail (with an empty last name)."""

    id: str
    first: str
    last: str
    tie: str
    """The relation to the user: friend, colleague, neighbour, shop, dentist, sister, partner, user."""
    gender: Gender = "Unknown"
    age: int = 40
    job: str = ""
    firm: str = ""
    email: str = ""
    phone: str = ""
    city: str = ""
    street: str = ""

    @property
    def name(self) -> str:
        """The full name."""
        return f"{self.first} {self.last}".strip()

    @property
    def address(self) -> str:
        """The home, as one writes it on a letter."""
        return f"{self.street}, {self.city}"

    def contact(self) -> Contact:
        """The entry in the user's contacts."""
        about = f"{self.tie} at {self.firm}" if self.firm and self.tie == "colleague" else self.tie
        status: EmploymentStatus = "Unknown" if not self.last else "Retired" if self.age > 66 else "Employed"
        return Contact(
            first_name=self.first,
            last_name=self.last,
            contact_id=self.id,
            is_user=self.tie == "user",
            gender=self.gender,
            age=self.age if self.last else None,
            city_living=self.city,
            country="Wanderland",
            status=status,
            job=self.job or None,
            description=about.capitalize(),
            phone=self.phone or None,
            email=self.email,
            address=self.address,
        )


class LifeSize(FrozenRecord):
    """The size of a life."""

    friends: int
    colleagues: int
    neighbours: int
    services: int
    shops: int
    storylines: int
    """Approximate number of storylines of each kind."""
    chatter: int
    """Messages in each conversation, about."""
    products: int
    flats: int


LIFE_SIZES = {
    "small": LifeSize(
        friends=5, colleagues=5, neighbours=3, services=4, shops=3, storylines=3, chatter=6, products=15, flats=10
    ),
    "medium": LifeSize(
        friends=14, colleagues=16, neighbours=6, services=6, shops=6, storylines=12, chatter=14, products=40, flats=40
    ),
    "gaia2": LifeSize(
        friends=40,
        colleagues=44,
        neighbours=14,
        services=8,
        shops=12,
        storylines=68,
        chatter=40,
        products=56,
        flats=120,
    ),
}


class People:
    """Deals names, addresses and numbers, none of them twice."""

    def __init__(self, rng: Random, names: Names, identify: str):
        self.rng, self.names, self._identify, self._count = rng, names, identify, 0
        self.firsts = {"Female": names.women, "Male": names.men}
        self._lasts = iter(shuffled(rng, names.surnames))
        self.towns = shuffled(rng, names.towns)[:4]
        self.streets = shuffled(rng, names.streets)
        self.places = shuffled(rng, names.places)
        self.firms = iter(shuffled(rng, names.firms))
        self.shops = iter(shuffled(rng, names.shops))
        self.agencies = iter(shuffled(rng, names.agencies))
        self._taken: set[str] = set()
        self.once = ""
        """A first name that is kept free: only a person who is made with it has it."""

    def person(self, tie: str, *, first: str = "", last: str = "", gender: Gender = "Unknown", job: str = "") -> Person:
        """Make a new person; the given fields are kept."""
        rng = self.rng
        sex: Gender = gender if gender != "Unknown" else rng.choice(("Female", "Male"))
        first_given = first
        first, last = first or rng.choice(self.firsts[sex]), last or next(self._lasts)
        while f"{first} {last}" in self._taken or (first == self.once and first != first_given):
            first = rng.choice(self.firsts[sex])
        self._taken.add(f"{first} {last}")
        old = tie in ("mother", "father", "aunt", "uncle")
        return Person(
            id=self.new_id(),
            first=first,
            last=last,
            tie=tie,
            gender=sex,
            age=rng.randint(62, 84) if old else rng.randint(30, 42) if tie == "user" else rng.randint(24, 60),
            job=job or rng.choice(word_list("office_jobs" if tie in ("user", "colleague") else "jobs")),
            email=f"{mail_name(first, last)}@{rng.choice(('post', 'mail', 'letter'))}.example",
            phone=self.phone(),
            city=rng.choice(self.towns),
            street=f"{rng.randint(1, 90)} {rng.choice(self.streets)}",
        )

    def firm(self, tie: str, name: str) -> Person:
        """A firm that writes mails."""
        domain = mail_name(name).replace(".", "-")
        return Person(
            id=self.new_id(),
            first=name,
            last="",
            tie=tie,
            email=f"service@{domain}.example",
            phone=self.phone(),
            city=self.rng.choice(self.towns),
            street=f"{self.rng.randint(1, 90)} {self.rng.choice(self.streets)}",
        )

    def phone(self) -> str:
        """A phone number that is not in use: 555 01 is kept free for stories."""
        self._count += 1
        return f"+1 555 01{self._count % 100:02d} {self.rng.randrange(10_000):04d}"

    def new_id(self) -> str:
        """A contact's id."""
        self._count += 1
        return f"{self._identify}{self._count:04d}{self.rng.randrange(16**8):08x}"


def acquaintances(people: People, size: LifeSize) -> Iterator[Person]:
    """The user first, then everybody in the user's life. Some share a first name, and family shares the last one."""
    rng = people.rng
    employer = next(people.firms)
    user = people.person("user")
    yield _with_employer(user, employer)
    sex: Gender = rng.choice(("Female", "Male"))
    yield people.person("partner", gender=sex)
    for tie in rng.sample(sorted(FAMILY_GENDERS), min(len(FAMILY_GENDERS), 2 + size.storylines // 4)):
        yield people.person(tie, last=user.last, gender="Female" if FAMILY_GENDERS[tie] == "Female" else "Male")
    namesake = people.person("friend")
    people.once = namesake.first
    yield namesake
    yield from (people.person("friend") for _ in range(size.friends - 1))
    yield _with_employer(people.person("colleague", first=namesake.first, gender=namesake.gender), employer)
    for _ in range(size.colleagues - 1):
        yield _with_employer(people.person("colleague"), employer)
    for _ in range(size.neighbours):
        yield people.person("neighbour")
    for tie in sorted(rng.sample(sorted(SERVICE_JOBS), size.services)):
        yield people.person(tie, job=SERVICE_JOBS[tie])
    for _ in range(size.shops):
        yield people.firm("shop", next(people.shops))
    yield people.firm("cab", "City Cabs")
    yield people.firm("agency", next(people.agencies))


def _with_employer(person: Person, employer: str) -> Person:
    domain = mail_name(employer).replace(".", "-")
    return replace(person, firm=employer, email=f"{mail_name(person.first, person.last)}@{domain}.example")


def mail_name(*names: str) -> str:
    """Names as an address has them: lower case, ASCII, dots between words."""
    text = unicodedata.normalize("NFKD", " ".join(names).lower().translate(_IN_ASCII))
    return ".".join(re.findall(r"[a-z0-9-]+", text.encode("ascii", "ignore").decode()))


_IN_ASCII = str.maketrans(
    {"ß": "ss", "ø": "o", "ł": "l", "æ": "ae", "œ": "oe", "đ": "d", "ð": "d", "þ": "th", "\u0131": "i"}
)
"""Letters that have no form without a mark."""
