"""Runs: the list, one of them, its figures, its events, the groups of a step."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.core.errors import StoreError
from wanderlust.recipes.folder import SAID
from wanderlust.rollout.reader import RunReader
from wanderlust.rollout.table import FIELDS
from wanderlust.studio.server.again import repeats
from wanderlust.studio.server.answers import answer, number, placed, text
from wanderlust.studio.server.catalogue import Place, opened
from wanderlust.studio.server.facts import Stage, settings_of
from wanderlust.studio.server.state import place, reader, studio

GROUPS, EVENTS = 1000, 2000
"""At most so many in one answer."""


def runs(request: Request) -> Response:
    """All runs."""
    return answer({"runs": studio(request).catalogue.refresh()})


def run(request: Request) -> Response:
    """One run; a broken one too."""
    found = place(request)
    return answer(described(found, studio(request).catalogue.info(found)))


def described(found: Place, info: Any) -> dict[str, Any]:
    """Everything about a run that is no figure."""
    body = {**asdict(info), "config": settings_of(found.folder)}
    try:
        with opened(found) as store:
            body |= _stored(store) | {"stages": [_stage(stage) for stage in found.stages]}
        return body | {"command": repeats(found.folder, info, body["meta"].get(SAID))}
    except StoreError:
        body["command"] = repeats(found.folder, info)
        return body | {"meta": {}, "stages": [], "fields": _fields(None), "tokens": False, "worlds": False}


def _stored(store: RunReader) -> dict[str, Any]:
    newest = store.rollouts(order="-id", limit=1)
    return {
        "meta": store.meta(),
        "fields": _fields(asdict(newest[0]) if newest else None),
        "tokens": bool(store.select("select 1 from tokens limit 1")),
        "worlds": bool(newest) and "log" in store.get(newest[0].id).state,
    }


def _stage(stage: Stage) -> dict[str, Any]:
    return {name: getattr(stage, name) for name in ("name", "first", "last", "rollouts", "statuses")}


def _fields(example: dict[str, Any] | None) -> list[dict[str, Any]]:
    kinds = {name: "text" if field.text else "number" for name, field in FIELDS.items()}
    return [{"name": n, "type": kind, "example": example[n] if example else None} for n, kind in kinds.items()]


def metrics(request: Request) -> Response:
    """Every figure of a stage over its steps."""
    with reader(request) as store:
        return answer(measured(store, text(request, "stage")))


def measured(store: RunReader, stage: str) -> dict[str, Any]:
    """Of the stage that is asked for, or of all when it is empty: then the first stage that has figures."""
    stages = [name for (name,) in store.select("select distinct stage from metrics order by stage")]
    chosen = stage or next((name for name in ("reinforce", "imitate") if name in stages), stages[0] if stages else "")
    series: dict[str, dict[str, list[Any]]] = {}
    sql = "select name, step, value from metrics where stage = ? order by name, step"
    for name, step, value in store.select(sql, chosen):
        line = series.setdefault(name, {"steps": [], "values": []})
        line["steps"].append(step)
        line["values"].append(value)
    return {"stage": chosen, "names": [*series], "series": series, "stages": stages}


def events(request: Request) -> Response:
    """What happened, the oldest first."""
    with reader(request) as store:
        found = store.events(number(request, "after", 0))[:EVENTS]
        return answer({"events": [asdict(event) for event in found]})


def steps(request: Request) -> Response:
    """The groups of one step."""
    stage, step = str(request.path_params["stage"]), placed(request, "step")
    offset, limit = number(request, "offset", 0), number(request, "limit", 500, most=GROUPS)
    with reader(request) as store:
        return answer(groups(store, stage, step, offset=offset, limit=limit))


def groups(store: RunReader, stage: str, step: int, *, offset: int, limit: int) -> dict[str, Any]:
    """Groups by index, with the spread of their rewards; one is live when its rewards differ."""
    counting = "select count(distinct grp) from rollouts where stage = ? and step = ?"
    ((total,),) = store.select(counting, stage, step)
    sql = (
        "select grp, task, count(*), count(reward), avg(reward), min(reward), max(reward), group_concat(id)"
        " from rollouts where stage = ? and step = ? group by grp order by grp limit ? offset ?"
    )
    found = [
        {
            "group": group,
            "task": task,
            "n": n,
            "scored": scored,
            "mean": mean,
            "low": low,
            "high": high,
            "live": scored > 1 and low != high,
            "ids": [int(id) for id in ids.split(",")][:GROUPS],
        }
        for group, task, n, scored, mean, low, high, ids in store.select(sql, stage, step, limit, offset)
    ]
    return {"total": total, "groups": found}


ROUTES = (
    Route("/api/runs", runs),
    Route("/api/runs/{key}", run),
    Route("/api/runs/{key}/metrics", metrics),
    Route("/api/runs/{key}/events", events),
    Route("/api/runs/{key}/steps/{stage}/{step}", steps),
)
