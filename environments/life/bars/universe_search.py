"""Literal searches of lived universes: what a request's words find, and how that grows with the universe."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from random import Random
from statistics import median
from typing import get_args

from wanderlust.errors import UsageError
from wanderlust_life.families.family import LEVELS
from wanderlust_life.lived.lived_families import lived_families
from wanderlust_life.lived.lived_universe import LivedUniverse, make_lived_universe
from wanderlust_life.lived.questions import records_and_words
from wanderlust_life.lived.records import LifeRecord
from wanderlust_life.universes.generate import SizeName
from wanderlust_worlds.engine.events import PlannedCall
from wanderlust_worlds.engine.scenario import Scenario

GROWTH_SEEDS = 2
"""Seeds of the tasks whose searches are compared by size."""
DRAWS = 2_000
"""Draws of a bootstrap interval."""
FIRST_PAGE = 5
"""Hits of a search that are looked at."""
WORD = re.compile(r"[^\W\d_]+")
GRAMMAR = frozenset(
    """
    a about after all also am an and any are as asked at be been but by did
    do does end for from get go had has have how i if in is it its many
    me mean mine my no not now of on one or other others out over own please same
    several so some somebody something sorry such than that the their them then there these they this those
    to up was were what when where which who whoever whom whose why will with words would you
    your
    """.split()  # noqa: SIM905
)
"""Words that nobody searches for alone."""


def request_of(scenario: Scenario) -> str:
    """All that the user writes."""
    calls = [one for one in scenario.events if isinstance(one, PlannedCall)]
    return " ".join(one.args["content"] for one in calls if one.action == "send_message_to_agent")


@lru_cache(maxsize=4)
def texts_by_app(universe: LivedUniverse) -> Mapping[str, Sequence[tuple[str, LifeRecord]]]:
    """The records of each app with their texts in small letters, the newest first."""
    records, _ = records_and_words(universe)
    found: dict[str, list[tuple[str, LifeRecord]]] = {}
    for one in sorted(records.values(), key=lambda one: one.at or 0.0, reverse=True):
        found.setdefault(one.app, []).append((one.text.lower(), one))
    return found


@lru_cache(maxsize=40)
def whole_text(universe: LivedUniverse, app: str) -> str:
    """All texts of an app."""
    return "\n".join(text for text, _ in texts_by_app(universe)[app])


def literal_search(request: str, universe: LivedUniverse, answer: frozenset[str]) -> tuple[int, bool]:
    """Search each app for the words of a request that stand together and are rarest there, as one would try first.

    Gives the hits of the largest of these searches, and whether the newest hits of one of them state the answer. A hit
    is a mail, a message, an entry, ... with these words; nothing else is asked of the searcher than to read them.
    """
    phrases = phrases_of(request)
    most, is_found = 0, False
    for app, rows in texts_by_app(universe).items():
        text = whole_text(universe, app)
        counts = {phrase: count for phrase in phrases if (count := text.count(phrase))}
        if not counts:
            continue
        best = min(counts, key=lambda phrase: counts[phrase])
        hits = [record for lowered, record in rows if best in lowered]
        most = max(most, len(hits))
        is_found = is_found or any(one.name in answer for one in hits[:FIRST_PAGE])
    return most, is_found


def phrases_of(request: str) -> Sequence[str]:
    """The runs of one to three words of a request, in small letters."""
    words = [word.lower() for word in WORD.findall(request)]
    runs = {tuple(words[n : n + size]) for size in (1, 2, 3) for n in range(len(words) - size + 1)}
    return sorted(phrase for run in runs if len(phrase := " ".join(run)) > 3)


def best_search(request: str, universe: LivedUniverse, needed: frozenset[str]) -> int | None:
    """The hits of the best literal search: the fewest among those that find a record which the answer needs.

    Tried are all phrases of the request that have more than words of grammar, each in each app whose search reads
    texts (that of the contacts reads names and numbers alone). None where no phrase finds a needed record.
    """
    phrases = [one for one in phrases_of(request) if not GRAMMAR.issuperset(one.split())]
    found = []
    for app, rows in texts_by_app(universe).items():
        sought = [text for text, record in rows if record.name in needed]
        if app != "Contacts" and sought:
            useful = {phrase for phrase in phrases for text in sought if phrase in text}
            found += [sum(phrase in text for text, _ in rows) for phrase in useful]
    return min(found, default=None)


def hits_by_size() -> Mapping[SizeName, Mapping[str, int | None]]:
    """The hits of the best search for each task of two joins by its name, in lives of each size of equal seeds."""
    hits: dict[SizeName, dict[str, int | None]] = {size: {} for size in get_args(SizeName)}
    for size, found in hits.items():
        difficulty = replace(LEVELS[2], size=size)
        for seed in range(GROWTH_SEEDS):
            universe = make_lived_universe(seed, size, "held")
            for name, family in lived_families().items():
                try:
                    scenario = family.scenario(seed, difficulty, split="held")
                except UsageError:  # no life of this seed has such a question
                    continue
                question = scenario.info["question"]
                if (question["universe"], question["joins"]) == (size, LEVELS[2].steps):
                    needed = frozenset(question["needed"])
                    found[f"{name}/{seed}"] = best_search(request_of(scenario), universe, needed)
    return hits


def interval(counts: Sequence[int]) -> str:
    """The 95% interval of a median, by bootstrap."""
    rng = Random(0)
    middles = sorted(median(rng.choices(counts, k=len(counts))) for _ in range(DRAWS))
    return f"{middles[DRAWS // 40]:g} to {middles[-DRAWS // 40]:g}"
