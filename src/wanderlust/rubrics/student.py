"""Student's t distribution, for intervals (`evals.statistics`) and for the monitors: errors that few figures show.

In the rubrics, as both need it and imports go downwards.
"""

from __future__ import annotations

from functools import cache
from math import exp, lgamma, log, log1p
from statistics import NormalDist

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
