"""Estimates with error bars, and the comparison of two evaluations on the same tasks. All intervals are 95%."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from math import atanh, ceil, comb, fsum, sqrt, tanh
from statistics import NormalDist, fmean, variance

from wanderlust.errors import UsageError
from wanderlust.rubrics.moments import student_quantile, student_tail

Z95 = NormalDist().inv_cdf(0.975)
MAX_CHANCE = 0.05
"""Probability of a difference by chance alone below which it is clear."""
MAX_EXACT_DIFFERENCES = 12
"""Differences whose signs are all flipped; 2^12 sums take a few milliseconds."""
LEAST_GRADED, LEAST_TASKS = 5, 8
"""Tasks below which a mean has no interval, as none that is short is honest: of values within -1 and 1 that are not all
0 or 1; of values whose range nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value and how sure of it the data makes us."""

    value: float
    low: float | None
    high: float | None
    """Ends of the 95% interval; None when the data cannot tell (a single observation)."""
    count: int
    """Observations."""
    clusters: int
    """Tasks that the observations come from."""

    @property
    def interval(self) -> str:
        """The interval as text."""
        return "unknown" if self.low is None or self.high is None else f"{self.low:.3f} to {self.high:.3f}"

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.3f}"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Estimate):
    """A difference of two sides."""

    p_value: float
    """Probability of one at least this large where there is none; of one comparison alone."""

    @property
    def clear(self) -> bool:
        """Whether the interval leaves 0 out and chance is below 5%."""
        apart = self.low is not None and self.high is not None and not self.low <= 0 <= self.high
        return apart and self.p_value < MAX_CHANCE


def corrected(differences: Mapping[str, Difference]) -> dict[str, Difference]:
    """Several differences by name, their p-values corrected for their number (`holm`)."""
    chances = holm([one.p_value for one in differences.values()])
    return {name: replace(one, p_value=p) for (name, one), p in zip(differences.items(), chances, strict=True)}


def mean(clusters: Iterable[Sequence[float]]) -> Estimate:
    """The mean over all observations, its interval clustered by task; ValueError without observations.

    Cluster-robust standard error with the factor C / (C - 1) for few clusters, Liang & Zeger (1986), as in Miller,
    "Adding Error Bars to Evals" (2024), arXiv:2411.00640, eq. 4, and Student's quantile. Few tasks do not show how far
    others lie, so the interval is that of the tasks and of two more, one at each end of the range: 0 and 1 where all
    values are between them, -1 and 1 likewise, as Agresti & Coull (1998) do for shares; else 1.5 times the range of the
    tasks' means above and below the mean, and no interval where all are equal. There is none below LEAST_GRADED tasks
    of the first kind, and below LEAST_TASKS of the second. With a single task the interval speaks of that task only.
    """
    observed = _observe(clusters)
    groups, number, value = observed.groups, len(observed.groups), observed.value
    lowest, highest = min(map(min, groups)), max(map(max, groups))
    known = lowest >= -1 and highest <= 1
    if known:
        ends = (0.0 if lowest >= 0 else -1.0, 1.0)
    else:
        averages = [fmean(group) for group in groups]
        reach = 1.5 * (max(averages) - min(averages))
        ends = (value - reach, value + reach)
    if number < (LEAST_GRADED if known else LEAST_TASKS) or ends[1] - ends[0] <= 1e-12 * abs(value):
        return Estimate(value=value, low=None, high=None, count=observed.count, clusters=observed.clusters)
    size, more = observed.count / number, number + 2
    count = observed.count + 2 * size
    center = (value * observed.count + size * sum(ends)) / count
    deviations = [*(fsum(one - center for one in group) for group in groups), *(size * (end - center) for end in ends)]
    half = student_quantile(more - 1) * sqrt(fsum(one * one for one in deviations) * more / (more - 1)) / count
    low, high = min(center - half, value), max(center + half, value)
    if known:
        low, high = max(low, ends[0]), min(high, ends[1])
    return Estimate(value=value, low=low, high=high, count=observed.count, clusters=observed.clusters)


def share_estimate(clusters: Iterable[Sequence[float]]) -> Estimate:
    """The share of ones among zeros and ones, by Wilson's interval; ValueError without observations.

    Observations of one task are not independent, so the interval takes the number that independent ones would
    be worth: count / design effect (Kish, "Survey Sampling", 1965), at least the number of tasks; where all
    observations are equal the effect cannot be estimated and the number of tasks stands in. As the effect is estimated
    from few tasks, the quantile is Student's: Korn & Graubard (1998). With a single task the interval speaks of that
    task only.
    """
    observed = _observe(clusters)
    number, independent = len(observed.groups), observed.count * observed.value * (1 - observed.value)
    most, factor = observed.count / number, number / max(number - 1, 1)
    effect = max(1.0, min(most, observed.spread * factor / independent)) if independent else most
    low, high = wilson(observed.value, observed.count / effect, quantile=student_quantile(max(number - 1, 1)))
    return Estimate(value=observed.value, low=low, high=high, count=observed.count, clusters=observed.clusters)


def wilson(value: float, count: float, *, quantile: float = Z95) -> tuple[float, float]:
    """The score interval of a share `value` seen in `count` independent trials: Wilson (1927).

    Unlike the normal interval it stays inside [0, 1] and is honest at 0 and 1.
    """
    square = quantile * quantile / count
    center = (value + square / 2) / (1 + square)
    half = quantile * sqrt(value * (1 - value) / count + square / (4 * count)) / (1 + square)
    return (0.0 if value == 0 else center - half), (1.0 if value == 1 else center + half)


def estimate(clusters: Iterable[Sequence[float]]) -> Estimate:
    """`share_estimate` when every observation is 0 or 1, else `mean`."""
    groups = list(clusters)
    return (share_estimate if all(value in (0, 1) for group in groups for value in group) else mean)(groups)


def paired_differences(ours: Mapping[str, Sequence[float]], theirs: Mapping[str, Sequence[float]]) -> list[float]:
    """Of the tasks that both have, the mean of `ours` minus that of `theirs`, by task id.

    ValueError without a common task.
    """
    common = sorted(task for task in ours.keys() & theirs.keys() if ours[task] and theirs[task])
    if not common:
        raise ValueError("the two runs have no scored task in common")
    return [fmean(ours[task]) - fmean(theirs[task]) for task in common]


def paired_difference(ours: Mapping[str, Sequence[float]], theirs: Mapping[str, Sequence[float]]) -> Difference:
    """The difference of `ours` and `theirs` on the tasks that both have, paired by task id.

    The mean over tasks of the difference of the task's means. Pairing removes the difficulty of tasks, which both
    share: Miller (2024), arXiv:2411.00640, section 4.2. ValueError without a common task.

    The interval is Student's over the differences and one more, half of it at plus and half at minus the largest
    distance of two tasks' means; where all are equal, of two rewards, 0 included. So it has a width where few tasks
    differ: Bonett & Price (2012), "Adjusted Wald confidence interval for a difference of binomial proportions based on
    paired data". It holds the value, and ends at the largest distance of two rewards. One task has no interval.
    See `sign_flip_p_value`.
    """
    differences = paired_differences(ours, theirs)
    value, number, chance = fmean(differences), len(differences), sign_flip_p_value(differences)
    if number < 2:
        return Difference(value=value, low=None, high=None, count=number, clusters=number, p_value=chance)
    both = [(ours[task], theirs[task]) for task in ours.keys() & theirs.keys() if ours[task] and theirs[task]]
    rewards = [*chain.from_iterable(both)]
    seen, averages = [0.0, *chain.from_iterable(rewards)], [fmean(one) for one in rewards]
    reach = (max(seen) - min(seen)) or 1.0
    further = (max(averages) - min(averages)) or reach
    center = fsum(differences) / (number + 1)
    squares = fsum((one - center) ** 2 for one in differences) + further**2 + center**2
    half = student_quantile(number) * sqrt(squares / number / (number + 1))
    low, high = min(max(center - half, -reach), value), max(min(center + half, reach), value)
    return Difference(value=value, low=low, high=high, count=number, clusters=number, p_value=chance)


def mean_rise(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Mean of `after` less mean of `before`, two independent samples; no interval where one has fewer than two values.

    Welch's interval: "The generalization of Student's problem", Biometrika 34 (1947).
    """
    value, count = fmean(after) - fmean(before), len(before) + len(after)
    errors = [_mean_variance(values) for values in (before, after)]
    if min(len(before), len(after)) < 2 or not sum(errors):
        return Estimate(value=value, low=None, high=None, count=count, clusters=count)
    freedom = sum(errors) ** 2 / (errors[0] ** 2 / (len(before) - 1) + errors[1] ** 2 / (len(after) - 1))
    half = student_quantile(freedom) * sqrt(sum(errors))
    return Estimate(value=value, low=value - half, high=value + half, count=count, clusters=count)


