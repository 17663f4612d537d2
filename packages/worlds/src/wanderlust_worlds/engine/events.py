"""Events of a scenario (they refer to each other by id), the plan that checks them, and the schedule of one world.

A `Plan` is checked before anything runs and shared by all worlds that play it. A `Schedule` is one world's progress:
the plan's opening, a heap of the events released since, and the counts of what still waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from math import inf, isfinite
from typing import Any, ClassVar, Literal, TypeAlias, TypeGuard, TypeVar

import msgspec

from wanderlust.errors import UsageError, one_line
from wanderlust.tools.function import WrongArguments
from wanderlust_worlds.engine.app import App, AppAction, argument_types
from wanderlust_worlds.engine.log import ENGINE, Actor

Predicate: TypeAlias = Callable[[Any], bool]
"""A condition on the `World` that it is called with. It must change nothing, and depend on the world alone."""


DISTRACTOR_MARK = "env_expansion"
"""In the ids of events that are noise, which ARE's judge does not count: its own mark."""
Timing: TypeAlias = Literal["", "about", "by", "from"]
"""Whether an agent's act must be done about when it is due, by then, or from then on. Empty: `PlannedCall.timing`."""


class ScenarioError(UsageError):
    """A scenario that cannot be played as it stands; the text names the event and what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event that is due `delay` seconds after the last of `after`, or at `at` where that is later.

    Without `after`, the delay counts from the start of the world. Events that are due at the same time happen in the
    order in which they became due.
    """

    kind: ClassVar[str] = "event"
    """Its word in the log, and in the names of events that are given none."""
    id: str
    after: tuple[str, ...] = ()
    """Ids of the events that must have happened before."""
    delay: float = 0.0
    """Seconds of the world's clock."""
    at: float | None = None
    """A time of the world's clock before which it does not happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall(Event):
    """A use of an action. An agent's acts are the oracle: only oracle mode plays them."""

    kind: ClassVar[str] = "act"
    app: str
    action: str
    args: Mapping[str, Any] = field(default_factory=dict)
    """Plain data. `"{{id}}"` stands for the result of the event `id`, `"{{id.key}}"` for a part of it.

    Within a longer text they are replaced by text; there, what names no event is left as it is.
    """
    by: Actor = "env"
    timing: Timing = ""
    """For an agent's act, how verification reads its time; empty is `about` where `at` or a longer delay is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionEvent(Event):
    """Happens at the first change of the world, from when it is due, after which `holds` is true.

    After `within` seconds it is given up, and what comes after it never happens. Time alone is no change: use `at`.
    """

    kind: ClassVar[str] = "condition"
    holds: Predicate
    within: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone(ConditionEvent):
    """A condition that must come true, for verification to read: after `within` seconds the log says it was missed."""

    kind: ClassVar[str] = "milestone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Minefield(ConditionEvent):
    """A condition that must not come true (for `within` seconds): if it does, the log says so and the world stops."""

    kind: ClassVar[str] = "minefield"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopEvent(Event):
    """The world ends."""

    kind: ClassVar[str] = "stop"
    reason: str = "stop"


_WHOLE = re.compile(r"\{\{([^{}]+)\}\}")


def result_ref(event: str, *path: str) -> str:
    """The placeholder for an event's result, or for a part of it."""
    return "{{" + ".".join((event, *path)) + "}}"


def event_id_of(reference: str) -> str:
    """The id in what `result_ref` made or in what is one already."""
    match = _WHOLE.fullmatch(reference)
    return match[1] if match else reference


def placeholders(value: Any) -> Iterator[tuple[str, bool]]:
    """Yield the name in each placeholder of plain data, in order, and whether it is a whole text."""
    if isinstance(value, str):
        if "{{" in value:
            yield from ((match[1], match[0] == value) for match in _WHOLE.finditer(value))
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from placeholders(part)
    elif isinstance(value, Sequence):
        for part in value:
            yield from placeholders(part)


def fill_placeholders(value: Any, result: Callable[[str], Any]) -> Any:
    """Plain data with `result(name)` in the place of each placeholder: as it is, or as text within a longer text."""
    if isinstance(value, str):
        if "{{" not in value:
            return value
        whole = _WHOLE.fullmatch(value)
        return result(whole[1]) if whole else _WHOLE.sub(lambda found: str(result(found[1])), value)
    if isinstance(value, Mapping):
        return {key: fill_placeholders(part, result) for key, part in value.items()}
    if isinstance(value, Sequence):
        return [fill_placeholders(part, result) for part in value]
    return value


