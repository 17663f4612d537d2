"""Export of a scenario as ARE reads it (`are_simulation_v1`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgspec

from wanderlust_worlds.engine.events import ConditionEvent, Event, PlannedCall, ScenarioError, action_of, is_agent_call
from wanderlust_worlds.engine.log import Actor
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.exchange.read import ARE_TIMINGS, ARE_VERSION, OWN_FIELDS
from wanderlust_worlds.exchange.values import TurnsDone, condition_name, encode_argument

ARE_EVENT_TYPES: Mapping[Actor, str] = {"user": "USER", "env": "ENV", "data": "ENV", "agent": "AGENT"}
ARE_COMPARATORS = {timing: comparator for comparator, timing in ARE_TIMINGS.items()}
ARE_CLASSES = frozenset({
    "AgentUserInterface", "ApartmentListingApp", "CabApp", "Calendar", "CalendarApp", "CityApp", "Contacts",
    "ContactsApp", "EmailClientV2", "Files", "InternalContacts", "Mail", "MessagingAppV2", "RentAFlat",
    "SandboxLocalFileSystem", "Shopping", "ShoppingApp", "SystemApp", "VirtualFileSystem",
})  # fmt: skip
"""Classes of apps that ARE's importer knows; it leaves others out, and a call of one ends the scenario."""
DEFINITION_DEFAULTS: Mapping[str, Any] = {
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


_LOG = logging.getLogger(__name__)


def export_warnings(scenario: Scenario) -> tuple[str, ...]:
    """What ARE 1.2 refuses of the events, one line each; import here takes it all.

    There, an event of the environment has one predecessor, which is an event of the user or the environment or the
    agent's message to the user; an agent's act has one; and after such a message comes no act of the agent. Its
    importer leaves apps out whose class it does not know (reminders are one), so no event may call them.
    """
    events, lines = scenario.plan.events, []
    apps = {app.name: app for app in scenario.apps}
    acts = [event for event in events.values() if is_agent_call(event)]
    ends = {act.id for act in acts if action_of(apps, act.app, act.action).ends_turn}
    kinds = _classes(scenario)
    for event in events.values():
        if not isinstance(event, PlannedCall):
            continue
        agents = [name for name in event.after if is_agent_call(events[name])]
        if kinds[event.app] not in ARE_CLASSES:
            lines.append(f"event {event.id!r}: ARE's importer knows no app of class {kinds[event.app]}")
        elif event.by == "env" and len(event.after) != 1:
            lines.append(f"event {event.id!r}: ARE takes one predecessor for the environment's, not {len(event.after)}")
        elif event.by == "env" and set(agents) - ends:
            lines.append(f"event {event.id!r}: ARE takes none of the environment's after an agent's {agents[0]!r}")
        elif event.by == "agent" and not event.after:
            lines.append(f"event {event.id!r}: ARE takes no agent's act without a predecessor")
        elif event.by == "agent" and ends.intersection(agents):
            lines.append(f"event {event.id!r}: ARE takes no agent's act after a message to the user")
    return tuple(lines)


def export_scenario(scenario: Scenario, augmentation: Mapping[str, Any] | None = None) -> bytes:
    """The scenario as JSON, which `import_scenario` reads as an equal one; ARE reads what it knows of it.

    Raises ScenarioError, which names the event, for what ARE cannot say: conditions other than finished turns,
    milestones, minefields and stops, and events with both a delay and a time. What ARE refuses of the rest is logged
    as a warning (`export_warnings`).
    """
    if refused := export_warnings(scenario):
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        _LOG.warning("%s: ARE will refuse this file: %s%s", scenario.id, refused[0], more)
    kinds = _classes(scenario)
    apps = [{"name": app.name, "class_name": kinds[app.name], "app_state": app.to_are()} for app in scenario.apps]
    record = {
        "metadata": _metadata(scenario),
        "world_logs": [],
        "apps": apps,
        "events": [_event(event, scenario) for event in scenario.plan.events.values()],
        "completed_events": [],
        "version": ARE_VERSION,
        "context": None,
        "augmentation": augmentation,
    }
    return msgspec.json.encode(record)


def _classes(scenario: Scenario) -> dict[str, str]:
    """The name of ARE's class of each app, by the app's name."""
    known = scenario.info.get("are", {}).get("classes", {})
    return {app.name: known.get(app.name) or next(iter(app.aliases), type(app).__name__) for app in scenario.apps}


def _metadata(scenario: Scenario) -> dict[str, Any]:
    if not isfinite(scenario.duration):
        raise ScenarioError(f"scenario {scenario.id!r}: its duration is {scenario.duration}, expected a number")
    info = scenario.info
    rest = dict(info.get("are", {}))
    rest.pop("classes", None)
    definition = {
        **DEFINITION_DEFAULTS,
        **rest.pop("definition", {}),
        "scenario_id": scenario.id,
        "seed": scenario.seed,
        "duration": scenario.duration,
        "start_time": scenario.start,
        "hints": info.get("hints", []),
        "tags": info.get("tags", []),
    }
    own = {key: getattr(scenario, key) for key in OWN_FIELDS}
    metadata = {"simulation": None, "annotation": None, "execution": None, "runner_config": None}
    return {"definition": definition, **metadata, **rest, "wanderlust": own}


def _event(event: Event, scenario: Scenario) -> dict[str, Any]:
    if event.at is not None and event.delay:
        raise ScenarioError(f"event {event.id!r}: it has a delay and a time, and ARE takes one of them")
    record = {
        "event_id": event.id,
        "dependencies": list(event.after),
        "event_time": event.at,
        "event_relative_time": None if event.at is not None else event.delay,
    }
    if isinstance(event, PlannedCall):
        return record | _act(event, scenario)
    if type(event) is ConditionEvent and isinstance(event.holds, TurnsDone) and event.within is None:
        action = {"action_id": event.id, "app": None, "function": condition_name(event.holds, scenario.id)}
        return record | {"class_name": "ConditionCheckEvent", "event_type": "CONDITION", "action": action}
    raise ScenarioError(f"event {event.id!r}: ARE's JSON has no way to tell of a {event.kind}")


def _act(act: PlannedCall, scenario: Scenario) -> dict[str, Any]:
    action = next(app for app in scenario.apps if app.name == act.app).actions[act.action]
    oracle, args = act.by == "agent", []
    for name, value in act.args.items():
        if value == "":
            continue
        try:
            text, value_type = encode_argument(value)
        except TypeError as error:
            raise ScenarioError(f"event {act.id!r}: argument {name!r}: {error}") from error
        args.append({"name": name, "value": text, "value_type": value_type})
    record: dict[str, Any] = {
        "action_id": "" if oracle else f"{act.app}.{act.action}-{act.id}",
        "app": act.app,
        "function": act.action,
        "operation_type": None if oracle else ("WRITE" if action.writes else "READ"),
        "args": args,
    }
    if empty := [name for name, value in act.args.items() if value == ""]:
        record["empty"] = empty  # ARE refuses a file with an empty text, and has one where nothing is given
    kind: dict[str, Any] = {
        "class_name": "OracleEvent" if oracle else "Event",
        "event_type": ARE_EVENT_TYPES[act.by],
        "action": record,
    }
    if oracle:
        kind["event_time_comparator"] = ARE_COMPARATORS.get(act.timing)
    return kind
