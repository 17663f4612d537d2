"""Calibration of a judge on items whose truth is known, and the gain from choosing rollouts by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import fsum, sqrt

from wanderlust.errors import UsageError
from wanderlust.evals.statistics import Z95, Estimate, fisher, mean, share_estimate, wilson
from wanderlust.rubrics.moments import correlation

ALWAYS_YES = 0.9
"""Share of the wrong answers from which on a judge that accepts them says yes to nearly everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemVerdicts:
    """A judge's verdicts on one item."""

    label: bool
    """The truth."""
    scores: tuple[float, ...]
    """From 0 to 1, one per verdict."""
    length: int
    """Characters of the judged text."""

    @property
    def score(self) -> float:
        """The mean of the verdicts."""
        return fsum(self.scores) / len(self.scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A judge's errors, each with its 95% interval; None where the items cannot tell."""

    items: int
    positives: int
    accuracy: Estimate
    true_positives: Estimate | None
    """Share of the right ones that it accepts."""
    false_positives: Estimate | None
    """Share of the wrong ones that it accepts: what a policy can learn to find."""
    kappa: Estimate | None
    """Agreement with the truth beyond chance (Cohen 1960), its interval that of the agreement, by Wilson."""
    agreement: Estimate | None
    """Share of pairs of verdicts on one item that are the same, its interval clustered by item."""
    length: Estimate | None
    """Correlation of the score's error with the length of the judged text: above 0, the judge prefers length."""
    order_flips: Estimate | None
    """Share of pairs that it orders differently when they change places."""

    @property
    def informative(self) -> float | None:
        """True less false positives (Youden's J): at 0 or below, training on it makes a policy worse."""
        if self.true_positives is None or self.false_positives is None:
            return None
        return self.true_positives.value - self.false_positives.value

    @property
    def always_yes(self) -> bool:
        """Whether it accepts nearly all wrong answers, however well it does on right ones."""
        return self.false_positives is not None and self.false_positives.value >= ALWAYS_YES


def calibrate(items: Sequence[ItemVerdicts], *, pass_threshold: float = 0.5, swaps: Sequence[bool] = ()) -> Calibration:
    """The judge's errors; `swaps` has for each pair whether its order changed when the two changed places.

    The mean of the verdicts on an item counts, as it does for a judge of several votes, and is accepted from
    `pass_threshold` on; so is each verdict where it is compared with others. Raises UsageError without items.
    """
    if not items:
        raise UsageError("there is nothing to calibrate with: no item has a verdict")
    predictions = [one.score >= pass_threshold for one in items]
    right = [accepted for accepted, one in zip(predictions, items, strict=True) if one.label]
    wrong = [accepted for accepted, one in zip(predictions, items, strict=True) if not one.label]
    pairs = [
        [float((a >= pass_threshold) == (b >= pass_threshold)) for a, b in combinations(one.scores, 2)] for one in items
    ]
    return Calibration(
        items=len(items),
        positives=len(right),
        accuracy=_share([accepted == one.label for accepted, one in zip(predictions, items, strict=True)]),
        true_positives=_share(right) if right else None,
        false_positives=_share(wrong) if wrong else None,
        kappa=_kappa(predictions, [one.label for one in items]),
        agreement=share_estimate(pairs) if any(pairs) else None,
        length=_correlation([(one.score - one.label, float(one.length)) for one in items]),
        order_flips=_share(swaps) if swaps else None,
    )


def _share(observations: Sequence[bool]) -> Estimate:
    return share_estimate([[float(one)] for one in observations])


def _kappa(predictions: Sequence[bool], truth: Sequence[bool]) -> Estimate | None:
    count = len(predictions)
    agree = sum(a == b for a, b in zip(predictions, truth, strict=True)) / count
    yes, true = sum(predictions) / count, sum(truth) / count
    chance = yes * true + (1 - yes) * (1 - true)
    if chance >= 1:
        return None
    value, *ends = ((share - chance) / (1 - chance) for share in (agree, *wilson(agree, count)))
    return Estimate(value=value, low=max(ends[0], -1.0), high=min(ends[1], 1.0), count=count, clusters=count)


def _correlation(pairs: Sequence[tuple[float, float]]) -> Estimate | None:
    """Pearson's, with Fisher's interval; None for fewer than four pairs or where one of the two does not vary."""
    count, value = len(pairs), correlation(pairs)
    if count < 4 or value is None:
        return None
    return fisher(value, Z95 / sqrt(count - 3), count=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeGap:
    """The gain from choosing one rollout of a group by a judge: the generator-verifier gap of an environment."""

    groups: int
    chosen: Estimate
    """Truth of the rollout that the judge scores highest; the mean over those with equal scores."""
    ideal: Estimate
    """Truth of the best rollout: the choice of a perfect judge."""
    mean: Estimate
    """Truth of a rollout drawn at random."""
    gained: Estimate
    """The first less the third, paired by group."""
    possible: Estimate
    """The second less the third, paired by group."""

    @property
    def share(self) -> float | None:
        """The judge's share of the possible gain; None where none is possible."""
        return self.gained.value / self.possible.value if self.possible.value > 0 else None


def best_of(groups: Sequence[Sequence[tuple[float, float]]]) -> JudgeGap:
    """The gap over groups of (judge's score, truth). UsageError without groups."""
    full = [group for group in groups if group]
    if not full:
        raise UsageError("there are no groups to choose from")
    chosen = []
    for group in full:
        top = max(score for score, _ in group)
        tied = [truth for score, truth in group if score == top]
        chosen.append(fsum(tied) / len(tied))
    ideal = [max(truth for _, truth in group) for group in full]
    average = [fsum(truth for _, truth in group) / len(group) for group in full]
    return JudgeGap(
        groups=len(full),
        chosen=mean([[one] for one in chosen]),
        ideal=mean([[one] for one in ideal]),
        mean=mean([[one] for one in average]),
        gained=mean([[a - b] for a, b in zip(chosen, average, strict=True)]),
        possible=mean([[a - b] for a, b in zip(ideal, average, strict=True)]),
    )
