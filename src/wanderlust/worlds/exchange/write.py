"""Writing a scenario as ARE reads it (`are_simulation_v1`)."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgspec

from wanderlust.worlds.engine.app import App
from wanderlust.worlds.engine.events import Act, Condition, Event, ScenarioError
from wanderlust.worlds.engine.log import Actor
from wanderlust.worlds.engine.scenario import Scenario
from wanderlust.worlds.exchange.read import OWN, TIMINGS, VERSION
from wanderlust.worlds.exchange.values import TurnsDone, condition_name, encoded

KINDS: Mapping[Actor, str] = {"user": "USER", "env": "ENV", "data": "ENV", "agent": "AGENT"}
COMPARATORS = {timing: told for told, timing in TIMINGS.items()}
DEFINITION: Mapping[str, Any] = {
    "time_increment_in_seconds": 1,
    "run_number": None,
    "config": None,
    "has_a2a_augmentation": False,
    "has_tool_augmentation": False,
    "has_env_events_augmentation": False,
    "has_exception": False,
    "exception_type": None,
    "exception_message": None,
    "hf_metadata": None,
}


def export_scenario(scenario: Scenario, augmentation: Mapping[str, Any] | None = None) -> bytes:
    """The scenario as JSON, which `import_scenario` reads as an equal one; ARE reads what it knows of it.

    Raises ScenarioError, which names the event, for what ARE cannot say: conditions other than finished turns,
    milestones, minefields and stops, and events with both a delay and a time.
    """
    told = {
        "metadata": _metadata(scenario),
        "world_logs": [],
        "apps": [_app(app, scenario) for app in scenario.apps],
        "events": [_event(event, scenario) for event in scenario.plan.events.values()],
        "completed_events": [],
        "version": VERSION,
        "context": None,
        "augmentation": augmentation,
    }
    return msgspec.json.encode(told)


def _metadata(scenario: Scenario) -> dict[str, Any]:
    if not isfinite(scenario.duration):
        raise ScenarioError(f"scenario {scenario.id!r}: its duration is {scenario.duration}, expected a number")
    info = scenario.info
    rest = dict(info.get("are", {}))
    rest.pop("classes", None)
    definition = {
        **DEFINITION,
        **rest.pop("definition", {}),
        "scenario_id": scenario.id,
        "seed": scenario.seed,
        "duration": scenario.duration,
        "start_time": scenario.start,
        "hints": info.get("hints", []),
        "tags": info.get("tags", []),
    }
    own = {key: getattr(scenario, key) for key in OWN}
    given = {"simulation": None, "annotation": None, "execution": None, "runner_config": None}
    return {"definition": definition, **given, **rest, "wanderlust": own}


def _app(app: App, scenario: Scenario) -> dict[str, Any]:
    known = scenario.info.get("are", {}).get("classes", {}).get(app.name)
    kind = known or next(iter(app.aliases), type(app).__name__)
    return {"name": app.name, "class_name": kind, "app_state": app.offer()}


def _event(event: Event, scenario: Scenario) -> dict[str, Any]:
    if event.at is not None and event.delay:
        raise ScenarioError(f"event {event.id!r}: it has a delay and a time, and ARE takes one of them")
    told = {
        "event_id": event.id,
        "dependencies": list(event.after),
        "event_time": event.at,
        "event_relative_time": None if event.at is not None else event.delay,
    }
    if isinstance(event, Act):
        return told | _act(event, scenario)
    if type(event) is Condition and isinstance(event.holds, TurnsDone) and event.within is None:
        action = {"action_id": event.id, "app": None, "function": condition_name(event.holds, scenario.id)}
        return told | {"class_name": "ConditionCheckEvent", "event_type": "CONDITION", "action": action}
    raise ScenarioError(f"event {event.id!r}: ARE's JSON has no way to tell of a {type(event).__name__.lower()}")


def _act(act: Act, scenario: Scenario) -> dict[str, Any]:
    action = next(app for app in scenario.apps if app.name == act.app).actions[act.action]
    oracle = act.by == "agent"
    told: dict[str, Any] = {
        "action_id": "" if oracle else f"{act.app}.{act.action}-{act.id}",
        "app": act.app,
        "function": act.action,
        "operation_type": None if oracle else ("WRITE" if action.writes else "READ"),
        "args": [_argument(act, name, value) for name, value in act.args.items() if value != ""],
    }
    if empty := [name for name, value in act.args.items() if value == ""]:
        told["empty"] = empty  # ARE refuses a file with an empty text, and has one where nothing is given
    kind: dict[str, Any] = {
        "class_name": "OracleEvent" if oracle else "Event",
        "event_type": KINDS[act.by],
        "action": told,
    }
    if oracle:
        kind["event_time_comparator"] = COMPARATORS.get(act.timing)
    return kind


def _argument(act: Act, name: str, value: Any) -> dict[str, Any]:
    try:
        text, kind = encoded(value)
    except TypeError as error:
        raise ScenarioError(f"event {act.id!r}: argument {name!r}: {error}") from error
    return {"name": name, "value": text, "value_type": kind}
