"""Runs over HTTP: their list, one run with its result, metrics, events and groups, and their control.

Pause, resume and stop go through the same socket as `wander ctl`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.errors import StoreError, UsageError
from wanderlust.runner.control import ControlCommand, send_command
from wanderlust.store.filters import field_text
from wanderlust.store.queries import ROW_FIELDS
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import (
    COMMAND_KEY,
    EVALUATION_RECIPE,
    OFFLINE_COMMANDS,
    PASS_THRESHOLD_KEY,
    format_eval_command,
    open_folder,
    shell_command,
)
from wanderlust.studio.requests import (
    json_response,
    path_number,
    query_number,
    query_text,
    requested_reader,
    requested_run,
    studio_state,
)
from wanderlust.studio.results import TRAINING_STAGES, evaluation_result, lock_record, training_result
from wanderlust.studio.run_index import (
    RunInfo,
    RunLocation,
    open_run_store,
    settings_of,
    shown_environment,
)

RESUMABLE_RECIPES = {"train": "train", "finetune": "sft"}
"""The command that resumes a run, by recipe; that of offline training is its method."""
TRAINING_WORDS = ("train", "demo", *OFFLINE_COMMANDS.values())
"""First words of the commands that a run is made again with."""


def repro_command(folder: Path, info: RunInfo, facts: Mapping[str, Any]) -> str | None:
    """The command that resumes or repeats a run, by its folder and the facts in its store; None where unknown."""
    try:
        run = open_folder(folder)
    except StoreError:
        return None
    if run is None:
        return None
    if run.recipe == EVALUATION_RECIPE and "env" in run.config:
        settings = {**run.config, PASS_THRESHOLD_KEY: facts.get(PASS_THRESHOLD_KEY)}
        return format_eval_command(settings, out=None if info.finished else folder)
    name = RESUMABLE_RECIPES.get(run.recipe)
    if name and not info.finished:
        method = str(run.config.get("method", name))
        return shell_command(OFFLINE_COMMANDS.get(method, method), "--resume", folder)
    stored = facts.get(COMMAND_KEY)
    words = stored if isinstance(stored, list) else []
    if words and words[0] in TRAINING_WORDS and all(isinstance(word, str) for word in words):
        return shell_command(*words, "--out", folder.with_name(f"{folder.name}-again"))
    return None


class ControlRequest(msgspec.Struct, rename={"action": "do"}):
    """The body of the request."""

    action: ControlCommand


async def post_control(request: Request) -> Response:
    """Send the command to the run, and answer with its new state."""
    try:
        wish = msgspec.json.decode(await request.body(), type=ControlRequest)
    except msgspec.MsgspecError as error:
        raise UsageError(f'the body must be {{"do": one of {", ".join(get_args(ControlCommand))}}}') from error

    def send() -> Response:
        location = requested_run(request)
        send_command(location.folder, wish.action, by="studio")
        return json_response(studio_state(request).index.info(location))

    return await run_in_threadpool(send)


CONTROL_ROUTES = (Route("/api/runs/{key}/control", post_control, methods=["POST"]),)


MAX_GROUPS, MAX_EVENTS = 1000, 2000
"""Most groups and events in one answer."""


def get_runs(request: Request) -> Response:
    """All runs."""
    return json_response({"runs": studio_state(request).index.refresh()})


def get_run(request: Request) -> Response:
    """One run; a broken one too."""
    location = requested_run(request)
    return json_response(run_record(location, studio_state(request).index.info(location)))


def run_record(location: RunLocation, info: Any) -> dict[str, Any]:
    """Everything about a run but its metrics."""
    trained = training_result(location.folder) if info.kind == "training" and not info.running else None
    body = {**asdict(info), "config": settings_of(location.folder), "lock": lock_record(location.folder)}
    body["trained"] = trained
    try:
        with open_run_store(location) as store:
            fields = ("name", "first", "last", "rollouts", "statuses")
            stages = [{name: getattr(stage, name) for name in fields} for stage in location.stages]
            newest = store.rollouts(order="-id", limit=1)
            example = {**asdict(newest[0]), "env": shown_environment(newest[0].env)} if newest else None
            body |= {
                "meta": store.meta(),
                "fields": _fields(example, store.score_names()),
                "tokens": bool(store.select("select 1 from tokens limit 1")),
                "stages": stages,
            }
        return body | {"command": repro_command(location.folder, info, body["meta"])}
    except StoreError:
        body["command"] = repro_command(location.folder, info, {})
        return body | {"meta": {}, "stages": [], "fields": _fields(None, ()), "tokens": False}


def _fields(example: dict[str, Any] | None, scores: Iterable[str]) -> list[dict[str, Any]]:
    """What filters may name, parts and metrics last; `text` is the name as a filter writes it."""
    kinds = {name: "text" if field.text else "number" for name, field in ROW_FIELDS.items()}
    kinds |= dict.fromkeys(scores, "number")
    return [
        {"name": name, "text": field_text(name), "type": kind, "example": (example or {}).get(name)}
        for name, kind in kinds.items()
    ]


def get_metrics(request: Request) -> Response:
    """Every metric of a stage over its steps."""
    with requested_reader(request) as store:
        return json_response(stage_metrics(store, query_text(request, "stage")))


def stage_metrics(store: RunReader, stage: str) -> dict[str, Any]:
    """Metrics of the stage, or, when it is empty, of the first stage that has any."""
    stages = [name for (name,) in store.select("select distinct stage from metrics order by stage")]
    chosen = stage or next((name for name in TRAINING_STAGES if name in stages), stages[0] if stages else "")
    series: dict[str, dict[str, list[Any]]] = {}
    sql = "select name, step, value from metrics where stage = ? order by name, step"
    for name, step, value in store.select(sql, chosen):
        line = series.setdefault(name, {"steps": [], "values": []})
        line["steps"].append(step)
        line["values"].append(value)
    return {"stage": chosen, "names": [*series], "series": series, "stages": stages}


def get_result(request: Request) -> Response:
    """The figures of an evaluation, broken down by the key `by` of the tasks' info where that is asked for."""
    location = requested_run(request)
    with open_run_store(location) as store:
        return json_response(evaluation_result(location.folder, store, group_by=query_text(request, "by")))