def resolve_placeholder(name: str, events: Mapping[str, Any]) -> tuple[str, tuple[str, ...]] | None:
    """The event and the path that a placeholder names: the longest id that is known; None when there is none."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        if (candidate := ".".join(parts[:cut])) in events:
            return candidate, tuple(parts[cut:])
    return None


def result_part(result: Any, path: Sequence[str]) -> Any:
    """The part of a result that a path names: keys, fields of records, positions. Raises LookupError without one."""
    for key in path:
        if isinstance(result, Mapping):
            result = result[key]
        elif isinstance(result, Sequence) and not isinstance(result, str):
            result = result[int(key)]
        elif hasattr(result, "__struct_fields__") and key in result.__struct_fields__:
            result = getattr(result, key)
        else:
            raise LookupError(f"there is no {key!r} in it")
    return result


LATER_PREFIX = "later "
"""Prefix of the ids of acts that apps plan with `later`."""
DueEntry: TypeAlias = tuple[float, int, Event, bool]
"""Time, number, event, and whether a condition's `within` has passed.

Events due at the same time come in the order of the numbers. A plain tuple, because there is one for every event.
"""


def due_time(event: Event, base: float) -> float:
    """The time of an event whose delay counts from `base`."""
    time = base + event.delay
    return time if event.at is None or event.at < time else event.at


def is_agent_call(event: Event) -> TypeGuard[PlannedCall]:
    """Whether the event is the agent's to do."""
    return isinstance(event, PlannedCall) and event.by == "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Events that can be played on the apps they were checked against. Shared by every world that plays them."""

    events: Mapping[str, Event]
    """By id, in the order of the scenario."""
    children: Mapping[str, tuple[Event, ...]]
    """The events that wait for an event."""
    roots: tuple[Event, ...]
    """The events that wait for none."""
    needs: frozenset[str]
    """The names of the apps that it acts on."""
    ready: Mapping[str, tuple[AppAction, Mapping[str, Any]]]
    """For the acts without placeholders, their action and the arguments as it wants them."""
    openings: dict[tuple[float, bool], tuple[DueEntry, ...]] = field(default_factory=dict)
    """The first due entries, by the start and whether the oracle plays: made once for all worlds."""

    def opening(self, start: float, *, oracle: bool) -> tuple[DueEntry, ...]:
        """The roots in a world that starts then, as they come due; an agent's acts only when the oracle plays."""
        entries = self.openings.get((start, oracle))
        if entries is None:
            played = [event for event in self.roots if oracle or not is_agent_call(event)]
            due = ((due_time(event, start), number, event, False) for number, event in enumerate(played))
            entries = self.openings[start, oracle] = tuple(sorted(due, key=lambda entry: entry[:2]))
        return entries

    @classmethod
    def of(cls, events: Iterable[Event], apps: Iterable[App]) -> Plan:
        """The plan. Raises ScenarioError in one line that names the event and what was expected."""
        events_by_id: dict[str, Event] = {}
        for event in events:
            if event.id in events_by_id:
                raise ScenarioError(f"event {event.id!r}: there are two with this id, and ids must tell them apart")
            if event.id.startswith(LATER_PREFIX):
                raise ScenarioError(
                    f"event {event.id!r}: ids that begin with {LATER_PREFIX!r} are for what apps do later"
                )
            events_by_id[event.id] = event
        named = _apps_by_name(apps)
        children: dict[str, list[Event]] = {}
        for event in events_by_id.values():
            _check_times(event)
            for parent in event.after:
                if parent not in events_by_id:
                    raise ScenarioError(f"event {event.id!r}: it comes after {parent!r}, and there is no such event")
                children.setdefault(parent, []).append(event)
        _refuse_cycles(events_by_id)
        ready = {}
        for event in events_by_id.values():
            if isinstance(event, PlannedCall) and (arguments := _arguments(event, events_by_id, named)) is not None:
                ready[event.id] = arguments
        return cls(
            events=events_by_id,
            children={parent: tuple(waiting) for parent, waiting in children.items()},
            roots=tuple(event for event in events_by_id.values() if not event.after),
            needs=frozenset(event.app for event in events_by_id.values() if isinstance(event, PlannedCall)),
            ready=ready,
        )


def action_of(apps: Mapping[str, App], app: str, action: str) -> AppAction:
    """An action by name. Raises ScenarioError when there is no such app or action, and says what there is."""
    if app not in apps:
        raise ScenarioError(f"there is no app {app!r}; there are: {', '.join(apps) or 'none'}")
    actions = apps[app].actions
    if action not in actions:
        raise ScenarioError(f"{app} has no action {action!r}; it has: {', '.join(actions) or 'none'}")
    return actions[action]


