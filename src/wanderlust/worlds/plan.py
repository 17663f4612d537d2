"""A scenario's events, checked before anything runs: what is due first, and what waits for what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, TypeAlias, TypeGuard

import msgspec

from wanderlust.core.text import one_line
from wanderlust.tools.errors import WrongArguments
from wanderlust.worlds.app import Action, App, argument_types
from wanderlust.worlds.events import Act, Condition, Event, ScenarioError, placeholders, source
from wanderlust.worlds.log import ENGINE

LATER = "later "
"""How the ids of acts begin that apps ask for while a world lives."""
Due: TypeAlias = tuple[float, int, Event, bool]
"""When, its number, what, and whether that is a condition's being given up.

What is due at the same time comes in the order of the numbers. A plain tuple, because there is one for every event.
"""


def due_at(event: Event, base: float) -> float:
    """When an event is due whose delay counts from `base`."""
    time = base + event.delay
    return time if event.at is None or event.at < time else event.at


def expects(event: Event) -> TypeGuard[Act]:
    """Whether it is the agent who has to do it."""
    return isinstance(event, Act) and event.by == "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Events that can be played on the apps they were checked against. Shared by every world that plays them."""

    events: Mapping[str, Event]
    """By id, in the order of the scenario."""
    children: Mapping[str, tuple[Event, ...]]
    """What waits for an event."""
    roots: tuple[Event, ...]
    """What waits for none."""
    needs: frozenset[str]
    """The apps that it acts on."""
    ready: Mapping[str, tuple[Action, Mapping[str, Any]]]
    """For the acts without placeholders, their action and the arguments as it wants them."""
    openings: dict[tuple[float, bool], tuple[Due, ...]] = field(default_factory=dict)
    """What is due at first, by the start and whether the oracle plays: made once for all worlds."""

    def opening(self, start: float, *, oracle: bool) -> tuple[Due, ...]:
        """The roots in a world that starts then, as they come due; an agent's acts only when the oracle plays."""
        found = self.openings.get((start, oracle))
        if found is None:
            played = [event for event in self.roots if oracle or not expects(event)]
            due = ((due_at(event, start), number, event, False) for number, event in enumerate(played))
            found = self.openings[start, oracle] = tuple(sorted(due, key=lambda entry: entry[:2]))
        return found

    @classmethod
    def of(cls, events: Iterable[Event], apps: Iterable[App]) -> Plan:
        """The plan. Raises ScenarioError in one line that names the event and what was expected."""
        known: dict[str, Event] = {}
        for event in events:
            if event.id in known:
                raise ScenarioError(f"event {event.id!r}: there are two with this id, and ids must tell them apart")
            if event.id.startswith(LATER):
                raise ScenarioError(f"event {event.id!r}: ids that begin with {LATER!r} are for what apps do later")
            known[event.id] = event
        named = _named(apps)
        children: dict[str, list[Event]] = {}
        for event in known.values():
            _timed(event)
            for parent in event.after:
                if parent not in known:
                    raise ScenarioError(f"event {event.id!r}: it comes after {parent!r}, and there is no such event")
                children.setdefault(parent, []).append(event)
        _refuse_cycles(known)
        ready = {}
        for event in known.values():
            if isinstance(event, Act) and (found := _arguments(event, known, named)) is not None:
                ready[event.id] = found
        return cls(
            events=known,
            children={parent: tuple(waiting) for parent, waiting in children.items()},
            roots=tuple(event for event in known.values() if not event.after),
            needs=frozenset(event.app for event in known.values() if isinstance(event, Act)),
            ready=ready,
        )


def action_of(apps: Mapping[str, App], app: str, action: str) -> Action:
    """An action by name. Raises ScenarioError when there is no such app or action, and says what there is."""
    if app not in apps:
        raise ScenarioError(f"there is no app {app!r}; there are: {', '.join(apps) or 'none'}")
    actions = apps[app].actions
    if action not in actions:
        raise ScenarioError(f"{app} has no action {action!r}; it has: {', '.join(actions) or 'none'}")
    return actions[action]


def _named(apps: Iterable[App]) -> dict[str, App]:
    named: dict[str, App] = {}
    for app in apps:
        if app.name in named or app.name == ENGINE:
            raise ScenarioError(f"the app {app.name!r}: there is another one, or the engine, of this name")
        named[app.name] = app
    return named