def get_events(request: Request) -> Response:
    """The run's events, the oldest first."""
    with requested_reader(request) as store:
        newest_events = store.events(query_number(request, "after", 0))[:MAX_EVENTS]
        return json_response({"events": [asdict(event) for event in newest_events]})


def get_step_groups(request: Request) -> Response:
    """The groups of one step."""
    stage, step = str(request.path_params["stage"]), path_number(request, "step")
    offset, limit = query_number(request, "offset", 0), query_number(request, "limit", MAX_GROUPS, maximum=MAX_GROUPS)
    with requested_reader(request) as store:
        return json_response(step_group_records(store, stage, step, offset=offset, limit=limit))


def step_group_records(store: RunReader, stage: str, step: int, *, offset: int, limit: int) -> dict[str, Any]:
    """Groups by index, with the range of their rewards; `has_signal` when the rewards differ."""
    counting = "select count(distinct grp) from rollouts where stage = ? and step = ?"
    ((total,),) = store.select(counting, stage, step)
    sql = (
        "select grp, task, count(*), count(reward), avg(reward), min(reward), max(reward), group_concat(id)"
        " from rollouts where stage = ? and step = ? group by grp order by grp limit ? offset ?"
    )
    records = [
        {
            "group": group,
            "task": task,
            "n": n,
            "scored": scored,
            "mean": mean,
            "low": low,
            "high": high,
            "has_signal": scored > 1 and low != high,
            "ids": [int(id) for id in ids.split(",")][:MAX_GROUPS],
        }
        for group, task, n, scored, mean, low, high, ids in store.select(sql, stage, step, limit, offset)
    ]
    return {"total": total, "groups": records}


RUN_ROUTES = (
    Route("/api/runs", get_runs),
    Route("/api/runs/{key}", get_run),
    Route("/api/runs/{key}/metrics", get_metrics),
    Route("/api/runs/{key}/result", get_result),
    Route("/api/runs/{key}/events", get_events),
    Route("/api/runs/{key}/steps/{stage}/{step}", get_step_groups),
)
