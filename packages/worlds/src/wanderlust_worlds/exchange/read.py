"""Import of scenarios of ARE (`are_simulation_v1`, as in Gaia2) from JSON, files and folders.

Unknown parts are left out and listed in `ImportedScenario.warnings`; what cannot be played raises ScenarioError, which
names the event, and for files the file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from wanderlust.errors import UsageError, one_line
from wanderlust.tasks.datasets import numbered_rows
from wanderlust.tools.function import ToolError
from wanderlust_worlds.apps import app_classes
from wanderlust_worlds.apps.user_interface import System, UserInterface
from wanderlust_worlds.engine.app import App
from wanderlust_worlds.engine.events import ConditionEvent, Event, PlannedCall, ScenarioError, StopEvent, Timing
from wanderlust_worlds.engine.log import Actor
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.exchange.augmentation import agent_actions, tool_descriptions_of, tool_names_of
from wanderlust_worlds.exchange.values import decode_argument, turns_done

EMPTY_VALUES: tuple[Any, ...] = (None, "", False, 0, [], {})
KNOWN_DEFINITION = ("scenario_id", "seed", "duration", "start_time", "hints", "tags")
"""Fields of a definition that a scenario has of its own."""


class ImportWarnings:
    """Collects warnings: the same one is kept once, with its first place and a count."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._more: dict[str, int] = {}

    def add(self, what: str, where: str) -> None:
        """Note something; the same thing elsewhere is only counted."""
        if self._first.setdefault(what, where) != where:
            self._more[what] = self._more.get(what, 0) + 1

    def fields(self, values: Mapping[str, Any], known_names: Collection[str], *, where: str) -> None:
        """Note the fields that are not among `known_names`."""
        for key in values:
            if key not in known_names:
                self.add(f"the field {key!r} is not known and left out", where)

    def state(self, source_state: Any, imported_state: Any, *, app: str) -> None:
        """Note the parts of an app's state that the import did not keep; empty values do not count."""
        stack: list[tuple[Any, Any, tuple[str, ...]]] = [(source_state, imported_state, ())]
        while stack:
            one, other, path = stack.pop()
            if type(one) is dict and type(other) is dict:
                for key, value in one.items():
                    if key not in other:
                        if value not in EMPTY_VALUES:
                            self.add(f"{str(key)!r} is not known and left out", f"{app}, {'.'.join((*path, str(key)))}")
                    elif type(value) in (dict, list):
                        stack.append((value, other[key], (*path, str(key))))
            elif type(one) is list and isinstance(other, list | tuple):
                stack += [(a, b, (*path, str(n))) for n, (a, b) in enumerate(zip(one, other, strict=False))]

    def lines(self) -> tuple[str, ...]:
        """The warnings, one line each."""
        more = {what: f" (and {count:,} more)" for what, count in self._more.items()}
        return tuple(f"{where}{more.get(what, '')}: {what}" for what, where in self._first.items())


