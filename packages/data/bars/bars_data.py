"""Copies and held-out questions planted among questions of reasoning-gym.

The planting that counts is of other sets and seeds than those that the method was made on. Each figure is that of the
worst of three seeds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.bar import Bar

from data_planting import UNSEEN, Planting, plant
from wanderlust_data import find_contaminated, find_duplicates
from wanderlust_data.tokens import words_of

SEEDS = (300, 301, 302)
KINDS = {
    "exact": "duplicates",
    "near": "near-duplicates",
    "reworded": "rewordings",
    "contaminated, exact": "contaminated, copied",
    "contaminated, near": "contaminated, nearly copied",
    "contaminated, reworded": "contaminated, reworded",
    "contaminated, within": "contaminated, within a longer text",
}
FIELD_GRAM = 8


@dataclass(slots=True)
class Found:
    """What was planted and found, by kind, and what was claimed wrongly."""

    planted: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    claimed: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)

    def recall(self, kind: str) -> float:
        return self.found[kind] / self.planted[kind]

    @property
    def contaminated(self) -> tuple[int, int]:
        """Found and planted."""
        kinds = [kind for kind in self.planted if kind.startswith("contaminated")]
        return sum(self.found[kind] for kind in kinds), sum(self.planted[kind] for kind in kinds)

    def precision(self, what: str) -> float:
        return 1 - self.wrong[what] / max(1, self.claimed[what])


def examine(planting: Planting) -> Found:
    """Recall by kind; precision of both searches."""
    out = Found(planted=Counter(planting.kinds))
    matches = find_contaminated(
        planting.texts, planting.held_out, answers=planting.answers, held_out_answers=planting.held_out_answers
    )
    for match in matches:
        kind = planting.kinds[match.row]
        out.claimed["contaminated"] += 1
        out.wrong["contaminated"] += not kind.startswith("contaminated")
        out.found[kind] += kind.startswith("contaminated")
    clean = [n for n, kind in enumerate(planting.kinds) if not kind.startswith("contaminated")]
    clusters = defaultdict(list)
    for match in find_duplicates([planting.texts[n] for n in clean], [planting.answers[n] for n in clean]):
        clusters[match.of].append(match.row)
    for first, rows in clusters.items():
        kinds = [planting.kinds[clean[row]] for row in (first, *rows)]
        out.claimed["duplicates"] += len(rows)
        out.wrong["duplicates"] += max(0, kinds.count("own") - 1)
        out.found.update(kind for kind in kinds if kind != "own")
    return out


def field_overlap(planting: Planting) -> tuple[float, float]:
    """Recall and precision of an overlap of 8 words with any held-out question, as it is usually done."""

    def grams(text: str) -> set[tuple[str, ...]]:
        words = words_of(text)
        return {tuple(words[n : n + FIELD_GRAM]) for n in range(len(words) - FIELD_GRAM + 1)}

    held_out = set[tuple[str, ...]]().union(*map(grams, planting.held_out))
    flagged = [bool(grams(text) & held_out) for text in planting.texts]
    planted = [kind.startswith("contaminated") for kind in planting.kinds]
    both = sum(a and b for a, b in zip(flagged, planted, strict=True))
    return both / sum(planted), both / max(1, sum(flagged))


def bars() -> Iterator[Bar]:
    """Recall and precision on the unseen planting."""
    plantings = [plant(UNSEEN, seed) for seed in SEEDS]
    found = [examine(planting) for planting in plantings]
    for kind, name in KINDS.items():
        worst = min(found, key=lambda one: one.recall(kind))
        note = f"{worst.found[kind]} of {worst.planted[kind]}; worst of {len(SEEDS)} seeds"
        yield Bar(name=f"{name}: recall", figure=worst.recall(kind), bar=0.95, aim=0.98, better="higher", note=note)
    worst = min(found, key=lambda one: one.contaminated[0] / one.contaminated[1])
    share, note = worst.contaminated[0] / worst.contaminated[1], "{} of {}".format(*worst.contaminated)
    yield Bar(name="contaminated, all four: recall", figure=share, bar=0.95, aim=0.98, better="higher", note=note)
    for what in ("duplicates", "contaminated"):
        worst = min(found, key=lambda one: one.precision(what))
        note = f"{worst.wrong[what]} of {worst.claimed[what]} wrong"
        if what == "contaminated":
            usual = [field_overlap(planting) for planting in plantings]
            recall, precision = (min(one[n] for one in usual) for n in (0, 1))
            note += f"; overlap of {FIELD_GRAM} words: recall {recall:.2f}, precision {precision:.2f}"
        yield Bar(
            name=f"{what}: precision", figure=worst.precision(what), bar=0.9, aim=0.98, better="higher", note=note
        )
