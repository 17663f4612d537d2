"""Events of ARE's JSON, each read by itself: what they refer to is checked by the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wanderlust.worlds.events import Act, Condition, Event, ScenarioError, Stop, Timing
from wanderlust.worlds.exchange.notes import Notes
from wanderlust.worlds.exchange.turns import turns_done
from wanderlust.worlds.exchange.values import decoded
from wanderlust.worlds.log import Actor

ACTORS: Mapping[str, Actor] = {"USER": "user", "ENV": "env", "AGENT": "agent"}
TIMINGS: Mapping[str, Timing] = {"EQUAL": "about", "LESS_THAN": "by", "GREATER_THAN": "from"}
"""How ARE says that an act of the oracle must come in time."""
FIELDS = (
    "class_name",
    "event_type",
    "event_id",
    "event_time",
    "event_relative_time",
    "dependencies",
    "event_time_comparator",
    "action",
)
ACTION_FIELDS = ("action_id", "app", "function", "operation_type", "args", "empty")
NUMBER = (int, float)


def read_event(raw: Any, number: int, *, notes: Notes) -> Event:
    """An event. Raises ScenarioError, which names the event and what was expected."""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("event_id"), str):
        raise ScenarioError(f"event number {number}: expected an object with an event_id")
    name = raw["event_id"]
    where = f"event {name!r}"
    notes.fields(raw, FIELDS, where=where)
    kind = str(raw.get("event_type", "")).rpartition(".")[2].upper()
    when = _when(raw, where)
    if kind == "STOP":
        return Stop(**when)
    action = raw.get("action")
    if not isinstance(action, Mapping):
        raise ScenarioError(f"{where}: it has no action, expected an object with app and function")
    notes.fields(action, ACTION_FIELDS, where=where)
    function = _text(action, "function", where=where)
    if kind == "CONDITION":
        holds = turns_done(function)
        if holds is None:
            raise ScenarioError(f"{where}: {function!r} is no condition, expected wrapped_condition__turn_idx_…")
        return Condition(**when, holds=holds)
    if kind not in ACTORS:
        raise ScenarioError(f"{where}: its event_type is {raw.get('event_type')!r}, expected {', '.join(ACTORS)}")
    return Act(
        **when,
        app=_text(action, "app", where=where),
        action=function,
        args=_args(action, where, notes=notes),
        by=ACTORS[kind],
        timing=_timing(raw, where, notes=notes),
    )


def _when(raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Id, dependencies, delay and time: the time counts only without a delay."""
    after = raw.get("dependencies") or []
    if not isinstance(after, list) or not all(isinstance(one, str) for one in after):
        raise ScenarioError(f"{where}: dependencies is {after!r}, expected a list of event ids")
    delay, at = raw.get("event_relative_time"), raw.get("event_time")
    for key, seconds in (("event_relative_time", delay), ("event_time", at)):
        if isinstance(seconds, bool) or not (seconds is None or isinstance(seconds, NUMBER)):
            raise ScenarioError(f"{where}: {key} is {seconds!r}, expected seconds or null")
    given = {"id": raw["event_id"], "after": tuple(dict.fromkeys(after)), "delay": float(delay or 0.0)}
    if delay is None and at:
        given["at"] = float(at)
    return given


def _text(action: Mapping[str, Any], key: str, *, where: str) -> str:
    if not isinstance(action.get(key), str):
        raise ScenarioError(f"{where}: the {key} of its action is {action.get(key)!r}, expected a name")
    return str(action[key])


def _args(action: Mapping[str, Any], where: str, *, notes: Notes) -> dict[str, Any]:
    args: dict[str, Any] = {}
    given = action.get("args") or []
    if not isinstance(given, list):
        raise ScenarioError(f"{where}: args is {type(given).__name__}, expected a list of name, value and value_type")
    for one in given:
        if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
            raise ScenarioError(f"{where}: one of its args is {one!r}, expected name, value and value_type")
        notes.fields(one, ("name", "value", "value_type"), where=where)
        kind = one.get("value_type")
        if kind is not None and not isinstance(kind, str):
            raise ScenarioError(
                f"{where}: argument {one['name']!r}: its value_type is {kind!r}, expected a type's name"
            )
        if one["name"] in args:
            raise ScenarioError(f"{where}: argument {one['name']!r} is given twice")
        try:
            args[one["name"]] = decoded(one.get("value"), kind)
        except ValueError as error:
            raise ScenarioError(f"{where}: argument {one['name']!r} {error}") from error
    for name in action.get("empty") or ():
        args[str(name)] = ""
    return args


def _timing(raw: Mapping[str, Any], where: str, *, notes: Notes) -> Timing:
    found = raw.get("event_time_comparator")
    if found is None:
        return ""
    if not isinstance(found, str) or found not in TIMINGS:
        notes.add(f"event_time_comparator {found!r} is none of {', '.join(TIMINGS)} and left out", where)
    return TIMINGS.get(str(found), "")