ARE_ACTORS: Mapping[str, Actor] = {"USER": "user", "ENV": "env", "AGENT": "agent"}
ARE_TIMINGS: Mapping[str, Timing] = {"EQUAL": "about", "LESS_THAN": "by", "GREATER_THAN": "from"}
"""The timing that each of ARE's comparators stands for."""
EVENT_FIELDS = (
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
NUMBER_TYPES = (int, float)


def read_event(raw: Any, number: int, *, notes: ImportWarnings) -> Event:
    """An event. Raises ScenarioError, which names the event and what was expected."""
    if not isinstance(raw, Mapping) or not isinstance(raw.get("event_id"), str):
        raise ScenarioError(f"event number {number}: expected an object with an event_id")
    name = raw["event_id"]
    where = f"event {name!r}"
    notes.fields(raw, EVENT_FIELDS, where=where)
    kind = str(raw.get("event_type", "")).rpartition(".")[2].upper()
    when = _when(raw, where)
    if kind == "STOP":
        return StopEvent(**when)
    action = raw.get("action")
    if not isinstance(action, Mapping):
        raise ScenarioError(f"{where}: it has no action, expected an object with app and function")
    notes.fields(action, ACTION_FIELDS, where=where)
    function = _text(action, "function", where=where)
    if kind == "CONDITION":
        holds = turns_done(function)
        if holds is None:
            raise ScenarioError(f"{where}: {function!r} is no condition, expected wrapped_condition__turn_idx_…")
        return ConditionEvent(**when, holds=holds)
    if kind not in ARE_ACTORS:
        raise ScenarioError(f"{where}: its event_type is {raw.get('event_type')!r}, expected {', '.join(ARE_ACTORS)}")
    app, args = _text(action, "app", where=where), _args(action, where, notes=notes)
    comparator = raw.get("event_time_comparator")
    if comparator is not None and str(comparator) not in ARE_TIMINGS:
        notes.add(f"event_time_comparator {comparator!r} is none of {', '.join(ARE_TIMINGS)} and left out", where)
    timing = ARE_TIMINGS.get(str(comparator), "")
    return PlannedCall(**when, app=app, action=function, args=args, by=ARE_ACTORS[kind], timing=timing)


def _when(raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Id, dependencies, delay and time: the time counts only without a delay."""
    after = raw.get("dependencies") or []
    if not isinstance(after, list) or not all(isinstance(one, str) for one in after):
        raise ScenarioError(f"{where}: dependencies is {after!r}, expected a list of event ids")
    delay, at = raw.get("event_relative_time"), raw.get("event_time")
    for key, seconds in (("event_relative_time", delay), ("event_time", at)):
        if isinstance(seconds, bool) or not (seconds is None or isinstance(seconds, NUMBER_TYPES)):
            raise ScenarioError(f"{where}: {key} is {seconds!r}, expected seconds or null")
    fields = {"id": raw["event_id"], "after": tuple(dict.fromkeys(after)), "delay": float(delay or 0.0)}
    if delay is None and at:
        fields["at"] = float(at)
    return fields


def _text(action: Mapping[str, Any], key: str, *, where: str) -> str:
    if not isinstance(action.get(key), str):
        raise ScenarioError(f"{where}: the {key} of its action is {action.get(key)!r}, expected a name")
    return str(action[key])


def _args(action: Mapping[str, Any], where: str, *, notes: ImportWarnings) -> dict[str, Any]:
    args: dict[str, Any] = {}
    arguments = action.get("args") or []
    if not isinstance(arguments, list):
        raise ScenarioError(
            f"{where}: args is {type(arguments).__name__}, expected a list of name, value and value_type"
        )
    for one in arguments:
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
            args[one["name"]] = decode_argument(one.get("value"), kind)
        except ValueError as error:
            raise ScenarioError(f"{where}: argument {one['name']!r} {error}") from error
    for name in action.get("empty") or ():
        args[str(name)] = ""
    return args


ARE_VERSION = "are_simulation_v1"
DEFAULT_DURATION_SECONDS = 1_000.0
"""Seconds of the world's clock of a scenario without a duration: ARE's default."""
TOP_LEVEL_FIELDS = (
    "metadata",
    "world_logs",
    "apps",
    "events",
    "completed_events",
    "version",
    "context",
    "augmentation",
)
DERIVED_FIELDS = ("id", "apps", "events", "start", "duration", "seed")
OWN_FIELDS = {name: hint for name, hint in get_type_hints(Scenario).items() if name not in DERIVED_FIELDS}
"""The fields of a scenario that ARE has none for: kept in `metadata.wanderlust`, which ARE ignores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedScenario:
    """An imported scenario, and what the scenario itself does not hold of the file."""

    scenario: Scenario
    warnings: tuple[str, ...] = ()
    """The parts that were left out, one line each."""
    augmentation: Mapping[str, Any] | None = None
    """Names for tools and material for distractors, as they stand there; `with_augmentation` makes noise of it."""


def import_scenario(source: str | bytes | Mapping[str, Any]) -> ImportedScenario:
    """The scenario in a file of ARE, or in a row of the data sets gaia2 and gaia2-cli; JSON, or what JSON gave.

    Unknown fields are left out and listed in `warnings`. Raises ScenarioError in one line with the event's
    id and what was expected, before anything runs: unknown apps and actions, arguments that do not fit, cycles,
    missing dependencies, placeholders without source. In `info`: `tags`, `hints`, and `are`, the rest of the
    metadata. `names` and `descriptions` are those of the file's `augmentation`, unless the scenario was written by us
    and has its own.
    """
    raw, notes = _unwrap_row(_parse_object(source, "the file")), ImportWarnings()
    if not raw.get("events"):
        has = "it has apps and no events: nothing would happen" if raw.get("apps") else "it has neither apps nor events"
        raise ScenarioError(f"the file is no scenario: {has}, expected events")
    notes.fields(raw, TOP_LEVEL_FIELDS, where="the file")
    if raw.get("version") != ARE_VERSION:
        notes.add(f"read as {ARE_VERSION}", f"version {raw.get('version')!r}")
    for key in ("completed_events", "world_logs", "context"):
        if raw.get(key):
            notes.add("what tells of a run is left out", key)
    metadata = _parse_object(raw.get("metadata") or {}, "metadata")
    definition = _parse_object(metadata.get("definition") or {}, "metadata.definition")
    events = [read_event(one, n, notes=notes) for n, one in enumerate(_parse_list(raw.get("events") or [], "events"))]
    apps, classes = _apps(_parse_list(raw.get("apps") or [], "apps"), notes)
    rest = {key: value for key, value in metadata.items() if key not in ("definition", "wanderlust") and value}
    rest["definition"] = {key: value for key, value in definition.items() if key not in KNOWN_DEFINITION and value}
    info = {
        "tags": definition.get("tags") or [],
        "hints": definition.get("hints") or [],
        "are": {**rest, "classes": classes},
    }
    augmentation = _parse_object(raw.get("augmentation") or {}, "augmentation")
    own = _own_fields(_parse_object(metadata.get("wanderlust") or {}, "metadata.wanderlust"), notes)
    scenario = Scenario(
        id=str(definition.get("scenario_id") or "imported"),
        apps=tuple(apps),
        events=tuple(events),
        start=_number(definition, "start_time", Scenario.start),
        duration=_duration(definition),
        seed=_seed(definition),
        **{"info": info, **_shown_tools(augmentation, apps, notes), **own},
    )
    try:
        scenario.plan  # noqa: B018 (making it is checking it)
    except ScenarioError as error:
        raise ScenarioError(_with_classes(str(error), _parse_list(raw.get("apps") or [], "apps"), apps)) from error
    return ImportedScenario(scenario=scenario, warnings=notes.lines(), augmentation=augmentation or None)


def _shown_tools(augmentation: Mapping[str, Any], apps: Sequence[App], notes: ImportWarnings) -> dict[str, Any]:
    """How the agent's tools are called and described, where the file says so."""
    tools = agent_actions(apps)
    return {
        "names": tool_names_of(augmentation, tools, notes.add),
        "descriptions": tool_descriptions_of(augmentation, tools, notes.add),
    }


def _own_fields(fields: Mapping[str, Any], notes: ImportWarnings) -> dict[str, Any]:
    notes.fields(fields, OWN_FIELDS, where="metadata.wanderlust")
    try:
        own = {key: msgspec.convert(fields[key], hint) for key, hint in OWN_FIELDS.items() if key in fields}
        Scenario(id="", apps=(), **own)
    except (msgspec.ValidationError, ScenarioError) as error:
        raise ScenarioError(f"metadata.wanderlust: {error}") from error
    return own


def _apps(raw: Iterable[Any], notes: ImportWarnings) -> tuple[list[App], dict[str, str]]:
    """The apps, with those that every scenario has, and the class that ARE says of each."""
    apps: list[App] = []
    classes: dict[str, str] = {}
    for one in raw:
        record = _parse_object(one, "one of the apps")
        name, kind = record.get("name"), record.get("class_name") or record.get("name")
        if not isinstance(name, str) or not isinstance(kind, str):
            raise ScenarioError(f"app {name!r}: expected a name and a class_name")
        notes.fields(record, ("name", "class_name", "app_state"), where=f"app {name!r}")
        if kind not in app_classes():
            notes.add("its class is not known, and it is left out", f"app {name!r} ({kind})")
            continue
        state, where = record.get("app_state") or {}, f"app {name!r} ({app_classes()[kind].__name__})"
        try:
            app = app_classes()[kind].from_are(name, _parse_object(state, f"the state of {where}"))
        except KeyError as missing:
            raise ScenarioError(f"{where}: its state lacks {missing}") from missing
        except (AttributeError, TypeError, ValueError, ToolError, UsageError) as error:
            raise ScenarioError(f"{where}: its state does not fit: {one_line(str(error), 300)}") from error
        notes.state(state, app.to_are(), app=f"app {name!r}")
        apps.append(app)
        classes[name] = kind
    for always, name in ((System, "SystemApp"), (UserInterface, "AgentUserInterface")):
        if not any(isinstance(app, always) for app in apps):
            apps.append(always(name))
            classes[name] = name
    return apps, classes


def _with_classes(error: str, raw: Iterable[Mapping[str, Any]], apps: Iterable[App]) -> str:
    """The same error; for an app that was left out, with its class."""
    there = {app.name for app in apps}
    for one in raw:
        if one.get("name") not in there and f"there is no app {one.get('name')!r};" in error:
            return f"{error}; its class {one.get('class_name')!r} is not known"
    return error


def _unwrap_row(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The scenario within a row of a data set; anything else as it is."""
    for key in ("data", "scenario"):
        if "events" not in raw and isinstance(raw.get(key), str | Mapping):
            return _parse_object(raw[key], key)
    return raw


def _parse_object(value: Any, what: str) -> Mapping[str, Any]:
    if isinstance(value, str | bytes):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ScenarioError(f"{what} is not JSON: {error}") from error
    if not isinstance(value, Mapping):
        raise ScenarioError(f"{what} is {type(value).__name__}, expected an object")
    return value


def _parse_list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ScenarioError(f"{what} is {type(value).__name__}, expected a list")
    return value


def _number(definition: Mapping[str, Any], key: str, default: float) -> float:
    value = definition.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ScenarioError(f"metadata.definition.{key} is {value!r}, expected a number")
    return float(value)


def _seed(definition: Mapping[str, Any]) -> int:
    number = _number(definition, "seed", 0.0)
    if not number.is_integer():
        raise ScenarioError(f"metadata.definition.seed is {number:g}, expected a whole number")
    return int(number)


def _duration(definition: Mapping[str, Any]) -> float:
    seconds = _number(definition, "duration", DEFAULT_DURATION_SECONDS)
    if seconds <= 0:
        raise ScenarioError(f"metadata.definition.duration is {seconds:g}, expected seconds above 0")
    return seconds


MAX_SCENARIO_BYTES = 256 * 1024 * 1024
"""Bytes of one file: a hundred times the size of Gaia2's."""


def read_scenario_bytes(path: Path) -> bytes:
    """The content of a file. Raises ScenarioError in one line when it is missing, a folder, or too large."""
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_SCENARIO_BYTES else b""
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read: {error.strerror}") from error
    if size > MAX_SCENARIO_BYTES:
        raise ScenarioError(f"{path} has {size:,} bytes, expected at most {MAX_SCENARIO_BYTES:,}")
    return data


def read_scenario(path: Path) -> ImportedScenario:
    """The scenario in a file. Raises ScenarioError in one line that names the file."""
    data = read_scenario_bytes(path)
    try:
        return import_scenario(data)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from error


ROW_SUFFIXES = (".jsonl", ".parquet")
"""Files with a row per scenario, as data sets come from a hub."""


def read_rows(path: Path) -> dict[str, ImportedScenario]:
    """The scenarios in the rows of a file (JSONL or Parquet), by place. Raises ScenarioError, which names the place."""
    scenarios = {}
    try:
        for place, row in numbered_rows(path):
            try:
                scenarios[place] = import_scenario(row)
            except ScenarioError as error:
                raise ScenarioError(f"{place}: {error}") from error
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read: {error.strerror}") from error
    return scenarios


def read_scenarios(folder: Path) -> dict[str, ImportedScenario]:
    """The scenarios of a folder, by file (`*.json`) or row (`*.jsonl`, `*.parquet`), in the order of the files' names.

    Raises ScenarioError for a folder without one, for the first that cannot be played, and for two of one id.
    """
    paths = sorted(path for path in folder.glob("*.*") if path.suffix in (".json", *ROW_SUFFIXES))
    if not paths:
        raise ScenarioError(f"{folder} has no files *.json, *.jsonl or *.parquet, expected scenarios of ARE")
    scenarios: dict[str, ImportedScenario] = {}
    for path in paths:
        scenarios |= read_rows(path) if path.suffix in ROW_SUFFIXES else {str(path): read_scenario(path)}
    first: dict[str, str] = {}
    for place, one in scenarios.items():
        if first.setdefault(one.scenario.id, place) != place:
            raise ScenarioError(f"{place}: its scenario {one.scenario.id!r} is in {first[one.scenario.id]} as well")
    return scenarios
