"""How much texts are alike, and how much they repeat themselves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from random import Random

PAIRS = 200
"""At most so many pairs are compared."""
LONGEST = 4_000
"""Words of a text that are looked at."""

_WORD = re.compile(r"\w+|[^\w\s]")
_LAST = re.compile(r"<(answer|guess|move|title|group|action|final)>(.*?)</\1>|\\boxed\{([^{}]*)\}", re.DOTALL)


def words(text: str) -> list[str]:
    """Lower-case words and signs."""
    return _WORD.findall(text.lower())[:LONGEST]


def normalised(text: str) -> str:
    """The answer in a text, or all of it, without case, white space or signs: equal for what says the same."""
    found = _LAST.findall(text)
    said = (found[-1][1] or found[-1][2]) if found else text
    return " ".join(re.findall(r"\w+", said.lower()))[:1_000]


def grams(text: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """All runs of n words."""
    return [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]


def repeated(text: str, n: int = 4) -> float:
    """Share of its runs of n words that stood in it before: 0 for prose, near 1 for a loop."""
    runs = grams(words(text), n)
    return 1 - len(set(runs)) / len(runs) if runs else 0.0


def distinct(texts: Sequence[str], n: int = 2) -> float:
    """Different runs of n words over all runs, in all texts together (distinct-n, arXiv 1510.03055); 1 without any."""
    runs = [run for text in texts for run in grams(words(text), n)]
    return len(set(runs)) / len(runs) if runs else 1.0


def most_frequent(texts_by_task: Sequence[Sequence[str]]) -> tuple[str, float]:
    """The answer that most tasks have in common, and the mean share that it has of each task's answers.

    0 for fewer than two tasks: one task's siblings may well agree.
    """
    if len(texts_by_task) < 2:
        return "", 0.0
    shares: Counter[str] = Counter()
    for texts in texts_by_task:
        for answer, count in Counter(map(normalised, texts)).items():
            shares[answer] += count / len(texts)  # type: ignore[assignment]
    answer, total = max(shares.items(), key=lambda item: (item[1], item[0]))
    return answer, total / len(texts_by_task)


def overlap(texts_by_task: Sequence[Sequence[str]], n: int = 3, *, seed: int = 0) -> float:
    """Mean Jaccard overlap of runs of n words between answers to *different* tasks, over at most PAIRS pairs."""
    known = [[set(grams(words(text), n)) for text in texts] for texts in texts_by_task if texts]
    if len(known) < 2:
        return 0.0
    rng, total = Random(f"overlap/{seed}"), 0.0
    for _ in range(PAIRS):
        one, other = (rng.choice(texts) for texts in rng.sample(known, 2))
        union = len(one | other)
        total += len(one & other) / union if union else 0.0
    return total / PAIRS
