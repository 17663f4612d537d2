"""Words for the slots of a text: given facts, and draws that stay the same within one text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from random import Random

from wanderlust_life.lived.wide_names import (
    NameWalk,
    dictionary_words,
    game_words,
    office_words,
    professions,
    wide_names,
)
from wanderlust_life.universes.text_templates import book_titles, expand_pattern, word_list

SLOT_LISTS: Mapping[str, str] = {
    "animal": "animals",
    "plant": "plants",
    "tool": "tools",
    "material": "materials",
    "ailment": "ailments",
    "instrument": "instruments",
    "sweet": "sweets",
    "drink": "drinks",
    "vehicle": "vehicles",
    "furniture": "furniture",
    "feeling": "feelings",
    "game": "games",
    "subject": "subjects",
    "part": "parts",
    "reason": "reasons",
    "weather": "weathers",
    "festival": "festivals",
    "kin": "kin",
    "topic": "topics",
    "hobby": "hobbies",
    "food": "foods",
    "trade": "jobs",
    "colour": "colours",
    "what": "products",
    "thing": "things",
}
"""The word list of each slot; a number after the slot's name makes another draw of the same kind."""
_SENTENCE_START = re.compile(r"((?:^|// )(?:a|b|me): |^(?!(?:a|b|me): )|[.!?]\s+|\n)([a-z])")


@cache
def _words_of(kind: str) -> Sequence[str]:
    if kind in ("verb", "quality", "goods"):
        return office_words()[kind]
    if kind in ("noun", "action", "trait", "manner"):
        return dictionary_words()[kind]
    own: Mapping[str, Callable[[], Sequence[str]]] = {
        "work": book_titles,
        "profession": professions,
        "laid": game_words,
    }
    return own[kind]() if kind in own else word_list(SLOT_LISTS[kind])


class WordSource:
    """All words that the texts of one life draw from."""

    def __init__(self, rng: Random):
        self.rng = rng
        names = wide_names()
        self._firsts, self._lasts, self._towns = (NameWalk(names[kind], rng) for kind in ("first", "last", "town"))

    def draw(self, kind: str) -> str:
        """A word of a kind. Raises KeyError where there is no such kind."""
        if kind == "stranger":
            return f"{next(self._firsts)} {next(self._lasts)}"
        if kind == "faraway":
            return next(self._towns)
        return self.rng.choice(_words_of(kind))

    def text(self, rule: str, facts: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
        """A text of a rule, and the word of each of its slots."""
        slots = TextSlots(self, facts)
        made = expand_pattern(self.rng, f"<{rule}>", slots)
        return _SENTENCE_START.sub(lambda match: match[1] + match[2].upper(), made), slots.words


class TextSlots(Mapping[str, str]):
    """The words of one text's slots: those that are given, and what is drawn for the others when first asked for."""

    def __init__(self, source: WordSource, facts: Mapping[str, str]):
        self.words, self._source = dict(facts), source

    def __getitem__(self, slot: str) -> str:
        if slot not in self.words:
            kind, drawn = slot.rstrip("0123456789"), ""
            while not drawn or drawn in self.words.values():
                drawn = self._source.draw(kind)
            self.words[slot] = drawn
        return self.words[slot]

    def __contains__(self, slot: object) -> bool:
        return slot is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __len__(self) -> int:
        return len(self.words)