def _apps_by_name(apps: Iterable[App]) -> dict[str, App]:
    named: dict[str, App] = {}
    for app in apps:
        if app.name in named or app.name == ENGINE:
            raise ScenarioError(f"the app {app.name!r}: there is another one, or the engine, of this name")
        named[app.name] = app
    return named


def _check_times(event: Event) -> None:
    times = {"delay": event.delay, "at": event.at, "within": getattr(event, "within", None)}
    for name, seconds in times.items():
        if seconds is not None and not (isfinite(seconds) and seconds >= 0):
            raise ScenarioError(f"event {event.id!r}: {name} is {seconds}, expected seconds from 0 on")
    if isinstance(event, ConditionEvent) and not callable(event.holds):
        raise ScenarioError(f"event {event.id!r}: holds is {event.holds!r}, expected a function of the world")


def _refuse_cycles(events: Mapping[str, Event]) -> None:
    """Raise ScenarioError for events that wait for themselves."""
    try:
        TopologicalSorter({event.id: event.after for event in events.values()}).prepare()
    except CycleError as error:
        cycle = error.args[1][:0:-1]  # from each event to one that it waits for
        first = next(name for name in events if name in cycle)
        at = cycle.index(first)
        path = " < ".join([*cycle[at:], *cycle[:at], first])
        raise ScenarioError(f"event {first!r}: it waits for itself: {path}") from None


def _arguments(
    event: PlannedCall, events: Mapping[str, Event], apps: Mapping[str, App]
) -> tuple[AppAction, Mapping[str, Any]] | None:
    """The action and its arguments, read; None when they wait for results. ScenarioError names event and argument."""
    where = f"event {event.id!r}"
    try:
        action = action_of(apps, event.app, event.action)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from error
    if event.by == "agent" and "agent" not in action.scopes:
        raise ScenarioError(f"{where}: {event.app}.{event.action} is not an agent's action")
    if not _sources(event, events):
        try:
            return action, action.tool.parse_arguments(event.args)
        except WrongArguments as error:
            raise ScenarioError(f"{where}: {event.app}: {error}") from error
    schema = action.tool.schema
    required = set(schema.get("required", ()))
    if wrong := required - event.args.keys() or event.args.keys() - schema["properties"].keys():
        takes = ", ".join(name if name in required else f"[{name}]" for name in schema["properties"]) or "nothing"
        raise ScenarioError(f"{where}: {event.app}.{event.action} takes {takes}; look at {', '.join(wrong)}")
    types = argument_types(action.function)
    for name, value in event.args.items():
        if not _sources(event, events, value=value):
            try:
                msgspec.convert(value, types[name], strict=True)
            except msgspec.ValidationError as error:
                text = f"{where}: {event.app}.{event.action}: argument {name!r}: {one_line(str(error))}"
                raise ScenarioError(text) from error
    return None


Node = TypeVar("Node")


