"""Who is who in a universe: the user, and all that the user knows."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from wanderlust.worlds.apps.contacts import GENDERS, STATUSES, Contact
from wanderlust.worlds.engine.cow_dict import Record
from wanderlust.worlds.life.universes.text_templates import Split, deck, joined, words

SERVICES = {
    "dentist": "dentist",
    "landlord": "landlord",
    "hairdresser": "hairdresser",
    "mechanic": "mechanic",
    "vet": "vet",
    "accountant": "accountant",
    "physiotherapist": "physiotherapist",
    "piano teacher": "music teacher",
}
"""What somebody is to the user, and the job that goes with it."""
KIN = {"mother": "Female", "father": "Male", "sister": "Female", "brother": "Male", "aunt": "Female", "uncle": "Male"}


class Person(Record):
    """Somebody, or a firm that sends mail (with an empty last name)."""

    id: str
    first: str
    last: str
    tie: str
    """What they are to the user: friend, colleague, neighbour, shop, dentist, sister, partner, user."""
    gender: GENDERS = "Unknown"
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
        status: STATUSES = "Unknown" if not self.last else "Retired" if self.age > 66 else "Employed"
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


class Size(Record):
    """How large a life is."""

    friends: int
    colleagues: int
    neighbours: int
    services: int
    shops: int
    matters: int
    """How often each kind of matter comes up, about."""
    chatter: int
    """Messages in each conversation, about."""
    products: int
    flats: int


SIZES = {
    "small": Size(
        friends=5, colleagues=5, neighbours=3, services=4, shops=3, matters=3, chatter=6, products=15, flats=10
    ),
    "medium": Size(
        friends=14, colleagues=16, neighbours=6, services=6, shops=6, matters=12, chatter=14, products=40, flats=40
    ),
    "gaia2": Size(
        friends=40, colleagues=44, neighbours=14, services=8, shops=12, matters=68, chatter=40, products=56, flats=120
    ),
}


class Census:
    """Deals names, addresses and numbers, none of them twice."""

    def __init__(self, rng: Random, split: Split, identify: str):
        self.rng, self.split, self._identify, self._count = rng, split, identify, 0
        self.firsts = {"Female": words(f"{split}.women"), "Male": words(f"{split}.men")}
        self._lasts = iter(deck(rng, joined(f"{split}.surnames", "endings", "")))
        self.towns = deck(rng, joined(f"{split}.towns", "town_endings", ""))[:4]
        self.streets = deck(rng, joined(f"{split}.streets", "street_endings"))
        self.places = deck(rng, [f"The {name}" for name in joined(f"{split}.places", "place_endings")])
        self.firms = iter(deck(rng, joined(f"{split}.firms", "firm_endings")))
        self.shops = iter(deck(rng, joined(f"{split}.firms", "shop_endings")))
        self.agencies = iter(deck(rng, joined(f"{split}.firms", "agency_endings")))
        self._taken: set[str] = set()
        self.once = ""
        """A first name that nobody gets any more unless it is asked for."""

    def person(
        self, tie: str, *, first: str = "", last: str = "", gender: GENDERS = "Unknown", job: str = ""
    ) -> Person:
        """Somebody new; what is given is kept."""
        rng = self.rng
        sex: GENDERS = gender if gender != "Unknown" else rng.choice(("Female", "Male"))
        given = first
        first, last = first or rng.choice(self.firsts[sex]), last or next(self._lasts)
        while f"{first} {last}" in self._taken or (first == self.once and first != given):
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
            job=job or rng.choice(words("office_jobs" if tie in ("user", "colleague") else "jobs")),
            email=f"{first}.{last}@{rng.choice(('post', 'mail', 'letter'))}.example".lower(),
            phone=self.phone(),
            city=rng.choice(self.towns),
            street=f"{rng.randint(1, 90)} {rng.choice(self.streets)}",
        )

    def firm(self, tie: str, name: str) -> Person:
        """A firm that writes mails."""
        domain = name.lower().replace(" ", "-")
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
        """A number that nobody has: 555 01 is kept free for stories."""
        self._count += 1
        return f"+1 555 01{self._count % 100:02d} {self.rng.randrange(10_000):04d}"

    def new_id(self) -> str:
        """A contact's id."""
        self._count += 1
        return f"{self._identify}{self._count:04d}{self.rng.randrange(16**8):08x}"


def circle(census: Census, size: Size) -> Iterator[Person]:
    """The user first, then everybody in the user's life. Some share a first name, and family shares the last one."""
    rng = census.rng
    employer = next(census.firms)
    user = census.person("user")
    yield _employed(user, employer)
    sex: GENDERS = rng.choice(("Female", "Male"))
    yield census.person("partner", gender=sex)
    for tie in rng.sample(sorted(KIN), min(len(KIN), 2 + size.matters // 4)):
        yield census.person(tie, last=user.last, gender="Female" if KIN[tie] == "Female" else "Male")
    namesake = census.person("friend")
    census.once = namesake.first
    yield namesake
    yield from (census.person("friend") for _ in range(size.friends - 1))
    yield _employed(census.person("colleague", first=namesake.first, gender=namesake.gender), employer)
    for _ in range(size.colleagues - 1):
        yield _employed(census.person("colleague"), employer)
    for _ in range(size.neighbours):
        yield census.person("neighbour")
    for tie in sorted(rng.sample(sorted(SERVICES), size.services)):
        yield census.person(tie, job=SERVICES[tie])
    for _ in range(size.shops):
        yield census.firm("shop", next(census.shops))
    yield census.firm("cab", "City Cabs")
    yield census.firm("agency", next(census.agencies))


def _employed(person: Person, employer: str) -> Person:
    given, domain = f"{person.first}.{person.last}".lower(), employer.lower().replace(" ", "-")
    fields = {name: getattr(person, name) for name in Person.__struct_fields__}
    return Person(**{**fields, "firm": employer, "email": f"{given}@{domain}.example"})
