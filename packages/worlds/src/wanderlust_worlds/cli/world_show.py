"""`wander world show`: a scenario, or what happened in one, as a table: when, who, what, and what came of it."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from wanderlust.cli.options import JsonFlag
from wanderlust.cli.output import show_result
from wanderlust.errors import UsageError, one_line
from wanderlust.runner.terminal import Table, plain
from wanderlust.store.run_folder import STORE_FILE
from wanderlust.types import Rollout, Status
from wanderlust_worlds import Scenario, log_of
from wanderlust_worlds.cli.world_options import (
    format_duration,
    load_rollout_and_scenario,
    resolve_scenario,
    rollout_number,
)
from wanderlust_worlds.engine.app import format_time
from wanderlust_worlds.engine.events import ConditionEvent, Event, PlannedCall
from wanderlust_worlds.engine.log import ENGINE, LogEntry
from wanderlust_worlds.verification.facts import AnswerFacts, describe_facts
from wanderlust_worlds.verification.grading import facts_of

ACTOR_COLOURS: Mapping[str, str] = {"user": "cyan", "agent": "green", "env": "yellow", "world": "dim"}
MAX_VALUE_CHARS_PRINTED = 300
"""Characters of what one action was given, or gave."""
HIDDEN_ACTIONS = ("deliver", "fulfil")
"""The engine's own lines that say nothing to a reader."""


def render_timeline(log: Iterable[LogEntry], start: float) -> Table:
    """The lines of a log; times count from the start."""
    table = _table("time", "who", "what", "with", "came to")
    for line in log:
        if line.app == ENGINE and (line.action in HIDDEN_ACTIONS or line.args.get("seconds", True) in (0, None)):
            continue
        came = f"error: {line.error}" if line.error is not None else _render_value(line.result)
        what = line.action if line.app == ENGINE else f"{line.app}.{line.action}"
        cells = (format_duration(line.time - start), line.by, what, render_arguments(line.args), came)
        style = "red" if line.error is not None else ACTOR_COLOURS.get(line.by, "")
        table.add_row(*(plain(one_line(cell, MAX_VALUE_CHARS_PRINTED), style=style) for cell in cells))
    return table


def _table(*names: str) -> Table:
    table = Table()
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def render_events(scenario: Scenario) -> Table:
    """The events of a scenario: what will happen, and what a perfect agent does."""
    table = _table("event", "after", "who", "what", "with, and what must be said")
    facts = facts_of(scenario)
    for event in scenario.events:
        cells, who = _event(event, facts.get(event.id, {}), scenario.start)
        table.add_row(
            *(plain(one_line(cell, 2 * MAX_VALUE_CHARS_PRINTED), style=ACTOR_COLOURS.get(who, "")) for cell in cells)
        )
    return table


def _event(event: Event, facts: Mapping[str, AnswerFacts], start: float) -> tuple[tuple[str, ...], str]:
    after = ", ".join(event.after) or "start"
    after += f" +{format_duration(event.delay)}" if event.delay else ""
    after += f" at {format_duration(event.at - start)}" if event.at is not None else ""
    if isinstance(event, PlannedCall):
        said = [(name, [*describe_facts(one)]) for name, one in facts.items()]
        must = [f"{name} must say {'; '.join(lines)}" for name, lines in said if lines]
        what = " | ".join([render_arguments(event.args), *must])
        return (event.id, after, event.by, f"{event.app}.{event.action}", what), event.by
    within = event.within if isinstance(event, ConditionEvent) else None
    bound = "" if within is None else f"within {format_duration(within)}"
    return (event.id, after, "", type(event).__name__.lower(), bound), "world"


def describe_scenario(scenario: Scenario) -> list[str]:
    """Lines about a scenario."""
    about = ", ".join(f"{key} {value}" for key, value in scenario.info.items() if key != "facts")
    lasts = format_duration(scenario.duration)
    return [f"{scenario.id}: {about}", f"begins {format_time(scenario.start)} UTC, lasts {lasts} at most"]


def render_arguments(args: Mapping[str, Any]) -> str:
    """Arguments as one reads them."""
    return ", ".join(f"{name}={_render_value(value)}" for name, value in args.items())


def _render_value(value: Any) -> str:
    if value is None:
        return ""
    plain = msgspec.to_builtins(value, str_keys=True, builtin_types=())
    return plain if isinstance(plain, str) else json_format.dumps(plain, ensure_ascii=False)


def show_world(
    scenario: Annotated[str, Parameter(name="SCENARIO", help="A scenario, or the folder of a run.")],
    number: Annotated[str | None, Parameter(help="The number of a rollout of that run.")] = None,
    /,
    *,
    json: JsonFlag = False,
) -> int:
    """Show the events of a scenario, or what happened in a rollout."""
    if Path(scenario).is_dir() or Path(scenario).name == STORE_FILE:
        return print_outcome(load_rollout_and_scenario(scenario, rollout_number(scenario, number))[0], json=json)
    if number is not None:
        raise UsageError(f"{scenario} is no run: there is no rollout {number!r} to show")
    shown = resolve_scenario(scenario).scenario
    body = {"id": shown.id, "info": shown.info, "events": [*map(repr, shown.events)]}
    show_result(body, *describe_scenario(shown), table=render_events(shown), json=json)
    return 0


def print_outcome(rollout: Rollout, *, json: bool) -> int:
    log = log_of(rollout)
    score = next((one.score for one in rollout.trajectories), None)
    reward = None if score is None else score.reward
    verdict = "" if score is None else str(score.notes.get("verdict", ""))
    lines = [{"time": one.time, "by": one.by, "app": one.app, "action": one.action} for one in log]
    ended = {"task": rollout.task.id, "stop": rollout.stop_reason, "error": rollout.error, "reward": reward}
    body = {**ended, "verdict": verdict, "digest": rollout.state.get("digest"), "log": lines}
    summary = f"Reward: {'none' if reward is None else f'{reward:g}'}. {verdict}"
    error = [f"Error: {rollout.error}"] if rollout.error is not None else []
    told = [rollout.task.id, *error, f"Ended: {rollout.stop_reason}", summary]
    show_result(body, *told, table=render_timeline(log, log[0].time if log else 0.0), json=json)
    return 1 if rollout.status is Status.ERROR else 0
