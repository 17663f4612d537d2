"""Success within a budget: the share of an evaluation's rollouts that passed, against what each spent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wanderlust.evals.statistics import Estimate, share_estimate
from wanderlust.policies.base import TokenPrices
from wanderlust.store.records import count_tokens, sum_usage
from wanderlust.types import Rollout, Status

MEASURES = ("tokens", "simulated_seconds", "dollars")
"""The measures of a budget: tokens read and written, seconds of the world's clock, and dollars, where each is known."""
CURVE_POINTS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOutcome:
    """One scored rollout: whether it passed, and what it spent."""

    task: str
    passed: bool
    spent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The share of rollouts that passed within a budget."""

    budget: float
    success: Estimate


def budget_outcomes(
    rollouts: Iterable[Rollout], measure: str, *, pass_threshold: float = 1.0, prices: TokenPrices | None = None
) -> tuple[list[BudgetOutcome], int]:
    """The outcomes of the first seat that learns, and the number of scored rollouts whose spending is unknown.

    Rollouts that failed or have no score are in neither. The amount is that of all seats.
    """
    results, unknown = list[BudgetOutcome](), 0
    for one in rollouts:
        scored = one.main_trajectory
        score = None if scored is None else scored.score
        if one.status is Status.ERROR or score is None:
            continue
        spent = _spent(one, measure, prices)
        if spent is None:
            unknown += 1
        else:
            results.append(BudgetOutcome(task=one.task.id, passed=score.reward >= pass_threshold, spent=spent))
    return results, unknown


def _spent(rollout: Rollout, measure: str, prices: TokenPrices | None) -> float | None:
    if measure == "simulated_seconds":
        scores = [seat.score for seat in rollout.trajectories if seat.score is not None]
        return next((score.metrics[measure] for score in scores if measure in score.metrics), None)
    turns = [turn for seat in rollout.trajectories for turn in seat.turns]
    if not any(turn.usage or turn.tokens is not None for turn in turns):
        return None
    prompt, completion = count_tokens(turns)
    if measure == "tokens":
        return float(prompt + completion)
    return None if prices is None else prices.cost(prompt, completion, sum_usage(turns, "cached_tokens"))


def budget_grid(outcomes: Sequence[BudgetOutcome], points: int = CURVE_POINTS) -> list[float]:
    """Budgets for the points of the curve: spread over the amounts that passing rollouts spent, where alone it rises.

    Without a rollout that passed: the largest amount spent. Empty without outcomes.
    """
    steps = sorted({one.spent for one in outcomes if one.passed})
    if not steps:
        return [max(one.spent for one in outcomes)] if outcomes else []
    if len(steps) <= points:
        return steps
    return [steps[round(n * (len(steps) - 1) / (points - 1))] for n in range(points)]


def success_curve(outcomes: Sequence[BudgetOutcome], budgets: Iterable[float]) -> list[CurvePoint]:
    """For each budget the share of all outcomes that passed and spent at most so much, with Wilson's interval.

    A rollout that passed but spent more counts as not passed, as if it had been stopped there. ValueError without
    outcomes.
    """
    points = []
    for budget in budgets:
        tasks: dict[str, list[float]] = {}
        for one in outcomes:
            tasks.setdefault(one.task, []).append(float(one.passed and one.spent <= budget))
        points.append(CurvePoint(budget=budget, success=share_estimate(list(tasks.values()))))
    return points
