"""Success within a budget: which share of rollouts had passed having spent at most so much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wanderlust.core.types import Rollout, Status
from wanderlust.evals.report import Prices
from wanderlust.evals.statistics import Estimate, share
from wanderlust.rollout.records import count_tokens

MEASURES = ("tokens", "simulated_seconds", "dollars")
"""What is counted: tokens read and written, seconds of the world's clock, and money, where each is known."""
POINTS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One scored rollout: whether it passed, and what it spent."""

    task: str
    passed: bool
    spent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The share of rollouts that passed within a budget."""

    budget: float
    success: Estimate


def outcomes(
    rollouts: Iterable[Rollout], measure: str, *, passing: float = 1.0, prices: Prices | None = None
) -> tuple[list[Outcome], int]:
    """The first seat's outcomes, and how many scored rollouts do not say what they spent.

    Rollouts that failed or have no score are in neither. Spent is what all seats took.
    """
    found, unknown = list[Outcome](), 0
    for one in rollouts:
        seats = sorted(one.trajectories, key=lambda seat: seat.seat)
        score = seats[0].score if seats else None
        if one.status is Status.ERROR or score is None:
            continue
        spent = _spent(one, measure, prices)
        if spent is None:
            unknown += 1
        else:
            found.append(Outcome(task=one.task.id, passed=score.reward >= passing, spent=spent))
    return found, unknown


def _spent(played: Rollout, measure: str, prices: Prices | None) -> float | None:
    if measure == "simulated_seconds":
        scores = [seat.score for seat in played.trajectories if seat.score is not None]
        return next((score.metrics[measure] for score in scores if measure in score.metrics), None)
    turns = [turn for seat in played.trajectories for turn in seat.turns]
    if not any(turn.usage or turn.tokens is not None for turn in turns):
        return None
    read, written = count_tokens(turns)
    if measure == "tokens":
        return float(read + written)
    return None if prices is None else prices.of(read, written)


def grid(found: Sequence[Outcome], points: int = POINTS) -> list[float]:
    """Budgets at which the curve is told: spread over what passing rollouts spent, where alone it rises.

    Without one that passed: the most that anybody spent. Empty without outcomes.
    """
    steps = sorted({one.spent for one in found if one.passed})
    if not steps:
        return [max(one.spent for one in found)] if found else []
    if len(steps) <= points:
        return steps
    return [steps[round(n * (len(steps) - 1) / (points - 1))] for n in range(points)]


def curve(found: Sequence[Outcome], budgets: Iterable[float]) -> list[Point]:
    """For each budget the share of all outcomes that passed and spent at most so much, with Wilson's interval.

    What passed but spent more counts as not passed, as if it had been stopped there. ValueError without outcomes.
    """
    return [Point(budget=budget, success=share(_clusters(found, budget))) for budget in budgets]


def _clusters(found: Iterable[Outcome], budget: float) -> list[list[float]]:
    tasks: dict[str, list[float]] = {}
    for one in found:
        tasks.setdefault(one.task, []).append(float(one.passed and one.spent <= budget))
    return list(tasks.values())