def reachable(first: Iterable[Node], neighbours: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """Nodes of a graph that a way leads to from one of the first ones, and these."""
    found, look = set(first), list(first)
    while look:
        new = set(neighbours(look.pop())) - found
        found |= new
        look += new
    return found


def _sources(event: PlannedCall, events: Mapping[str, Event], *, value: Any = None) -> list[str]:
    """The events that the arguments (or one of them) take results from."""
    sources = []
    for name, whole in placeholders(event.args if value is None else value):
        origin = resolve_placeholder(name, events)
        if origin is None:
            if not whole:
                continue
            raise ScenarioError(f"event {event.id!r}: {{{{{name}}}}} has no source: there is no event {name!r}")
        if origin[0] not in reachable(event.after, lambda before: events[before].after):
            raise ScenarioError(f"event {event.id!r}: {{{{{name}}}}} may not have happened: it must come after it")
        sources.append(origin[0])
    return sources


EMPTY_PLAN = Plan.of((), ())
"""The plan of a world in which nothing happens by itself."""


class Schedule:
    """One world's way through a plan. The opening is shared by all worlds of a plan: each only counts how far it is."""

    __slots__ = ("armed", "at", "done", "expected", "heap", "missing", "number", "opening", "oracle", "owner", "plan")

    def __init__(self, plan: Plan, *, start: float, oracle: bool, owner: object):
        self.plan, self.oracle, self.owner = plan, oracle, owner
        self.opening, self.at = plan.opening(start, oracle=oracle), 0
        self.heap: list[DueEntry] = []
        self.done: dict[str, int] = {}
        """The line of the log in which an event happened."""
        self.missing: dict[str, int] = {}
        """Number of parents yet to happen, for events of which one parent has happened."""
        self.armed: tuple[ConditionEvent, ...] = ()
        """Conditions that are waiting to come true."""
        self.expected = () if oracle else tuple(filter(is_agent_call, plan.roots))
        """The acts expected of the agent now; empty when the oracle plays."""
        self.number = len(self.opening)

    def branch(self, owner: object) -> Schedule:
        """A copy of its own for `owner`."""
        twin = Schedule.__new__(Schedule)
        twin.plan, twin.oracle, twin.owner, twin.number = self.plan, self.oracle, owner, self.number
        twin.opening, twin.at = self.opening, self.at
        twin.heap, twin.done, twin.missing = self.heap.copy(), self.done.copy(), self.missing.copy()
        twin.armed, twin.expected = self.armed, self.expected
        return twin

    def push(self, event: Event, time: float, *, gives_up: bool = False) -> None:
        """Add an event at a time."""
        self.number += 1
        heappush(self.heap, (time, self.number, event, gives_up))

    def take(self, last: float) -> DueEntry | None:
        """Take out the first entry if it is due by `last`; None otherwise."""
        heap, opening, at = self.heap, self.opening, self.at
        if at < len(opening) and not (heap and heap[0] < opening[at]):
            if opening[at][0] > last:
                return None
            self.at = at + 1
            return opening[at]
        return heappop(heap) if heap and heap[0][0] <= last else None

    @property
    def next_time(self) -> float:
        """The time of the first entry; infinite without one."""
        soonest = self.heap[0][0] if self.heap else inf
        return min(soonest, self.opening[self.at][0]) if self.at < len(self.opening) else soonest

    @property
    def pending(self) -> int:
        """Number of entries."""
        return len(self.heap) + len(self.opening) - self.at

    def happened(self, event: str, line: int, *, now: float) -> None:
        """Record that an event has happened, and release what waited for it alone."""
        self.done[event] = line
        for child in self.plan.children.get(event, ()):
            parents = len(child.after)
            if parents > 1:
                parents = self.missing.get(child.id, parents) - 1
                if parents:
                    self.missing[child.id] = parents
                    continue
                del self.missing[child.id]
            if not self.oracle and is_agent_call(child):
                self.expected = (*self.expected, child)
            else:
                self.push(child, due_time(child, now))

    def arm(self, event: ConditionEvent, now: float) -> None:
        """Begin to watch a condition."""
        self.armed = (*self.armed, event)
        if event.within is not None:
            self.push(event, now + event.within, gives_up=True)

    def disarm(self, event: Event) -> None:
        """Watch it no longer."""
        self.armed = tuple(other for other in self.armed if other is not event)

    def no_longer_expect(self, event: PlannedCall) -> None:
        """Expect it no longer."""
        self.expected = tuple(other for other in self.expected if other is not event)

    def state(self) -> dict[str, Any]:
        """The schedule as plain data; events of the plan by their ids."""
        planned, entries = self.plan.events, sorted([*self.opening[self.at :], *self.heap], key=lambda due: due[:2])
        return {
            "due": [
                [time, number, event.id if planned.get(event.id) is event else msgspec.to_builtins(event), over]
                for time, number, event, over in entries
            ],
            "done": self.done.copy(),
            "missing": self.missing.copy(),
            "armed": [event.id for event in self.armed],
            "expected": [event.id for event in self.expected],
            "number": self.number,
            "oracle": self.oracle,
        }

    @classmethod
    def load(cls, plan: Plan, state: Mapping[str, Any], owner: object) -> Schedule:
        """The schedule that `state` saved."""
        schedule = cls.__new__(cls)
        schedule.plan, schedule.oracle, schedule.owner, schedule.number = plan, state["oracle"], owner, state["number"]
        events: Mapping[str, Any] = plan.events
        schedule.heap, schedule.at = [], 0
        schedule.opening = tuple(
            (time, number, events[event] if isinstance(event, str) else msgspec.convert(event, PlannedCall), over)
            for time, number, event, over in state["due"]
        )
        schedule.done, schedule.missing = dict(state["done"]), dict(state["missing"])
        schedule.armed = tuple(events[name] for name in state["armed"])
        schedule.expected = tuple(events[name] for name in state["expected"])
        return schedule
