"""How the bar chooses the budget whose saving it measures."""

import pytest

from bars_budget import CURVE, Kept, smallest


@pytest.mark.parametrize(
    ("accuracy", "budget"),
    [
        ((0.6, 0.7, 0.74, 0.752, 0.755, 0.755, 0.76), 52),
        ((0.755,) * 6 + (0.76,), CURVE[0]),
        ((0.76, 0.1, 0.76, 0.76, 0.76, 0.76, 0.76), 44),
        ((0.1,) * 6 + (0.9,), CURVE[-1]),
    ],
)
def test_the_smallest_budget_costs_at_most_a_point_as_do_all_above_it(accuracy, budget):
    assert smallest([Kept(right={"q": one}, tokens=1.0) for one in accuracy]) == budget
