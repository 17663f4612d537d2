"""Runs: the list, one of them, its figures, its events, the groups of a step.

The command that goes on with a run, or makes it again.

Two runs on the same tasks over HTTP.

Pause, resume and stop over HTTP: the same socket as `wander ctl`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.errors import StoreError, UsageError
from wanderlust.evals.statistics import Comparison, Estimate, compare
from wanderlust.runner.control import Deed, ask
from wanderlust.store.queries import FIELDS
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import EVALUATION, SAID, again, command, open_folder
from wanderlust.studio.responses import answer, number, placed, text
from wanderlust.studio.run_index import LEARNING, Catalogue, Place, RunInfo, Stage, opened, settings_of
from wanderlust.studio.state import place, reader, studio

RESUMED = {"DemoConfig": "demo", "TrainConfig": "train"}
"""The command that goes on with a run of each recipe."""


def repeats(folder: Path, info: RunInfo, said: object = None) -> str | None:
    """None where the run does not say how it was begun; `said` is what its store has to say about that."""
    try:
        run = open_folder(folder)
    except StoreError:
        return None
    if run is None:
        return None
    if run.recipe == EVALUATION and "env" in run.config:
        return again(run.config, out=None if info.finished else folder)
    name = RESUMED.get(run.recipe)
    if name and not info.finished:
        return command(name, "--resume", folder)
    if isinstance(said, list) and said[:1] == ["train"] and all(isinstance(word, str) for word in said):
        return command(*said, "--out", folder.with_name(f"{folder.name}-again"))
    return None


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


class Wish(msgspec.Struct, rename={"deed": "do"}):
    """The body of the request."""

    deed: Deed


async def control(request: Request) -> Response:
    """Do that, and say how the run is now."""
    try:
        wish = msgspec.json.decode(await request.body(), type=Wish)
    except msgspec.MsgspecError as error:
        raise UsageError(f'the body must be {{"do": one of {", ".join(get_args(Deed))}}}') from error
    return await run_in_threadpool(_done, request, wish.deed)


def _done(request: Request, deed: Deed) -> Response:
    found = place(request)
    ask(found.folder, deed, by="studio")
    return answer(studio(request).catalogue.info(found))


ROUTES_CONTROL = (Route("/api/runs/{key}/control", control, methods=["POST"]),)


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


ROUTES_RUNS = (
    Route("/api/runs", runs),
    Route("/api/runs/{key}", run),
    Route("/api/runs/{key}/metrics", metrics),
    Route("/api/runs/{key}/events", events),
    Route("/api/runs/{key}/steps/{stage}/{step}", steps),
)
