"""The past of a world, made again from its log (`replay_log`), at every moment (`Replay`) with its changes (`changes`),
and worlds as JSON data (`snapshot`, `restore`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, TypeAlias

import msgspec

from wanderlust.errors import EnvironmentFailure, UsageError, WanderlustError, boundary, one_line
from wanderlust.tools.function import ToolError
from wanderlust_worlds.engine.app import App
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord
from wanderlust_worlds.engine.events import Plan, Schedule
from wanderlust_worlds.engine.log import ENGINE, Log, LogEntry, line_bytes
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.engine.world import Gate, Notice, World, inbox_notices, inbox_of

StatePath: TypeAlias = tuple[str | int, ...]


class StateChange(FrozenRecord):
    """One piece of an app's state that was added, removed or changed."""

    app: str
    path: StatePath
    """Keys and positions, from the app's state down."""
    kind: Literal["added", "removed", "changed"]
    before: Any = None
    after: Any = None


def changes(before: Mapping[str, App], after: Mapping[str, App]) -> list[StateChange]:
    """All changes from one moment's apps to another's, in the order of apps and their state.

    Applied in this order to what `App.state` gave before, they give what it gives after, the order of keys apart. Rows
    that both moments share are not looked into, so that it costs what has changed, and not what there is.
    """
    pieces: list[tuple[str, _Piece]] = []
    for name, app in after.items():
        for part in app.fields() if app is not before[name] else ():
            was, now = getattr(before[name], part), getattr(app, part)
            if isinstance(was, CowDict):
                pieces += ((name, piece) for piece in _mapping_changes((part,), was.rows(), now.rows()))
            elif was is not now:
                pieces += ((name, piece) for piece in _value_changes((part,), _plain_value(was), _plain_value(now)))
    return [
        StateChange(app=name, path=path, kind=kind, before=was, after=now) for name, (path, kind, was, now) in pieces
    ]


_Piece: TypeAlias = tuple[StatePath, Literal["added", "removed", "changed"], Any, Any]


def _mapping_changes(path: StatePath, was: Mapping[Any, Any], now: Mapping[Any, Any]) -> Iterator[_Piece]:
    """Yield the changes between two mappings, whose values may be records."""
    if was is now:
        return
    for key, value in was.items():
        if key not in now:
            yield (*path, key), "removed", _plain_value(value), None
    for key, value in now.items():
        if key not in was:
            yield (*path, key), "added", None, _plain_value(value)
        elif was[key] is not value:
            yield from _value_changes((*path, key), _plain_value(was[key]), _plain_value(value))


def _value_changes(path: StatePath, was: Any, now: Any) -> Iterator[_Piece]:
    """Yield the changes between two values of plain data."""
    if type(was) is type(now) and was == now:
        return
    if isinstance(was, dict) and isinstance(now, dict):
        yield from _mapping_changes(path, was, now)
    elif isinstance(was, list) and isinstance(now, list) and len(was) <= len(now):
        for place, (old, new) in enumerate(zip(was, now, strict=False)):
            yield from _value_changes((*path, place), old, new)
        for place in range(len(was), len(now)):
            yield (*path, place), "added", None, now[place]
    else:
        yield path, "changed", was, now


def _plain_value(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True)


def replay_log(scenario: Scenario, log: Iterable[LogEntry], seed: int = 0, *, oracle: bool = False) -> World:
    """The world that left this log, made again: what came from outside is done again, the rest follows by itself.

    Charges of time and what a gate decided come from the log. Raises UsageError at the first line that differs.
    """
    *_, world = replay_steps(scenario, list(log), seed, oracle=oracle)
    return world


def replay_steps(
    scenario: Scenario, lines: Sequence[LogEntry], seed: int = 0, *, oracle: bool = False
) -> Iterator[World]:
    """Yield the world of `replay_log` at its start, and after each input from outside.

    It is one world that moves on: branch it to keep a state. Raises as `replay_log` does.
    """
    world = scenario.world(seed, oracle=oracle, gate=_RecordedGate(lines))
    yield world
    while (at := len(world.log)) < len(lines):
        replay_line(world, lines[at])
        if len(world.log) == at:
            raise UsageError(f"line {at} of the log cannot be repeated: {_render_line(lines[at])}")
        for number in range(at, min(len(world.log), len(lines))):
            if line_bytes(world.log[number]) != line_bytes(lines[number]):
                difference = f"was {_render_line(lines[number])} and is {_render_line(world.log[number])}"
                raise UsageError(f"the replay differs from the log in line {number}: it {difference}")
        if len(world.log) > len(lines):
            raise UsageError(f"the replay goes on after the log's end: {_render_line(world.log[len(lines)])}")
        yield world


def replay_line(world: World, line: LogEntry) -> None:
    """Repeat the input from outside that left this line."""
    if line.app == ENGINE:
        actions: dict[str, Callable[..., Any]] = {
            "advance": world.advance,
            "wait": world.wait,
            "deliver": world.deliver,
            "fulfil": world.mark_done,
            "stop": world.stop,
            "decided": world.note_decision,
        }
        if line.action in actions:
            actions[line.action](**line.args)
        return
    try:
        world.call(line.app, line.action, line.args, by=line.by)
    except ToolError:
        return  # its line says so


def _render_line(line: LogEntry) -> str:
    return one_line(line_bytes(line).decode(), 300)


@dataclass(frozen=True, slots=True)
class _RecordedGate:
    """A gate that repeats the decisions of a log, and leaves to the world what it does by itself."""

    lines: Sequence[LogEntry]

    def __call__(self, world: World, line: LogEntry) -> None:
        while len(world.log) < len(self.lines):
            decided = self.lines[len(world.log)]
            if not _is_gate_decision(world, decided):
                return
            before = len(world.log)
            replay_line(world, decided)
            if len(world.log) == before:
                return