def _timed(event: Event) -> None:
    times = {"delay": event.delay, "at": event.at, "within": getattr(event, "within", None)}
    for name, seconds in times.items():
        if seconds is not None and not (isfinite(seconds) and seconds >= 0):
            raise ScenarioError(f"event {event.id!r}: {name} is {seconds}, expected seconds from 0 on")
    if isinstance(event, Condition) and not callable(event.holds):
        raise ScenarioError(f"event {event.id!r}: holds is {event.holds!r}, expected a function of the world")


def _refuse_cycles(events: Mapping[str, Event]) -> None:
    """Take away what waits for nothing until nothing can be; what is left waits for itself."""
    waits = {event.id: set(event.after) for event in events.values()}
    behind: dict[str, list[str]] = {}
    for event in events.values():
        for parent in set(event.after):
            behind.setdefault(parent, []).append(event.id)
    free = [name for name, parents in waits.items() if not parents]
    while free:
        done = free.pop()
        del waits[done]
        for child in behind.get(done, ()):
            waits[child].discard(done)
            if not waits[child]:
                free.append(child)
    if waits:
        raise ScenarioError(f"event {next(iter(waits))!r}: it waits for itself: {' < '.join(_cycle(waits))}")


def _cycle(waits: Mapping[str, set[str]]) -> list[str]:
    path, at = [], next(iter(waits))
    while at not in path:
        path.append(at)
        at = min(parent for parent in waits[at] if parent in waits)
    return [*path[path.index(at) :], at]


def _arguments(
    event: Act, known: Mapping[str, Event], apps: Mapping[str, App]
) -> tuple[Action, Mapping[str, Any]] | None:
    """The action and its arguments, read; None when they wait for results. ScenarioError names event and argument."""
    where = f"event {event.id!r}"
    try:
        action = action_of(apps, event.app, event.action)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from error
    if event.by == "agent" and "agent" not in action.scopes:
        raise ScenarioError(f"{where}: {event.app}.{event.action} is not an agent's action")
    if not _sources(event, known):
        try:
            return action, action.tool.read(event.args)
        except WrongArguments as error:
            raise ScenarioError(f"{where}: {event.app}: {error}") from error
    schema = action.tool.schema
    if wrong := set(schema.get("required", ())) - event.args.keys() or event.args.keys() - schema["properties"].keys():
        raise ScenarioError(f"{where}: {event.app}.{event.action} takes {_names(schema)}; look at {', '.join(wrong)}")
    types = argument_types(action.function)
    for name, value in event.args.items():
        if not _sources(event, known, value=value):
            _convert(f"{where}: {event.app}.{event.action}", name, value, hint=types[name])
    return None


def _convert(where: str, name: str, value: Any, *, hint: Any) -> None:
    try:
        msgspec.convert(value, hint, strict=True)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{where}: argument {name!r}: {one_line(str(error))}") from error


def _names(schema: Mapping[str, Any]) -> str:
    required = set(schema.get("required", ()))
    return ", ".join(name if name in required else f"[{name}]" for name in schema["properties"]) or "nothing"


def _sources(event: Act, known: Mapping[str, Event], *, value: Any = None) -> list[str]:
    """The events that the arguments (or one of them) take results from."""
    found = []
    for name, whole in placeholders(event.args if value is None else value):
        origin = source(name, known)
        if origin is None:
            if not whole:
                continue
            raise ScenarioError(f"event {event.id!r}: {{{{{name}}}}} has no source: there is no event {name!r}")
        if not _before(origin[0], event, known=known):
            raise ScenarioError(f"event {event.id!r}: {{{{{name}}}}} may not have happened: it must come after it")
        found.append(origin[0])
    return found


def _before(origin: str, event: Event, *, known: Mapping[str, Event]) -> bool:
    """Whether `event` waits for `origin`, directly or not."""
    seen, look = set(event.after), list(event.after)
    while look:
        if (at := look.pop()) == origin:
            return True
        new = set(known[at].after) - seen
        seen |= new
        look += new
    return False


NOTHING = Plan.of((), ())
"""The plan of a world in which nothing happens by itself."""
