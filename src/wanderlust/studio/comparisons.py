"""Two runs compared over HTTP: their paired difference, a row for every task, and the samples of one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.errors import UsageError
from wanderlust.evals.comparison import compare_rewards, require_one_version
from wanderlust.evals.statistics import Estimate
from wanderlust.store.run import load_run
from wanderlust.store.run_folder import EVALUATION_STAGE
from wanderlust.studio.requests import json_response, query_text, studio_state
from wanderlust.studio.results import TRAINING_STAGES
from wanderlust.studio.run_index import NotFound, RunIndex

MAX_COMPARED_ROLLOUTS = 200_000
"""Most rollouts of a run that are compared."""
MAX_TASK_SAMPLES = 1000
"""Most samples of a task in one answer."""


ScoredSample: TypeAlias = tuple[int, float]
"""Id and reward of a rollout."""
SamplesByTask: TypeAlias = Mapping[str, Sequence[ScoredSample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRollouts:
    """The rollouts of a run that are compared: those of an evaluation, or of a training run's last step."""

    where: str
    """Condition of SQL."""
    values: tuple[Any, ...] = ()
    about: str = ""
    """What they are, where that is not an evaluation."""


def get_comparison(request: Request) -> Response:
    """The paired difference, and a row for every task that both scored."""
    catalogue, a, b = studio_state(request).index, query_text(request, "a"), query_text(request, "b")
    chosen = {key: compared_rollouts(catalogue, key) for key in (a, b)}
    first, second = (_scored_samples(catalogue, key, chosen[key]) for key in (a, b))
    if not first or not second:
        raise UsageError(f"{a if not first else b}: nothing was scored there")
    seats = {key: _seat_compared(catalogue, key, chosen[key]) for key in (a, b)}
    if len({*seats.values()} - {""}) > 1:
        raise UsageError(
            f"{a} has the rewards of the seat {seats[a]}, {b} those of {seats[b]}: name one with "
            "`wander compare --seat`"
        )
    about = {
        f"{side}_about": "; ".join(
            filter(None, [chosen[key].about, seats[key] and f"rewards of the seat {seats[key]}"])
        )
        for side, key in (("a", a), ("b", b))
    }
    return json_response({"a": a, "b": b, **about, **comparison_record(first, second)})


def get_task_samples(request: Request) -> Response:
    """Every sample of one task in both runs, those without a score too."""
    catalogue, task = studio_state(request).index, query_text(request, "task")
    names = ("id", "sample_index", "reward", "status", "stop_reason")
    sides = {}
    for side in ("a", "b"):
        key = query_text(request, side)
        chosen = compared_rollouts(catalogue, key)
        sql = (
            f"select id, sibling, reward, status, stop from rollouts where {chosen.where} and task = ?"
            " order by step, grp, sibling limit ?"
        )
        with catalogue.reader(key) as store:
            rows = store.select(sql, *chosen.values, task, MAX_TASK_SAMPLES)
        sides[side] = [dict(zip(names, row, strict=True)) for row in rows]
    if not any(sides.values()):
        raise NotFound("neither run has this task")
    return json_response({"task": task, **sides})


def compared_rollouts(catalogue: RunIndex, key: str) -> ComparedRollouts:
    """The rollouts of a run that count. Raises UsageError where several versions of its code made them."""
    location = catalogue.location(key)
    info = catalogue.info(location)
    if info.kind == "training" and info.stage in TRAINING_STAGES:
        with catalogue.reader(key) as store:
            ((step,),) = store.select("select max(step) from rollouts where stage = ?", info.stage)
        about = f"step {step} of {info.stage}, as played while training; `wander compare` takes the sampled evaluation"
        return ComparedRollouts(where="stage = ? and step = ?", values=(info.stage, step), about=about)
    if info.kind == "evaluation":
        with load_run(location.folder) as run:
            require_one_version(run)
        return ComparedRollouts(where="stage = ?", values=(EVALUATION_STAGE,))
    return ComparedRollouts(where="true", about="all rollouts of the run")


def _seat_compared(catalogue: RunIndex, key: str, chosen: ComparedRollouts) -> str:
    """The seat whose rewards the store's column has: the first that learns; empty where an episode has one seat."""
    with catalogue.reader(key) as store:
        sql = f"select id from rollouts where {chosen.where} and reward is not null order by id limit 1"
        played = [store.get(id) for (id,) in store.select(sql, *chosen.values)]
    main = played[0].main_trajectory if played and len(played[0].trajectories) > 1 else None
    return "" if main is None else main.seat


def _scored_samples(catalogue: RunIndex, key: str, chosen: ComparedRollouts) -> SamplesByTask:
    """Raises UsageError for more than MAX_COMPARED_ROLLOUTS: a part of them would be another figure."""
    out: dict[str, list[ScoredSample]] = {}
    sql = f"select id, task, reward from rollouts where {chosen.where} and reward is not null order by id limit ?"
    with catalogue.reader(key) as store:
        found = store.select(sql, *chosen.values, MAX_COMPARED_ROLLOUTS + 1)
    if len(found) > MAX_COMPARED_ROLLOUTS:
        raise UsageError(
            f"{key}: more than {MAX_COMPARED_ROLLOUTS:,} rollouts are too many to be compared here: "
            "use `wander compare`"
        )
    for id, task, reward in found:
        out.setdefault(task, []).append((id, reward))
    return out


def widest_pair(first: Sequence[ScoredSample], second: Sequence[ScoredSample]) -> tuple[ScoredSample, ScoredSample]:
    """The pair of samples that shows the difference of two means best: the ends that lie that way.

    Of equal means, the pair that differs most, and the first of each where no two samples differ.
    """
    reward = itemgetter(1)
    rises = min(first, key=reward), max(second, key=reward)
    falls = max(first, key=reward), min(second, key=reward)
    difference = fmean(map(reward, second)) - fmean(map(reward, first))
    if difference == 0:
        return max(rises, falls, key=lambda pair: abs(pair[1][1] - pair[0][1]))
    return rises if difference > 0 else falls


def comparison_record(first: SamplesByTask, second: SamplesByTask) -> dict[str, Any]:
    """The comparison as JSON data: a row per task with both means and one sample of either run that differ."""
    rewards = [{task: [reward for _, reward in samples] for task, samples in run.items()} for run in (first, second)]
    comparison = compare_rewards(*rewards)
    gained, lost = set(comparison.gained), set(comparison.lost)
    rows = []
    for task in sorted(first.keys() & second.keys()):
        (a_id, _), (b_id, _) = widest_pair(first[task], second[task])
        ours, theirs = (of_run[task] for of_run in rewards)
        rows.append(
            {
                "task": task,
                "a": fmean(ours),
                "b": fmean(theirs),
                "a_samples": len(ours),
                "b_samples": len(theirs),
                "a_id": a_id,
                "b_id": b_id,
                "flip": "gained" if task in gained else "lost" if task in lost else None,
            }
        )
    return {
        "tasks": rows,
        "missing": comparison.missing,
        "first": _estimate(comparison.first),
        "second": _estimate(comparison.second),
        "difference": _estimate(comparison.difference),
        "chance": comparison.p_value,
        "verdict": comparison.verdict,
    }


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {"mean": estimate.value, "low": estimate.low, "high": estimate.high}


COMPARE_ROUTES = (Route("/api/compare", get_comparison), Route("/api/compare/task", get_task_samples))
