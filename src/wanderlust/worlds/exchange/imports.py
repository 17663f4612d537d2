"""Reading a scenario of ARE (`are_simulation_v1`), as Gaia2 has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

import msgspec

from wanderlust.core.errors import UsageError
from wanderlust.core.text import one_line
from wanderlust.tools.errors import ToolError
from wanderlust.worlds.app import App
from wanderlust.worlds.apps.system import System
from wanderlust.worlds.apps.user_interface import UserInterface
from wanderlust.worlds.events import ScenarioError
from wanderlust.worlds.exchange.events import read_event
from wanderlust.worlds.exchange.naming import names_of
from wanderlust.worlds.exchange.notes import Notes
from wanderlust.worlds.ready import app_classes
from wanderlust.worlds.scenario import Scenario

VERSION = "are_simulation_v1"
DURATION = 1_000.0
"""Seconds of a scenario that does not say: ARE's."""
TOP = (
    "metadata",
    "world_logs",
    "apps",
    "events",
    "completed_events",
    "version",
    "context",
    "augmentation",
)
KEPT = ("id", "apps", "events", "start", "duration", "seed")
OWN = {name: hint for name, hint in get_type_hints(Scenario).items() if name not in KEPT}
"""What our scenarios have and ARE's have not: in `metadata.wanderlust`, where ARE does not look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A scenario that was read, and what of the file it does not tell."""

    scenario: Scenario
    warnings: tuple[str, ...] = ()
    """What was not understood and left out, one line each."""
    augmentation: Mapping[str, Any] | None = None
    """Names for tools and material for distractors, as they stand there; the names are in the scenario as well."""


def import_scenario(source: str | bytes | Mapping[str, Any]) -> Imported:
    """The scenario in a file of ARE, or in a row of the data sets gaia2 and gaia2-cli; JSON, or what JSON gave.

    Fields that nobody knows are left out and told of in `warnings`. Raises ScenarioError in one line with the event's
    id and what was expected, before anything runs: unknown apps and actions, arguments that do not fit, cycles,
    missing dependencies, placeholders without source. In `info`: `tags`, `hints`, and `are`, the rest of the
    metadata. `names` are those of the file's `augmentation`, unless the scenario was written by us and has its own.
    """
    raw, notes = _unwrapped(_object(source, "the file")), Notes()
    if not raw.get("apps") and not raw.get("events"):
        raise ScenarioError("the file is no scenario: it has neither apps nor events")
    notes.fields(raw, TOP, where="the file")
    if raw.get("version") != VERSION:
        notes.add(f"read as {VERSION}", f"version {raw.get('version')!r}")
    for key in ("completed_events", "world_logs", "context"):
        if raw.get(key):
            notes.add("what tells of a run is left out", key)
    metadata = _object(raw.get("metadata") or {}, "metadata")
    definition = _object(metadata.get("definition") or {}, "metadata.definition")
    events = [read_event(one, n, notes=notes) for n, one in enumerate(_list(raw.get("events") or [], "events"))]
    apps, classes = _apps(_list(raw.get("apps") or [], "apps"), notes)
    info, augmentation = _info(definition, metadata, classes), _object(raw.get("augmentation") or {}, "augmentation")
    own = _own(_object(metadata.get("wanderlust") or {}, "metadata.wanderlust"), notes)
    scenario = Scenario(
        id=str(definition.get("scenario_id") or "imported"),
        apps=tuple(apps),
        events=tuple(events),
        start=_number(definition, "start_time", Scenario.start),
        duration=_number(definition, "duration", DURATION),
        seed=int(_number(definition, "seed", 0)),
        **{"info": info, "names": names_of(augmentation, apps, notes), **own},
    )
    try:
        scenario.plan  # noqa: B018 (making it is checking it)
    except ScenarioError as error:
        raise ScenarioError(_with_classes(str(error), _list(raw.get("apps") or [], "apps"), apps)) from error
    return Imported(scenario=scenario, warnings=notes.lines(), augmentation=augmentation or None)