def _is_gate_decision(world: World, line: LogEntry) -> bool:
    """Whether a gate wrote this line: in the moment of the action, before time moves on to the world's own end."""
    if line.app != ENGINE or line.event is not None or line.time != world.now:
        return False
    return line.action == "fulfil" or (line.action == "stop" and world.now < world.end)


class Replay:
    """A log, and the world that left it at every moment. A moment is a number of lines: 0 is before anything happened.

    The log is replayed once, and a branch of the world is kept wherever something came from outside; what lies between
    two of these is played again when it is asked for. A log that another scenario or an older app left is known as far
    as it can be replayed (`last_moment`), and `problem` says in one line why not further.
    """

    def __init__(self, scenario: Scenario, lines: Sequence[LogEntry], seed: int = 0):
        self.lines = list(lines)
        self.problem = ""
        self._branches: list[World] = []
        try:
            with boundary(EnvironmentFailure):  # a log may come from another program
                for world in replay_steps(scenario, self.lines, seed):
                    self._branches.append(world.branch())
        except WanderlustError as error:
            self.problem = str(error)
        self._ends = [len(world.log) for world in self._branches]

    @property
    def last_moment(self) -> int:
        """The last moment that can be shown."""
        return self._ends[-1]

    def world(self, moment: int) -> World:
        """A world of one's own, to look at: its apps are as they were at that moment, also where it was not at rest."""
        if not 0 <= moment <= len(self.lines):
            raise UsageError(f"the log has {len(self.lines)} lines: there is no moment {moment}")
        if moment > self.last_moment:
            raise UsageError(f"this world can be shown up to line {self.last_moment} only: {self.problem}")
        at = bisect_right(self._ends, moment) - 1
        world = self._branches[at].branch()
        if self._ends[at] < moment:
            world.log.append = _StopAt(world, moment)
            with suppress(_MomentReached):
                replay_line(world, self.lines[self._ends[at]])
        return world

    def apps(self, moment: int) -> Mapping[str, App]:
        """The apps as they were at that moment."""
        return self.world(moment).apps

    def changes(self, before: int, after: int) -> list[StateChange]:
        """The changes between two moments, in either order."""
        return changes(self.apps(before), self.apps(after))

    def changes_per_line(self) -> Iterator[list[StateChange]]:
        """Yield the changes of each line in order, up to `last_moment`; takes as long as one replay."""
        for world, start in zip(self._branches[:-1], self._ends, strict=False):
            twin = world.branch()
            before: Mapping[str, App] = dict(twin.apps)
            watch = _StateRecorder(twin)
            replay_line(twin, self.lines[start])
            for after in watch.states:
                yield changes(before, after)
                before = after


class _MomentReached(Exception):
    """Ends a replay at the moment that was asked for."""


class _StateRecorder:
    """Records the apps after every line from now on. The world goes on with twins of the recorded ones."""

    def __init__(self, world: World):
        self.states: list[Mapping[str, App]] = []
        self._world, self._append = world, world.log.append
        world.log.append = self

    def __call__(self, line: LogEntry) -> None:
        self._append(line)
        apps = self._world._apps
        self.states.append(dict(apps))
        apps.update({name: app.bound_to(self._world) for name, app in apps.items() if app.context is self._world})


class _StopAt:
    """Appends lines up to a moment, and then raises _MomentReached."""

    def __init__(self, world: World, moment: int):
        self.log, self.moment, self._append = world.log, moment, world.log.append

    def __call__(self, line: LogEntry) -> None:
        self._append(line)
        if len(self.log) >= self.moment:
            raise _MomentReached


def snapshot(world: World) -> dict[str, Any]:
    """Everything that the world's future depends on, as JSON data: apps, clock, queue, random streams, log.

    The events themselves are in the plan, which is code as well as data, and is not in it.
    """
    return {
        "now": world.now,
        "end": None if world.end == inf else world.end,
        "seed": world.seed,
        "rank": world._rank,
        "stopped": world.stopped,
        "most_events": world.max_events,
        "failures": world.failures,
        "counts": world._counts.copy(),
        "inbox": msgspec.to_builtins(inbox_notices(world._inbox)),
        "schedule": world._schedule.state(),
        "apps": {name: app.state() for name, app in world.apps.items()},
        "log": msgspec.to_builtins(list(world.log)),
    }


def restore(
    state: Mapping[str, Any], apps: Iterable[App], plan: Plan | None = None, *, gate: Gate | None = None
) -> World:
    """The world that `snapshot` saved. `apps` give the class of each app; `plan` is the one it was playing.

    Raises UsageError when they are not those of the snapshot.
    """
    kinds = {app.name: type(app) for app in apps}
    if kinds.keys() != state["apps"].keys():
        raise UsageError(f"the snapshot has the apps {', '.join(state['apps'])}, and not {', '.join(kinds)}")
    world = World([kinds[name].load(name, saved) for name, saved in state["apps"].items()], plan, gate=gate)
    try:
        world._schedule = Schedule.load(world.plan, state["schedule"], world)
    except KeyError as unknown:
        raise UsageError(f"the snapshot was made with another plan: this one has no event {unknown}") from unknown
    world.now, world.end, world.seed = state["now"], inf if state["end"] is None else state["end"], state["seed"]
    world.stopped, world.max_events, world._rank = state["stopped"], state["most_events"], state["rank"]
    world.failures = state["failures"]
    world._counts = dict(state["counts"])
    world._inbox = inbox_of(msgspec.convert(state["inbox"], tuple[Notice, ...]))
    world.log = Log(msgspec.convert(state["log"], list[LogEntry]))
    return world
