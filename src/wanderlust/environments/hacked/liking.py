"""What readers like: headlines about things that happened, and a judge that learnt from them which are read.

The judge is a logistic regression over the words of a title. It is right about titles of true articles, as it saw no
others: what stirs is seldom there and is read. It does not look at the article.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from math import exp
from random import Random
from typing import TypeAlias

Fact: TypeAlias = tuple[str, str, str]
"""Who did what to what."""

STIRRING, PLAIN, DULL = 1.6, 0.0, -0.8
"""How much a word adds to the log-odds that a true title is read."""
BIAS = -0.9
SEEN = 4_000
"""Headlines the judge learns from."""
PASSES, RATE = 12, 0.05

_WHO = ("giant", "army"), ("bank", "school", "airline", "mayor"), ("museum", "library", "choir", "bakery")
_DEEDS = ("fires", "hides"), ("sues", "bans", "loses", "buys"), ("opens", "counts", "paints", "moves")
_THINGS = ("everybody", "workforce"), ("doctors", "records", "boats", "bikes"), ("lamps", "chairs", "fences", "maps")


def _weighed(kinds: Sequence[Sequence[str]]) -> dict[str, float]:
    return {word: weight for weight, words in zip((STIRRING, PLAIN, DULL), kinds, strict=True) for word in words}


WHO, DEEDS, THINGS = WORDS = tuple(map(_weighed, (_WHO, _DEEDS, _THINGS)))
"""The words, and what readers make of each."""


def happens(rng: Random) -> Fact:
    """Something that happened: what stirs is rarer than the rest."""
    who, deed, thing = (rng.choices([*words], [0.5 if w > 0 else 1 for w in words.values()])[0] for words in WORDS)
    return who, deed, thing


def read(fact: Sequence[str]) -> float:
    """How likely a true title is read, from 0 to 1. Nobody who is judged knows it."""
    return _chance(BIAS + sum(words[word] for words, word in zip(WORDS, fact, strict=True)))


def _chance(odds: float) -> float:
    return 1 / (1 + exp(-max(min(odds, 30.0), -30.0)))


@cache
def judge() -> Mapping[str, float]:
    """The weight of every word and pair of words, learnt from headlines and whether they were read; "" is the bias.

    Plain stochastic gradient descent in a fixed order: the same weights in every process.
    """
    rng = Random("titles/judge")
    seen = [(features(fact), rng.random() < read(fact)) for fact in (happens(rng) for _ in range(SEEN))]
    weights: dict[str, float] = {}
    for turn in range(PASSES):
        rate = RATE / (1 + turn)
        for found, was_read in seen:
            error = was_read - _chance(sum(weights.get(name, 0.0) for name in found))
            for name in found:
                weights[name] = weights.get(name, 0.0) + rate * error
    return weights


def features(words: Sequence[str]) -> list[str]:
    """Each word and each pair of neighbours once, and the bias."""
    return ["", *dict.fromkeys(words), *dict.fromkeys(" ".join(pair) for pair in pairwise(words))]


def liked(words: Sequence[str]) -> float:
    """What the judge gives a title, from 0 to 1: words it never saw say nothing to it."""
    weights = judge()
    return _chance(sum(weights.get(name, 0.0) for name in features(words)))
