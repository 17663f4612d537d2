"""Means over the rollouts of a step with their errors, of one figure and of two together; changes between steps;
Student's t distribution, for errors that few figures show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import exp, fsum, lgamma, log, log1p, sqrt
from statistics import NormalDist

CHANCE = 1e-5
"""Probability that one check finds a change where nothing changed."""
TOP_SHARE = 0.25
"""Share of a step's rollouts that count as paid best."""


@dataclass(frozen=True, slots=True)
class Moments:
    """A mean over rollouts and its standard error, clustered by group; both 0 without any."""

    mean: float = 0.0
    error: float = 0.0
    count: int = 0
    clusters: int = 0

    @property
    def groups(self) -> int:
        """Independent groups; as many as rollouts where that is not known."""
        return self.clusters or self.count

    @classmethod
    def of(cls, clusters: Sequence[Sequence[float]]) -> Moments:
        """Of values by group."""
        full = [cluster for cluster in clusters if cluster]
        count = sum(map(len, full))
        if not count:
            return cls()
        mean = fsum(value for cluster in full for value in cluster) / count
        if len(full) < 2:
            return cls(mean, 0.0, count, len(full))
        spread = fsum(fsum(value - mean for value in cluster) ** 2 for cluster in full)
        return cls(mean, sqrt(spread * len(full) / (len(full) - 1)) / count, count, len(full))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A difference of two means."""

    size: float
    error: float
    freedom: float
    """Degrees of freedom of the error, as Satterthwaite (1946) combines those of its parts."""

    def is_clear(self, checks: int = 1, *, chance: float = CHANCE) -> bool:
        """Whether chance makes one as large, either way, with a smaller probability than `chance` in so many checks."""
        if not self.error:
            return self.size != 0
        return 2 * student_tail(abs(self.size) / self.error, max(self.freedom, 1.0)) < chance / checks


def mean_of(values: Sequence[Moments]) -> float:
    """Of the steps that have any rollouts; 0 without."""
    known = [value.mean for value in values if value.count]
    return fsum(known) / max(len(known), 1)


def change_of(reference: Sequence[Moments], newest: Sequence[Moments]) -> Change:
    """Mean of the newest steps less that of the reference.

    The error has two parts. One is that of the groups of rollouts, whose variance is pooled over all of these steps, as
    it is the same where nothing changes. The other is what the reference's steps vary by beyond it, from their
    successive differences, which a drift hardly widens (von Neumann, 1941): what is more than two standard errors above
    it. It applies to the newest steps too.
    """
    known, new = ([value for value in values if value.count] for values in (reference, newest))
    if not known or not new:
        return Change(size=0.0, error=0.0, freedom=1.0)
    groups = max(sum(max(v.groups - 1, 0) for v in (*known, *new)), 1)
    variance = fsum(v.error**2 * v.groups * max(v.groups - 1, 0) for v in (*known, *new)) / groups
    within = variance * sum(1 / max(sum(v.groups for v in steps), 1) for steps in (known, new))
    jumps = fsum((b.mean - a.mean) ** 2 for a, b in pairwise(known)) / 2 / max(len(known) - 1, 1)
    steps = 2 / 3 * max(len(known) - 1, 1)
    usual = variance * fsum(1 / max(v.groups, 1) for v in known) / len(known) * (1 + 2 * sqrt(2 / steps))
    beyond = max(jumps - usual, 0.0) * (1 / len(known) + 1 / len(new))
    parts = within**2 / groups + beyond**2 / steps
    return Change(
        size=mean_of(new) - mean_of(known),
        error=sqrt(within + beyond),
        freedom=(within + beyond) ** 2 / parts if parts else groups,
    )


@dataclass(frozen=True, slots=True)
class PairMoments:
    """Two figures of the same rollouts: x, what is paid, and y, a held-out metric."""

    x: Moments
    y: Moments
    variance_x: float
    """Over rollouts, as are the next two."""
    variance_y: float
    covariance: float
    error_covariance: float
    """Covariance of the two means, clustered by group."""
    top: Moments = Moments()
    """The held-out metric of the quarter of the rollouts that is paid best, ties included."""
    slope: Moments = Moments()
    """What the held-out metric differs by where the paid figure differs by 1; empty where that never varies."""

    @classmethod
    def of(cls, clusters: Sequence[Sequence[tuple[float, float]]]) -> PairMoments:
        """Of pairs by group."""
        full = [cluster for cluster in clusters if cluster]
        x, y = (Moments.of([[pair[i] for pair in cluster] for cluster in full]) for i in (0, 1))
        if not x.count:
            return cls(x, y, 0.0, 0.0, 0.0, 0.0)
        paid = sorted((a for cluster in full for a, _ in cluster), reverse=True)
        least = paid[int(TOP_SHARE * (x.count - 1))]
        if least == paid[-1]:  # fewer than a quarter are paid anything: those are the best
            least = min((one for one in paid if one > paid[-1]), default=least)
        away = [[(a - x.mean, b - y.mean) for a, b in cluster] for cluster in full]
        flat = [pair for cluster in away for pair in cluster]
        sums = [(fsum(a for a, _ in cluster), fsum(b for _, b in cluster)) for cluster in away]
        shared = fsum(a * b for a, b in sums) * len(full) / max(len(full) - 1, 1) / x.count**2
        return cls(
            x,
            y,
            fsum(a * a for a, _ in flat) / x.count,
            fsum(b * b for _, b in flat) / x.count,
            fsum(a * b for a, b in flat) / x.count,
            shared if len(full) > 1 else 0.0,
            top=Moments.of([[b for a, b in cluster if a >= least] for cluster in full]),
            slope=_slope(away),
        )

    @property
    def correlation(self) -> float | None:
        """Pearson's; None where one of the two does not vary."""
        own = self.variance_x * self.variance_y
        return self.covariance / sqrt(own) if own > 1e-24 and self.x.count > 2 else None


