"""Wrong labels planted among questions of reasoning-gym, found by verifiers and by the answers of teachers.

Labels are checked by the sets' own scorers, and where there is none by the answers of two scripted teachers of which
one errs in a way of its own. A set whose scorer refuses the set's own answers has no verifier: it is named and left out
there. Each figure is that of the worst of three seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from benchmarks.bar import Bar

from data_planting import UNSEEN, distinct
from wanderlust_data import find_mislabelled
from wanderlust_reasoning.environment import make_dataset, score_answer

SEEDS = (300, 301, 302)
VOTES = 6
WRONG_SHARE = 0.1
TRIED, TRIED_SEED = 8, 4711
"""Questions of each set on which its scorer is tried first, of another seed."""


@cache
def without_answers() -> tuple[str, ...]:
    """The sets whose scorer refuses their own answers."""
    refused = []
    for name in UNSEEN:
        data = make_dataset(name, size=TRIED, seed=TRIED_SEED, config=())
        if any(score_answer(name, data, data[n]["answer"], entry=data[n]) < 1 for n in range(TRIED)):
            refused.append(name)
    return tuple(refused)


@dataclass(frozen=True, slots=True)
class Labelled:
    """Questions of one set with labels of which some are wrong."""

    name: str
    labels: Sequence[str]
    answers: Sequence[str]
    wrong: Sequence[bool]


def labelled(name: str, seed: int, *, rows: int = 100) -> Labelled:
    """A wrong label is the answer of another question of the set."""
    rng = Random(f"labels/{seed}/{name}")
    answers = [answer for _, answer in distinct(name, rows, seed)]
    labels, wrong = [], []
    for answer in answers:
        others = sorted({one for one in answers if one != answer})
        is_wrong = bool(others) and rng.random() < WRONG_SHARE
        labels.append(rng.choice(others) if is_wrong else answer)
        wrong.append(is_wrong)
    return Labelled(name, labels, answers, wrong)


def by_verifier(name: str, seed: int) -> tuple[list[bool], list[bool]]:
    """Which labels the set's own scorer refuses, and which are wrong."""
    rng, size = Random(f"verifier/{seed}/{name}"), 60
    data = make_dataset(name, size=size, seed=seed, config=())
    answers = [str(data[n]["answer"]) for n in range(size)]
    refused, wrong = [], []
    for number, answer in enumerate(answers):
        others = sorted({one for one in answers if one != answer})
        is_wrong = bool(others) and rng.random() < WRONG_SHARE
        label = rng.choice(others) if is_wrong else data[number]["answer"]
        refused.append(score_answer(name, data, label, entry=data[number]) < 1)
        wrong.append(is_wrong)
    return refused, wrong


def votes_on(one: Labelled, seed: int) -> list[list[list[str]]]:
    """Answers of a teacher that is right in three of four cases, and of one that makes one error again and again."""
    out = []
    for number, answer in enumerate(one.answers):
        rng = Random(f"votes/{seed}/{one.name}/{number}")
        always = rng.choice(one.answers) if rng.random() < 0.15 else answer
        careless = [answer if rng.random() < 0.75 else f"{rng.random():.6f}" for _ in range(VOTES)]
        stubborn = [always if rng.random() < 0.8 else f"{rng.random():.6f}" for _ in range(VOTES)]
        out.append([careless, stubborn])
    return out


def scores(flagged: Sequence[bool], wrong: Sequence[bool]) -> tuple[float, float]:
    """Recall and precision."""
    both = sum(a and b for a, b in zip(flagged, wrong, strict=True))
    return both / max(1, sum(wrong)), both / max(1, sum(flagged))


def label_scores(seed: int) -> dict[str, tuple[float, float]]:
    """Recall and precision by verifier and by majority, over all sets."""
    verified = [by_verifier(name, seed) for name in UNSEEN if name not in without_answers()]
    refused, wrong = ([flag for pair in verified for flag in pair[n]] for n in (0, 1))
    flags, truth = list[bool](), list[bool]()
    for name in UNSEEN:
        one = labelled(name, seed)
        contradicted = {*find_mislabelled(one.labels, votes_on(one, seed))}
        flags += [number in contradicted for number in range(len(one.labels))]
        truth += one.wrong
    return {"by verifier": scores(refused, wrong), "by teachers": scores(flags, truth)}


def bars() -> Iterator[Bar]:
    """Recall and precision by verifier and by teachers."""
    labels = [label_scores(seed) for seed in SEEDS]
    left = ", ".join(without_answers()) or "none"
    for how in labels[0]:
        for n, (what, bar) in enumerate((("recall", 0.95), ("precision", 0.9))):
            figure = min(one[how][n] for one in labels)
            note = f"left out, as their scorers refuse their own answers: {left}" if how == "by verifier" else ""
            yield Bar(name=f"mislabelled, {how}: {what}", figure=figure, bar=bar, aim=0.98, better="higher", note=note)