def _info(definition: Mapping[str, Any], metadata: Mapping[str, Any], classes: Mapping[str, str]) -> dict[str, Any]:
    rest = {key: value for key, value in metadata.items() if key not in ("definition", "wanderlust") and value}
    kept = ("scenario_id", "seed", "duration", "start_time", "hints", "tags")
    rest["definition"] = {key: value for key, value in definition.items() if key not in kept and value}
    return {
        "tags": definition.get("tags") or [],
        "hints": definition.get("hints") or [],
        "are": {**rest, "classes": dict(classes)},
    }


def _own(given: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    notes.fields(given, OWN, where="metadata.wanderlust")
    try:
        return {key: msgspec.convert(given[key], hint) for key, hint in OWN.items() if key in given}
    except msgspec.ValidationError as error:
        raise ScenarioError(f"metadata.wanderlust: {error}") from error


def _apps(raw: Iterable[Any], notes: Notes) -> tuple[list[App], dict[str, str]]:
    """The apps, with those that every scenario has, and the class that ARE says of each."""
    apps: list[App] = []
    classes: dict[str, str] = {}
    for one in raw:
        told = _object(one, "one of the apps")
        name, kind = told.get("name"), told.get("class_name") or told.get("name")
        if not isinstance(name, str) or not isinstance(kind, str):
            raise ScenarioError(f"app {name!r}: expected a name and a class_name")
        notes.fields(told, ("name", "class_name", "app_state"), where=f"app {name!r}")
        if kind not in app_classes():
            notes.add("its class is not known, and it is left out", f"app {name!r} ({kind})")
            continue
        apps.append(_adopted(app_classes()[kind], name, state=told.get("app_state") or {}, notes=notes))
        classes[name] = kind
    for always, name in ((System, "SystemApp"), (UserInterface, "AgentUserInterface")):
        if not any(isinstance(app, always) for app in apps):
            apps.append(always(name))
            classes[name] = name
    return apps, classes


def _adopted(kind: type[App], name: str, *, state: Mapping[str, Any], notes: Notes) -> App:
    where = f"app {name!r} ({kind.__name__})"
    try:
        app = kind.adopt(name, _object(state, f"the state of {where}"))
    except KeyError as missing:
        raise ScenarioError(f"{where}: its state lacks {missing}") from missing
    except (AttributeError, TypeError, ValueError, ToolError, UsageError) as error:
        raise ScenarioError(f"{where}: its state does not fit: {one_line(str(error), 300)}") from error
    notes.state(state, app.offer(), app=f"app {name!r}")
    return app


def _with_classes(error: str, raw: Iterable[Mapping[str, Any]], apps: Iterable[App]) -> str:
    """The same error; for an app that was left out, with its class."""
    there = {app.name for app in apps}
    for one in raw:
        if one.get("name") not in there and f"there is no app {one.get('name')!r};" in error:
            return f"{error}; its class {one.get('class_name')!r} is not known"
    return error


def _unwrapped(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a row of a data set holds."""
    for key in ("data", "scenario"):
        if "events" not in raw and isinstance(raw.get(key), str | Mapping):
            return _object(raw[key], key)
    return raw


def _object(given: Any, what: str) -> Mapping[str, Any]:
    if isinstance(given, str | bytes):
        try:
            given = msgspec.json.decode(given)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ScenarioError(f"{what} is not JSON: {error}") from error
    if not isinstance(given, Mapping):
        raise ScenarioError(f"{what} is {type(given).__name__}, expected an object")
    return given


def _list(given: Any, what: str) -> list[Any]:
    if not isinstance(given, list):
        raise ScenarioError(f"{what} is {type(given).__name__}, expected a list")
    return given


def _number(definition: Mapping[str, Any], key: str, default: float) -> float:
    found = definition.get(key)
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ScenarioError(f"metadata.definition.{key} is {found!r}, expected a number")
    return float(found)