def is_clearly_above(one: Estimate, other: Estimate) -> bool:
    """Whether the 95% interval of the first less the second, which are independent, lies above 0.

    The interval is made of the two (MOVER): Zou & Donner (2008), doi:10.1002/sim.3095.
    """
    if one.low is None or other.high is None:
        return False
    return one.value - other.value > sqrt((one.value - one.low) ** 2 + (other.high - other.value) ** 2)


def sign_flip_p_value(differences: Sequence[float]) -> float:
    """Probability that pairs with random signs differ at least as much in the mean (two-sided).

    Fisher's randomisation test ("The Design of Experiments", 1935): exact for up to MAX_EXACT_DIFFERENCES differences
    that are not 0, of more the normal distribution with the same variance. Few tasks give no small probability.
    """
    moved = [value for value in differences if value]
    if not moved:
        return 1.0
    total, spread = abs(fsum(moved)), sqrt(fsum(value * value for value in moved))
    if len(moved) > MAX_EXACT_DIFFERENCES:
        return 2 * NormalDist().cdf(-total / spread)
    sums = [fsum(signed) for signed in product(*((value, -value) for value in moved))]
    return sum(abs(value) >= total - 1e-12 * spread for value in sums) / len(sums)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several comparisons, corrected for their number: Holm (1979), in the order given.

    Where nothing differs anywhere, one of them or more is below 0.05 with a probability of at most 5%.
    """
    corrected, least = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = least
    return corrected


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The chance that one of k draws is right, unbiased from `samples` draws: Chen et al. (2021), arXiv:2107.03374.

    ValueError when there are fewer samples than k.
    """
    if not 1 <= k <= samples or not 0 <= correct <= samples:
        raise ValueError(f"pass@{k} cannot be estimated from {correct} right of {samples} samples")
    return 1.0 - comb(samples - correct, k) / comb(samples, k)


