"""Statistics held to their definitions: every draw enumerated, every formula written out the long way."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import exp, sqrt
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanderlust.errors import UsageError
from wanderlust.evals.comparison import compare_rewards
from wanderlust.evals.statistics import (
    LEAST_GRADED,
    LEAST_TASKS,
    Difference,
    Estimate,
    corrected,
    difference_over_seeds,
    estimate,
    holm,
    is_clearly_above,
    mean,
    paired_difference,
    pass_all_k,
    pass_at_k,
    percentile,
    share_estimate,
    sign_flip_p_value,
)
from wanderlust.policies.base import TokenPrices
from wanderlust.rubrics.moments import student_quantile, student_tail

ENOUGH = settings(max_examples=50)  # the machine may be busy
REWARDS = st.floats(-10, 10, allow_nan=False, width=32)
CLUSTERS = st.lists(st.lists(REWARDS, min_size=1, max_size=5), min_size=2, max_size=8)
RUNS = st.dictionaries(st.sampled_from("abcdefgh"), st.lists(REWARDS, min_size=1, max_size=4), min_size=1)


@ENOUGH
@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_and_pass_all_k_are_the_shares_of_all_draws(samples, data):
    k = data.draw(st.integers(1, len(samples)))
    draws = list(combinations(samples, k))
    correct = sum(samples)
    assert pass_at_k(len(samples), correct, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert pass_all_k(len(samples), correct, k) == pytest.approx(sum(map(all, draws)) / len(draws))


@pytest.mark.parametrize("bad", [(4, 2, 5), (4, 5, 1), (4, 2, 0)])
def test_too_few_samples_are_refused(bad):
    with pytest.raises(ValueError, match="cannot be estimated"):
        pass_all_k(*bad)


@ENOUGH
@given(st.lists(REWARDS, min_size=1), st.floats(0, 1))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(values, part):
    found = percentile(sorted(values), part)
    enough = [v for v in values if sum(other <= v for other in values) >= part * len(values) - 1e-9]
    assert found == min(enough)


def interval(clusters: list[list[float]], ends: tuple[float, float]) -> tuple[float, float]:
    """The clustered interval of the clusters and of two more of average size at the ends, the long way."""
    values = [value for cluster in clusters for value in cluster]
    size, number = len(values) / len(clusters), len(clusters) + 2
    count = len(values) + 2 * size
    center = (sum(values) + size * sum(ends)) / count
    between = sum((sum(cluster) - len(cluster) * center) ** 2 for cluster in clusters)
    between += sum((size * (end - center)) ** 2 for end in ends)
    half = student_quantile(number - 1) * sqrt(between * number / (number - 1)) / count
    return center - half, center + half


@ENOUGH
@given(st.lists(st.lists(REWARDS, min_size=1, max_size=5), min_size=LEAST_TASKS, max_size=12))
def test_the_mean_is_the_textbook_one_with_clustered_errors(clusters):
    values = [value for cluster in clusters for value in cluster]
    found = mean(clusters)
    assert found.value == pytest.approx(sum(values) / len(values), abs=1e-6)
    assert (found.count, found.clusters) == (len(values), len(clusters))
    if min(values) < -1 or max(values) > 1:
        averages = [sum(cluster) / len(cluster) for cluster in clusters]
        reach = 1.5 * (max(averages) - min(averages))
        low, high = interval(clusters, (found.value - reach, found.value + reach))
        if found.low is None:
            assert high - low == pytest.approx(0, abs=1e-6)
        else:
            assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


@ENOUGH
@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=4), min_size=LEAST_GRADED, max_size=9))
def test_rewards_between_0_and_1_have_an_interval_between_them(clusters):
    low, high = interval(clusters, (0.0, 1.0))
    found = mean(clusters)
    wanted = max(min(low, found.value), 0.0), min(max(high, found.value), 1.0)
    assert (found.low, found.high) == pytest.approx(wanted, abs=1e-9)
    assert found.high > found.low


def test_few_values_of_an_unknown_range_have_no_interval() -> None:
    values = [[float(number)] for number in range(LEAST_TASKS)]
    assert mean(values).low is not None
    assert mean(values[1:]).low is None
    assert mean([[3.0]] * LEAST_TASKS).low is None
    assert mean([[0.5]] * LEAST_GRADED).low is not None
    assert mean([[0.5]] * (LEAST_GRADED - 1)).low is None


@ENOUGH
@given(CLUSTERS, st.randoms(use_true_random=False))
def test_no_order_changes_a_digit(clusters, rng):
    other = [rng.sample(cluster, len(cluster)) for cluster in rng.sample(clusters, len(clusters))]
    assert mean(clusters) == mean(other)


@ENOUGH
@given(st.lists(st.lists(st.floats(2, 10), min_size=1, max_size=5), min_size=LEAST_TASKS), st.floats(0, 5, width=16))
def test_shifting_every_reward_shifts_the_interval(clusters, by):
    one, other = mean(clusters), mean([[value + by for value in cluster] for cluster in clusters])
    if None not in (one.low, other.low):  # rounding may hide a spread that is as small
        assert (one.low + by, one.high + by) == pytest.approx((other.low, other.high), abs=1e-3)


@ENOUGH
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=4), min_size=1, max_size=9))
def test_shares_stay_between_nothing_and_all(clusters):
    found = share_estimate(clusters)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high > found.low


@ENOUGH
@given(RUNS, RUNS)
def test_comparing_backwards_turns_the_sign_and_swaps_what_flipped(one, other):
    if not one.keys() & other.keys():
        with pytest.raises(UsageError, match="in common"):
            compare_rewards(one, other)
        return
    there, back = compare_rewards(one, other, pass_threshold=0.0), compare_rewards(other, one, pass_threshold=0.0)
    assert there.difference.value == pytest.approx(-back.difference.value, abs=1e-9)
    assert (there.gained, there.lost, there.missing) == (back.lost, back.gained, back.missing)
    assert there.difference == paired_difference(other, one)
    averages = [sum(other[t]) / len(other[t]) - sum(one[t]) / len(one[t]) for t in one.keys() & other.keys()]
    assert there.difference.value == pytest.approx(sum(averages) / len(averages), abs=1e-6)


def test_a_comparison_reads_as_a_table_and_a_verdict():
    before = {f"t{n}": [0.0] for n in range(12)}
    after = {f"t{n}": [float(n > 1)] for n in range(12)} | {"other": [1.0]}
    comparison = compare_rewards(before, after)
    text, page = str(comparison), comparison._repr_html_()
    assert "difference" in text
    assert "0.833" in text
    assert "The difference is clear (p = " in text
    assert "Only the second passes: 10 tasks; only the first: 0." in text
    assert text.endswith("Scored in one run only, and in no figure: 1.")
    assert page.startswith("<")
    assert "0.833" in page


def test_prices_are_per_million_tokens():
    assert TokenPrices(input=3.0, output=15.0).cost(2_000_000, 100_000) == pytest.approx(7.5)


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([], 1.0),
        ([0.0, 0.0], 1.0),
        ([1.0], 1.0),
        ([-1.0] * 5, 2 / 2**5),
        ([1.0] * 6 + [0.0] * 30, 2 / 2**6),
        ([1.0, 1.0, 1.0, -1.0], 10 / 2**4),  # sums of at least 2 in size: 2 x (1 + 4)
        ([0.5, -0.5], 1.0),
    ],
)
def test_chance_counts_the_signs_that_would_differ_as_much(differences: list[float], expected: float) -> None:
    assert sign_flip_p_value(differences) == pytest.approx(expected)


def test_chance_of_many_differences_meets_that_of_few() -> None:
    exact, beyond = sign_flip_p_value([1.0] * 9 + [-1.0] * 3), sign_flip_p_value([1.0] * 10 + [-1.0] * 3)
    assert exact == pytest.approx(598 / 2**12)
    assert beyond == pytest.approx(0.052, abs=0.001)


def test_few_tasks_are_never_clear() -> None:
    few, more = ({f"t{n}": [1.0] for n in range(count)} for count in (5, 8))
    assert not compare_rewards(few, {task: [0.0] for task in few}).clear
    assert compare_rewards(more, {task: [0.0] for task in more}).clear


@ENOUGH
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), min_size=1, max_size=30), st.data())
def test_intervals_of_pass_at_k_are_shares(counts: list[tuple[int, int]], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, min(n for n, _ in counts)))
    values = [[pass_at_k(n, min(c, n), k)] for n, c in counts]
    found = estimate(values)
    if found.low is not None and found.high is not None:
        assert 0 <= found.low <= found.value <= found.high <= 1


@pytest.mark.parametrize(
    ("freedom", "tail", "quantile"),  # of published tables
    [(1, 0.025, 12.7062), (2, 0.025, 4.30265), (4, 0.0005, 8.6103), (10, 0.01, 2.76377), (30, 0.025, 2.04227)],
)
def test_students_quantiles_are_those_of_the_tables(freedom: float, tail: float, quantile: float) -> None:
    assert student_quantile(freedom, tail) == pytest.approx(quantile, rel=1e-5)
    assert student_tail(quantile, freedom) == pytest.approx(tail, rel=1e-4)


def test_tasks_that_agree_give_no_certainty() -> None:
    """Few right answers on both sides, all equal, or all turned round: the interval has a width, or there is none."""
    right, wrong = ({f"t{n}": [value] for n in range(5)} for value in (1.0, 0.0))
    for ours, theirs in ((right, right), (wrong, wrong), (right, wrong), (wrong, right)):
        found = paired_difference(ours, theirs)
        assert found.high - found.low > 0.4
        assert -1 <= found.low <= found.value <= found.high <= 1
    assert mean([[0.5]] * 5).high - mean([[0.5]] * 5).low > 0.4
    assert estimate([[0.0, 1.0], [1.0, 0.0]]).high > 0.9


def right(chance: float, samples: int, rng: Random) -> list[float]:
    return [float(rng.random() < chance) for _ in range(samples)]


SHAPES = {
    "right or wrong": lambda rng, samples: right(rng.betavariate(2, 2), samples, rng),
    "seldom right": lambda rng, samples: right(rng.betavariate(0.5, 9.5), samples, rng),
    "graded, most near 0": lambda rng, samples: [rng.betavariate(0.4, 1.6) for _ in range(samples)],
    "without a bound": lambda rng, samples: [rng.lognormvariate(0, 1) for _ in range(samples)],
}


@pytest.mark.parametrize(
    ("shape", "tasks", "samples", "truth"),
    [
        ("right or wrong", 3, 8, 0.5),
        ("right or wrong", 5, 8, 0.5),
        ("seldom right", 3, 1, 0.05),
        ("seldom right", 10, 8, 0.05),
        ("graded, most near 0", 5, 1, 0.2),
        ("graded, most near 0", 10, 1, 0.2),
        ("without a bound", LEAST_TASKS, 1, exp(0.5)),
    ],
)
def test_intervals_of_few_tasks_cover_the_mean(shape: str, tasks: int, samples: int, truth: float) -> None:
    rng, covered = Random(f"{shape}/{tasks}/{samples}"), 0
    for _ in range(400):
        found = estimate([SHAPES[shape](rng, samples) for _ in range(tasks)])
        covered += found.low <= truth <= found.high
    assert covered >= 0.92 * 400


@pytest.mark.parametrize("samples", [1, 8])
@pytest.mark.parametrize("tasks", [5, 10, 20, 40])
def test_paired_intervals_cover_the_difference_of_few_tasks(tasks: int, samples: int) -> None:
    """Nearly all tasks are right or wrong on both sides, and one in ten is won: the usual before and after."""
    rng, covered = Random(f"cover/{tasks}/{samples}"), 0
    for _ in range(400):
        luck = {f"t{n}": rng.random() for n in range(tasks)}
        theirs, ours = (
            {task: right(0.98 if u < share else 0.03, samples, rng) for task, u in luck.items()} for share in (0.6, 0.7)
        )
        found = paired_difference(ours, theirs)
        covered += found.low <= 0.095 <= found.high
        assert found.low < found.high
    assert covered >= 0.92 * 400


def test_holms_correction_is_the_textbook_one() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.2]) == [0.2]
    assert max(holm([0.6, 0.7])) == 1.0


def noisy_difference(rng: Random) -> Difference:
    """Of two sides that do not differ, on 20 tasks and three seeds."""
    ours, theirs = ([{f"t{n}": rng.random() for n in range(20)} for _ in range(3)] for _ in range(2))
    return difference_over_seeds(ours, theirs, [f"t{n}" for n in range(20)])


def test_of_many_comparisons_without_a_difference_hardly_one_is_clear() -> None:
    rng = Random(1)
    draws = [{f"v{n}": noisy_difference(rng) for n in range(10)} for _ in range(150)]
    assert sum(any(one.clear for one in corrected(draw).values()) for draw in draws) <= 15  # 5% are 7.5
    assert sum(any(one.clear for one in draw.values()) for draw in draws) > 15  # which the correction is for


def test_the_p_value_over_seeds_is_that_of_its_interval() -> None:
    rng = Random(2)
    for _ in range(50):
        one = noisy_difference(rng)
        assert one.low is not None
        assert one.high is not None
        assert (one.p_value < 0.05) == (not one.low <= 0 <= one.high)


def test_a_single_observation_is_not_certain() -> None:
    one = difference_over_seeds([{"t": 1.0}], [{"t": 0.0}], ["t"])
    assert (one.value, one.low, one.clear) == (1.0, None, False)


def test_one_interval_lies_clearly_above_another() -> None:
    def estimated(value: float, half: float) -> Estimate:
        return Estimate(value=value, low=value - half, high=value + half, count=9, clusters=9)

    assert is_clearly_above(estimated(0.5, 0.1), estimated(0.2, 0.1))
    assert not is_clearly_above(estimated(0.5, 0.3), estimated(0.2, 0.1))
    assert not is_clearly_above(replace(estimated(0.5, 0.1), low=None), estimated(0.2, 0.1))
