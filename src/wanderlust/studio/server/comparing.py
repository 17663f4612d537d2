"""Two runs on the same tasks over HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.core.errors import UsageError
from wanderlust.evals.comparison import Comparison, compare
from wanderlust.evals.statistics import Estimate
from wanderlust.studio.server.answers import answer, text
from wanderlust.studio.server.catalogue import Catalogue
from wanderlust.studio.server.facts import LEARNING
from wanderlust.studio.server.state import studio

TASKS = 200_000
"""Rollouts of a run that are compared at most."""


@dataclass(slots=True)
class Played:
    """Rewards of one run by task, and a rollout of each to look at."""

    rewards: dict[str, list[float]] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)


def comparison(request: Request) -> Response:
    """The paired difference, the tasks that flipped, and all pairs."""
    catalogue, a, b = studio(request).catalogue, text(request, "a"), text(request, "b")
    first, second = _played(catalogue, a), _played(catalogue, b)
    if not first.rewards or not second.rewards:
        raise UsageError(f"{a if not first.rewards else b}: nothing was scored there")
    found = compare(first.rewards, second.rewards)
    return answer({"a": a, "b": b, **told(found, first, second)})


def _played(catalogue: Catalogue, key: str) -> Played:
    """Of an evaluation every rollout; of a run that learns those of its last step."""
    out, info = Played(), catalogue.info(catalogue.place(key))
    where = "true"
    values: tuple[Any, ...] = ()
    if info.kind == "training" and info.stage in LEARNING:
        where, values = "stage = ? and step = (select max(step) from rollouts where stage = ?)", (info.stage,) * 2
    with catalogue.reader(key) as store:
        sql = f"select id, task, reward from rollouts where {where} and reward is not null limit ?"
        for id, task, reward in store.select(sql, *values, TASKS):
            out.rewards.setdefault(task, []).append(reward)
            out.ids.setdefault(task, id)
    return out


def told(found: Comparison, first: Played, second: Played) -> dict[str, Any]:
    """As the page reads it; a flip is told with the means and one rollout of either."""
    common = sorted(first.rewards.keys() & second.rewards.keys())
    flips = [
        {
            "task": task,
            "a": fmean(first.rewards[task]),
            "b": fmean(second.rewards[task]),
            "a_id": first.ids[task],
            "b_id": second.ids[task],
        }
        for task in (*found.gained, *found.lost)
    ]
    means = [[fmean(run.rewards[task]) for task in common] for run in (first, second)]
    verdict = "The difference is clear" if found.clear else "The difference may well be chance"
    return {
        "tasks": len(common),
        "missing": found.missing,
        "first": _estimate(found.first),
        "second": _estimate(found.second),
        "difference": _estimate(found.difference),
        "chance": found.chance,
        "verdict": f"{verdict} (p = {found.chance:.2g})",
        "flips": flips,
        "pairs": {"task": common, "a": means[0], "b": means[1]},
        "ids": {"a": [first.ids[task] for task in common], "b": [second.ids[task] for task in common]},
    }


def _estimate(found: Estimate) -> dict[str, float | None]:
    return {"mean": found.value, "low": found.low, "high": found.high}


ROUTES = (Route("/api/compare", comparison),)