def pass_all_k(samples: int, correct: int, k: int) -> float:
    """pass^k, the chance that all of k draws are right, unbiased: Yao et al. (2024), arXiv:2406.12045.

    ValueError when there are fewer samples than k.
    """
    if not 1 <= k <= samples or not 0 <= correct <= samples:
        raise ValueError(f"pass^{k} cannot be estimated from {correct} right of {samples} samples")
    return comb(correct, k) / comb(samples, k)


def fisher(value: float, half: float, *, count: int) -> Estimate:
    """A correlation with Fisher's interval (1921); `half` of it is on the scale of the inverse hyperbolic tangent."""
    middle = atanh(max(min(value, 1 - 1e-9), -1 + 1e-9))
    return Estimate(value=value, low=tanh(middle - half), high=tanh(middle + half), count=count, clusters=count)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed; `ordered` rises. ValueError without any."""
    if not ordered or not 0 <= share <= 1:
        raise ValueError(f"there is no percentile {share} of {len(ordered)} values")
    return ordered[max(ceil(share * len(ordered)) - 1, 0)]


@dataclass(frozen=True, slots=True)
class _Observed:
    groups: list[Sequence[float]]
    """Independent of each other."""
    value: float
    count: int
    clusters: int

    @property
    def spread(self) -> float:
        """Sum of the squared summed deviations of each group."""
        return fsum(fsum(value - self.value for value in group) ** 2 for group in self.groups)


def _observe(clusters: Iterable[Sequence[float]]) -> _Observed:
    groups = [group for group in clusters if group]
    if not groups:
        raise ValueError("no observations to estimate from")
    count, number = sum(map(len, groups)), len(groups)
    # fsum: exact, so the order in which rollouts happened to finish changes no digit
    value = fsum(value for group in groups for value in group) / count
    return _Observed(groups if number > 1 else [[value] for value in groups[0]], value, count, number)


def _mean_variance(values: Sequence[float]) -> float:
    """Squared standard error of the mean; 0 for one value."""
    average = fmean(values)
    return fsum((value - average) ** 2 for value in values) / max(len(values) - 1, 1) / len(values)


def difference_over_seeds(
    ours: Sequence[Mapping[str, float]], theirs: Sequence[Mapping[str, float]], tasks: Sequence[str]
) -> Difference:
    """The mean difference of two sides, each a row of task: score per seed, with a 95% interval over tasks and seeds.

    The variances of both add up; their degrees of freedom are those of Welch and Satterthwaite. One task of one seed
    has no interval. Raises UsageError where the two have none of `tasks` in common.
    """
    by_seed = [
        [one[task] - other[task] for task in tasks if task in one and task in other]
        for one, other in zip(ours, theirs, strict=True)
    ]
    both = [one for one in by_seed if one]
    if not both:
        raise UsageError("the two sides have no task in common")
    value = fmean(map(fmean, both))
    by_task = [fmean(column) for column in zip(*both, strict=True)] if len({*map(len, both)}) == 1 else both[0]
    parts = [(variance(one) / len(one), len(one) - 1) for one in (by_task, [*map(fmean, both)]) if len(one) > 1]
    total = sum(part for part, _ in parts)
    count, clusters = sum(map(len, both)), len(by_task)
    if total == 0:
        chance = sign_flip_p_value(by_task)  # all agree: they do not show how far others may lie
        return Difference(value=value, low=None, high=None, count=count, clusters=clusters, p_value=chance)
    freedom, error = total**2 / sum(part**2 / free for part, free in parts), total**0.5
    half, chance = student_quantile(freedom) * error, min(1.0, 2 * student_tail(abs(value) / error, freedom))
    return Difference(value=value, low=value - half, high=value + half, count=count, clusters=clusters, p_value=chance)