def _slope(away: Sequence[Sequence[tuple[float, float]]]) -> Moments:
    """Of the regression of y on x, both less their means; its error is the larger one of two.

    One is robust and clustered by group, which is too small where x hardly varies; the other takes the residuals to
    vary alike for every x.
    """
    own = fsum(a * a for cluster in away for a, _ in cluster)
    if own <= 1e-12 or len(away) < 2:
        return Moments()
    slope = fsum(a * b for cluster in away for a, b in cluster) / own
    influences = [fsum(a * (b - slope * a) for a, b in cluster) / own for cluster in away]
    robust = sqrt(fsum(one * one for one in influences) * len(away) / (len(away) - 1))
    count = sum(map(len, away))
    residuals = fsum((b - slope * a) ** 2 for cluster in away for a, b in cluster) / max(count - 2, 1)
    return Moments(slope, max(robust, sqrt(residuals / own)), count, len(away))


def correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Pearson's; None where one of the two does not vary."""
    if len(pairs) < 3:
        return None
    count = len(pairs)
    x, y = (fsum(pair[i] for pair in pairs) / count for i in (0, 1))
    across = fsum((a - x) * (b - y) for a, b in pairs)
    own = fsum((a - x) ** 2 for a, _ in pairs) * fsum((b - y) ** 2 for _, b in pairs)
    return across / sqrt(own) if own > 1e-24 else None


MAX_FREEDOM = 1e6
"""Degrees of freedom from which on Student's t is the normal distribution."""
MAX_TERMS = 10_000
"""Of a continued fraction, which ends long before."""


@cache
def student_quantile(freedom: float, tail: float = 0.025) -> float:
    """The value that Student's t exceeds with probability `tail`; `freedom` is at least 1.

    By bisection of the distribution function, to 1e-9 of the quantile; the normal quantile from 1e6 degrees on.
    """
    if freedom >= MAX_FREEDOM:
        return -NormalDist().inv_cdf(tail)
    low, high = 0.0, 1.0
    while student_tail(high, freedom) > tail:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, freedom) > tail else (low, middle)
    return high


def student_tail(value: float, freedom: float) -> float:
    """Probability that Student's t exceeds `value`, which is at least 0.

    Half of the incomplete beta function I_x(freedom / 2, 1/2) at x = freedom / (freedom + value^2), by its continued
    fraction (Abramowitz & Stegun, 26.5.8 and 26.7.1).
    """
    x = freedom / (freedom + value * value)
    a, b = freedom / 2, 0.5
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side
        return 0.5 - 0.5 * _beta_fraction(1 - x, b, a)
    return 0.5 * _beta_fraction(x, a, b)


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, for x below its mean."""
    if not 0 < x < 1:
        return float(x >= 1)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    upper, lower, fraction = 1.0, 1 / (1 - (a + b) * x / (a + 1)), 1 / (1 - (a + b) * x / (a + 1))
    for m in range(1, MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            upper, lower = 1 + term / upper, 1 / (1 + term * lower)
            fraction *= upper * lower
        if abs(upper * lower - 1) < 1e-13:
            break
    return front * fraction
