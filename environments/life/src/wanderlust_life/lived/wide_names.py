"""Names of people and places whom nobody in a life knows well, and words of professions, offices and dictionaries.

Strangers and distant towns are of some thirty countries. Their names, the professions and all words but those of games
come from the lists of the package `faker` (extra `locales`): equal for equal versions of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.resources import files
from math import gcd
from random import Random
from typing import Any

from wanderlust._lazy import needs_extra
from wanderlust_life.universes.text_templates import word_list, word_pairs

WIDE_LOCALES = (
    "cs_CZ da_DK de_AT de_DE en_GB en_IN en_US es_ES es_MX et_EE fi_FI fr_FR hr_HR hu_HU id_ID it_IT lv_LV nl_NL no_NO "
    "pl_PL pt_BR pt_PT ro_RO sk_SK sl_SI sv_SE tr_TR"
)
"""Languages and countries of those names."""
_FIRST = ("first_names", "first_names_male", "first_names_female")
_LAST = ("last_names", "unisex_last_names", "last_names_male", "last_names_female")
_TOWN = ("cities", "places", "freguesias")
UNFIT = frozenset({"breast", "gross", "hell", "kill", "pregnant", "screw", "sexual"})
"""Words that a letter would not have in such a list."""
_NAME = re.compile(r"[A-Z\u00c0-\u024f][a-z\u00df-\u024f]{2,}(?:[ -][A-Z\u00c0-\u024f][a-z\u00df-\u024f]+)?")


class NameWalk:
    """Names in an order of a seed's own, none twice before all were given."""

    def __init__(self, names: Sequence[str], rng: Random):
        self._names, self._at = names, rng.randrange(len(names))
        self._step = rng.randrange(len(names) // 3, len(names) // 2)
        while gcd(self._step, len(names)) > 1:
            self._step += 1

    def __next__(self) -> str:
        self._at = (self._at + self._step) % len(self._names)
        return self._names[self._at]


@cache
def wide_names() -> Mapping[str, tuple[str, ...]]:
    """First names, surnames and towns. None is a first name, surname or town of the project's own lives.

    Raises UsageError where the extra `locales` is missing.
    """
    with needs_extra("locales"):
        import faker.providers

    parts = f"{faker.providers.__name__}."
    people = [vars(import_module(f"{parts}person.{one}").Provider) for one in WIDE_LOCALES.split()]
    places = [_address(f"{parts}address.{one}") for one in WIDE_LOCALES.split()]
    taken = {name.casefold() for split in ("train", "held") for name in _names_of_lives(split)}
    firsts, lasts = (_fresh(people, kinds, taken) for kinds in (_FIRST, _LAST))
    taken |= {name.casefold() for name in (*firsts, *lasts)}
    return {"first": firsts, "last": lasts, "town": _fresh(places, _TOWN, taken)}


@cache
def office_words() -> Mapping[str, tuple[str, ...]]:
    """Words that offices use: what one does, how, and with what.

    Raises UsageError where the extra `locales` is missing.
    """
    with needs_extra("locales"):
        from faker.providers.company import Provider

    verbs, manners, goods = Provider.bsWords
    how, kinds, things = Provider.catch_phrase_words
    qualities = [one.lower() for one in (*manners, *how, *kinds) if one.replace("-", "").isalpha()]
    return {"verb": tuple(verbs), "quality": tuple(sorted({*qualities})), "goods": tuple(sorted({*goods, *things}))}


@cache
def dictionary_words() -> Mapping[str, tuple[str, ...]]:
    """Common nouns, verbs, adjectives and adverbs, for word lists of a class, crosswords and themes of contests.

    Raises UsageError where the extra `locales` is missing.
    """
    with needs_extra("locales"):
        from faker.providers.lorem.en_US import Provider

    names = {"noun": "noun", "action": "verb", "trait": "adjective", "manner": "adverb"}
    return {
        kind: tuple(sorted({one for one in Provider.parts_of_speech[name] if len(one) > 3 and one not in UNFIT}))
        for kind, name in names.items()
    }


@cache
def professions() -> tuple[str, ...]:
    """Professions: `civil engineer`, where the list has "Engineer, civil".

    Raises UsageError where the extra `locales` is missing.
    """
    with needs_extra("locales"):
        from faker.providers.job import Provider

    plain = (re.fullmatch(r"([A-Za-z -]+)(?:, ([a-z -]+))?", one) for one in Provider.jobs)
    return tuple(sorted({" ".join(filter(None, (one[2], one[1].lower()))) for one in plain if one}))


@cache
def game_words() -> tuple[str, ...]:
    """Words that are laid in word games: the secrets of the environment `wordle`."""
    secrets, _, _ = (files("wanderlust.environments") / "wordle_words.txt").read_text("utf-8").partition("\n\n")
    return tuple(secrets.split())


def _address(name: str) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = vars(import_module(name).Provider)
    except ModuleNotFoundError:  # a locale without addresses
        return {}
    return found


def _names_of_lives(split: str) -> Iterator[str]:
    for kind in ("women", "men", "brands"):
        yield from word_list(f"{split}.{kind}")
    yield from word_pairs(f"{split}.surnames", "endings", "")
    yield from word_pairs(f"{split}.towns", "town_endings", "")
    for kind in ("places", "firms"):
        yield from word_list(f"{split}.{kind}")


def _fresh(sources: Iterable[Mapping[str, Any]], kinds: Sequence[str], taken: set[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for source in sources:
        for kind in kinds:
            for name in map(str, source.get(kind, ())):
                if _NAME.fullmatch(name) and name.casefold() not in taken:
                    found[name] = None
    return tuple(sorted(found))
