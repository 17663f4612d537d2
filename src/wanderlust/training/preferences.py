"""Preferences of any form as pairs that a reward model is fitted to; what its scores say about held-out pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, fsum, isfinite
from typing import Any, TypeAlias

from wanderlust.errors import UsageError, quoted
from wanderlust.evals.statistics import Estimate, estimate
from wanderlust.policies.local.reward_model import ScoreScale
from wanderlust.store.formats import MIN_REWARD_RANGE
from wanderlust.tasks.datasets import Row
from wanderlust.training.conversations import Conversation, DataRow, Examples, parse_row
from wanderlust.types import Message

TIES, CONTRADICTIONS, ALONE = "ties", "contradictions", "alone"
"""Reasons for which rows give no preference."""
RATING_COLUMNS = ("rating", "reward")
"""A person's or a program's rating of an answer; a run's rollouts have a reward."""
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.01, 100.0
CONFIDENCE_BINS = 10
"""Bins of equal width from 0.5 to 1 in which a calibration error is measured."""
ONE_SIDED_SHARE = 0.9
"""Share of pairs won by the longer, or by the shorter, answer from which on a note says so."""
Texts: TypeAlias = tuple[Message, ...]


def preference_pairs(rows: Iterable[tuple[str, Row]], left_out: dict[str, int]) -> list[DataRow]:
    """The pairs of some rows, each with what names it in an error; what gives none is added to `left_out` by reason.

    A row is a pair (`chosen`, `rejected`), or an answer with a `rating` (or `reward`). Rated answers to one prompt are
    sorted, equal ones once by their mean rating, and the best is paired with the worst, the second best with the second
    worst, and so on: each is in one pair at most. Ties are left out, and so are opposite preferences, one against one.
    Raises UsageError, which names file and line, for a row that is neither.
    """
    counts: Counter[str] = Counter()
    pairs: list[DataRow] = []
    rated: dict[tuple[str, str, str], dict[Texts, list[tuple[float, Conversation]]]] = {}
    for where, row in rows:
        column = next((name for name in RATING_COLUMNS if row.get(name) is not None), None)
        if "chosen" in row or "rejected" in row or column is None:
            if "chosen" in row and row["chosen"] == row.get("rejected"):
                counts[TIES] += 1
            else:
                pairs.append(parse_row(where, row, "dpo"))
            continue
        parsed = parse_row(where, row, "sft")
        (one,) = parsed.conversations
        first = next(n for n, message in enumerate(one.messages) if message.role == "assistant")
        group = rated.setdefault((parsed.key, str(row.get("seat", "")), str(one.messages[:first])), {})
        group.setdefault(one.messages, []).append((_rating(row[column], column, where), one))
    for (key, _, _), answers in rated.items():
        pairs += _paired(key, [*answers.values()], counts)
    kept = _without_contradictions(pairs, counts)
    for name, count in counts.items():
        left_out[name] = left_out.get(name, 0) + count
    return kept


def _rating(value: Any, column: str, where: str) -> float:
    try:
        rating = float(value)
    except (TypeError, ValueError, OverflowError):
        rating = float("nan")
    if not isfinite(rating):
        raise UsageError(f"{where}: {column} is {quoted(str(value), 40)}, and must be a number")
    return rating


