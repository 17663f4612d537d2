"""Names of a life: those of the project, a persona's own, or those of a language and country."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import islice, pairwise, product

from wanderlust._lazy import needs_extra
from wanderlust.errors import UsageError, one_line
from wanderlust.plugins import declared
from wanderlust.tasks.registry import resolve_object
from wanderlust_life.universes.text_templates import Split, word_list, word_pairs

LEAST_NAMES = {
    "women": 24,
    "men": 24,
    "surnames": 300,
    "towns": 8,
    "streets": 16,
    "places": 8,
    "firms": 16,
    "brands": 8,
}
"""Names of each kind that a persona needs, for both halves together."""
MAX_NAME_CHARS = 30
_NAME = re.compile(r"[^\W\d_]+(?:[ '.\u2019-]{1,2}[^\W\d_]+)*\.?")
_LOCALE = re.compile(r"[a-z]{2,3}_[A-Z]{2}")
PERSONA_ENTRY_POINTS = "wanderlust.personas"
"""Group of entry points of packages: each names a Persona."""
_DRAWS = 5_000
"""Draws in which a locale has to show enough different names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """All names that a universe may deal, whole."""

    women: tuple[str, ...]
    men: tuple[str, ...]
    surnames: tuple[str, ...]
    towns: tuple[str, ...]
    streets: tuple[str, ...]
    places: tuple[str, ...]
    firms: tuple[str, ...]
    shops: tuple[str, ...]
    agencies: tuple[str, ...]
    brands: tuple[str, ...]


@lru_cache(maxsize=2)
def names_of_split(split: Split) -> Names:
    """The project's own names; those of the two splits have nothing in common."""
    return Names(
        women=word_list(f"{split}.women"),
        men=word_list(f"{split}.men"),
        surnames=word_pairs(f"{split}.surnames", "endings", ""),
        towns=word_pairs(f"{split}.towns", "town_endings", ""),
        streets=word_pairs(f"{split}.streets", "street_endings"),
        places=tuple(f"The {name}" for name in word_pairs(f"{split}.places", "place_endings")),
        firms=word_pairs(f"{split}.firms", "firm_endings"),
        shops=word_pairs(f"{split}.firms", "shop_endings"),
        agencies=word_pairs(f"{split}.firms", "agency_endings"),
        brands=word_list(f"{split}.brands"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """Names of your own for a life: the first, third, ... of each kind for training, the others held out.

    Raises UsageError for too few names, for what is no name, and for a name of two kinds: texts could not tell them
    apart.
    """

    name: str
    """Letters, digits, `-` and `_`."""
    women: Sequence[str]
    men: Sequence[str]
    surnames: Sequence[str]
    towns: Sequence[str]
    streets: Sequence[str]
    places: Sequence[str]
    """First words of places to meet, as `Blue` in The Blue Anchor."""
    firms: Sequence[str]
    """First words of firms and shops, as `Carden` in Carden Logistics."""
    brands: Sequence[str]

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", self.name):
            raise UsageError(f"{one_line(self.name, 60)!r} is no name of a persona: letters, digits, - and _")
        kinds: dict[str, str] = {}
        for kind, least in LEAST_NAMES.items():
            names = tuple(getattr(self, kind))
            object.__setattr__(self, kind, names)
            if len(names) < least:
                raise UsageError(f"the persona {self.name} has {len(names)} {kind}: {least} are needed, half held out")
            for name in names:
                if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARS:
                    raise UsageError(f"the persona {self.name}: {one_line(repr(name), 60)} among its {kind} is no name")
                other = kinds.setdefault(name.casefold(), kind)
                if other != kind:
                    raise UsageError(f"the persona {self.name}: {name} is among its {other} and its {kind}")
            if len({name.casefold() for name in names}) < len(names):
                raise UsageError(f"the persona {self.name} has a name twice among its {kind}")

    def names(self, split: Split) -> Names:
        """The half of the names that belongs to a split."""
        mine = {one.name: tuple(getattr(self, one.name))[split == "held" :: 2] for one in fields(self)[1:]}
        places, firms = mine.pop("places"), mine.pop("firms")

        def pairs(first: Sequence[str], kind: str) -> tuple[str, ...]:
            return tuple(" ".join(pair) for pair in product(first, word_list(kind)))

        return Names(
            places=tuple(f"The {name}" for name in pairs(places, "place_endings")),
            firms=pairs(firms, "firm_endings"),
            shops=pairs(firms, "shop_endings"),
            agencies=pairs(firms, "agency_endings"),
            **mine,
        )


def find_persona(name: str) -> Persona:
    """The persona of an installed package, at `package.module:NAME` or `file.py:NAME`, or of a locale such as `de_DE`.

    Raises UsageError when there is none.
    """
    points = {name: point.value for name, point in declared(PERSONA_ENTRY_POINTS).items()}
    if name not in points and _LOCALE.fullmatch(name):
        return locale_persona(name)
    if (target := points.get(name, name)) == name and ":" not in name:
        known = ", ".join(points) or "none is installed"
        raise UsageError(f"there is no persona {name!r}: {known}; or file.py:NAME, or a locale such as de_DE")
    found = resolve_object(target)
    if not isinstance(found, Persona):
        raise UsageError(f"{target} is no Persona, but a {type(found).__name__}")
    return found


@lru_cache(maxsize=8)
def locale_persona(locale: str) -> Persona:
    """The persona of a language and country, from the lists of the package `faker`: equal for equal versions of it.

    Raises UsageError where the extra is missing, and for a locale without enough names in Latin letters.
    """
    with needs_extra("locales"):
        from faker import Faker
        from faker.config import AVAILABLE_LOCALES

    if locale not in AVAILABLE_LOCALES:
        raise UsageError(f"there are no names for {locale}: faker has {', '.join(sorted(AVAILABLE_LOCALES))}")
    source = Faker(locale)
    source.seed_instance(0)
    taken: set[str] = set()

    def some(kind: str, method: str, *, words: int = 1, doubled: bool = False) -> tuple[str, ...]:
        draw, count = getattr(source, method, None), LEAST_NAMES[kind]
        names = [str(draw()) for _ in range(_DRAWS)] if draw is not None else []
        if doubled:
            names += [f"{first}-{second}" for first, second in pairwise(names)]
        found = tuple(islice(_fresh(iter(names), taken, words), count))
        if len(found) < count:
            raise UsageError(f"{locale} has {len(found)} {kind} in Latin letters: {count} are needed")
        return found

    return Persona(
        name=locale,
        women=some("women", "first_name_female"),
        men=some("men", "first_name_male"),
        firms=some("firms", "last_name"),
        brands=some("brands", "last_name"),
        surnames=some("surnames", "last_name", doubled=True),
        towns=some("towns", "city", words=2),
        places=some("places", "city"),
        streets=some("streets", "street_name", words=4),
    )


def _fresh(names: Iterator[str], taken: set[str], words: int) -> Iterator[str]:
    """Names in Latin letters, of at most so many words, that were not drawn before."""
    for name in names:
        fits = _NAME.fullmatch(name) and len(name) <= MAX_NAME_CHARS and len(name.split()) <= words
        if fits and name.casefold() not in taken and max(name) < "\u0250":
            taken.add(name.casefold())
            yield name