def _paired(key: str, answers: Sequence[list[tuple[float, Conversation]]], counts: Counter[str]) -> list[DataRow]:
    """Pairs of the answers to one prompt, the most different ones first."""
    means = [(fsum(rating for rating, _ in same) / len(same), same[0][1]) for same in answers]
    ranked = sorted(means, key=lambda one: -one[0])
    if len(ranked) < 2:
        counts[ALONE] += 1
    out = []
    for (better, chosen), (worse, rejected) in zip(ranked[: len(ranked) // 2], reversed(ranked), strict=False):
        if better - worse > MIN_REWARD_RANGE:
            out.append(DataRow(conversations=(chosen, rejected), key=key))
        else:
            counts[TIES] += 1
    return out


def _without_contradictions(pairs: Sequence[DataRow], counts: Counter[str]) -> list[DataRow]:
    """The pairs, less as many of each as there are of its opposite."""
    directions = [(pair.conversations[0].messages, pair.conversations[1].messages) for pair in pairs]
    votes = Counter(directions)
    spare = {way: min(number, votes[way[::-1]]) for way, number in votes.items() if way[::-1] in votes}
    out = []
    for pair, way in zip(pairs, directions, strict=True):
        if spare.get(way, 0):
            spare[way] -= 1
            counts[CONTRADICTIONS] += 1
        else:
            out.append(pair)
    return out


def preference_notes(examples: Examples) -> list[str]:
    """What to tell about the preferences, a line each."""
    left_out = examples.not_preferred
    lines = [
        line.format(left_out[name])
        for name, line in (
            (TIES, "{} ties are left out: none of two equal answers, or equal ratings, is preferred"),
            (CONTRADICTIONS, "{} preferences contradict one another and are left out"),
            (ALONE, "{} rated answers are alone with their prompt and are left out"),
        )
        if left_out.get(name)
    ]
    share = longer_chosen(examples)
    if not 1 - ONE_SIDED_SHARE < share < ONE_SIDED_SHARE:
        what = "longer" if share > 0.5 else "shorter"
        lines.append(f"the {what} answer is preferred in {max(share, 1 - share):.0%} of the pairs: length may be all")
    return lines


def why_no_preferences(rows: int, left_out: dict[str, int]) -> str:
    """Why no row gives a preference; empty where no row was left out."""
    told = [f"{count} {name}" for name, count in left_out.items()]
    return f": none of {rows} rows gives a preference ({', '.join(told)})" if told else ""


def longer_chosen(examples: Examples) -> float:
    """Share of the pairs whose longer conversation is preferred, in tokens; 1/2 for equal ones."""
    pairs = [[len(sample.ids) for sample in one.samples] for one in (*examples.train, *examples.held_out)]
    return fsum(0.5 if a == b else float(a > b) for a, b in pairs) / max(len(pairs), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCalibration:
    """What the scores of a reward model say about held-out pairs."""

    scale: ScoreScale
    accuracy: Estimate | None
    """Share of the pairs whose better answer has the higher score; None without pairs."""
    error: float | None
    """Expected calibration error: how far the share of pairs that go as predicted is from the probability that is
    stated, on pairs that the temperature was not fitted to. None for fewer than two tasks."""
    error_before: float | None
    """The same at temperature 1."""
    pairs: int

    def as_dict(self) -> dict[str, Any]:
        """JSON data."""
        accuracy = self.accuracy
        return {
            "accuracy": None if accuracy is None else accuracy.value,
            "accuracy_low": None if accuracy is None else accuracy.low,
            "accuracy_high": None if accuracy is None else accuracy.high,
            "temperature": self.scale.temperature,
            "centre": self.scale.centre,
            "calibration_error": self.error,
            "calibration_error_before": self.error_before,
            "held_out_pairs": self.pairs,
        }


def calibrate(scores: Sequence[Sequence[float]], keys: Sequence[str]) -> PairCalibration:
    """Fit the temperature to the scores of held-out pairs, the better answer's first; `keys` are their tasks.

    The calibration error is measured by halves: each half of the tasks at the temperature of the other one.
    """
    if not scores:
        return PairCalibration(scale=ScoreScale(), accuracy=None, error=None, error_before=None, pairs=0)
    margins = [better - worse for better, worse in scores]
    by_task: dict[str, list[float]] = {}
    for key, margin in zip(keys, margins, strict=True):
        by_task.setdefault(key, []).append(margin)
    error = before = None
    if len(by_task) > 1:
        halves = [[m for own in [*by_task.values()][half::2] for m in own] for half in (0, 1)]
        other = [fit_temperature(half) for half in reversed(halves)]
        error = calibration_error([m / t for half, t in zip(halves, other, strict=True) for m in half])
        before = calibration_error(margins)
    won = [[0.5 if m == 0 else float(m > 0) for m in own] for own in by_task.values()]
    centre = fsum(value for pair in scores for value in pair) / (2 * len(scores))
    return PairCalibration(
        scale=ScoreScale(temperature=fit_temperature(margins), centre=centre),
        accuracy=estimate(won),
        error=error,
        error_before=before,
        pairs=len(scores),
    )


def fit_temperature(margins: Sequence[float]) -> float:
    """The temperature that makes the pairs likeliest, from MIN_TEMPERATURE to MAX_TEMPERATURE (arXiv 1706.04599).

    One more pair on each side, at the mean distance, keeps pairs that are all right from being stated as certain.
    """
    usual = fsum(map(abs, margins)) / max(len(margins), 1)
    margins, low, high = [*margins, usual, -usual], 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE
    for _ in range(60):
        middle = (low + high) / 2
        if fsum(margin * _sigmoid(-middle * margin) for margin in margins) > 0:
            low = middle
        else:
            high = middle
    return 2 / (low + high)


def calibration_error(log_odds: Sequence[float]) -> float:
    """Expected calibration error of pairs: the surer way is predicted, with a probability from 0.5 to 1."""
    bins: list[list[tuple[float, float]]] = [[] for _ in range(CONFIDENCE_BINS)]
    for odds in log_odds:
        sure = _sigmoid(abs(odds))
        bins[min(int((sure - 0.5) * 2 * CONFIDENCE_BINS), CONFIDENCE_BINS - 1)].append((sure, float(odds > 0)))
    gaps = (abs(fsum(sure - right for sure, right in one)) for one in bins)
    return fsum(gaps) / max(len(log_odds), 1)


def _sigmoid(x: float) -> float:
    return 1 / (1 + exp(-max(min(x, 500.0), -500.0)))
