"""What happens by itself: events as they come due, conditions as they come true, time as it passes."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from wanderlust.core.errors import EnvironmentFailure, UsageError
from wanderlust.core.text import one_line
from wanderlust.tools.errors import ToolError, WrongArguments
from wanderlust.worlds.app import Action, App
from wanderlust.worlds.events import Act, Condition, Event, Milestone, Minefield, Stop, filled, part_of, ref, source
from wanderlust.worlds.log import ENGINE, Actor, Happened, Log
from wanderlust.worlds.schedule import Schedule
from wanderlust.worlds.table import Record

if TYPE_CHECKING:
    from wanderlust.worlds.world import World

A = TypeVar("A", bound=App)
MOST_EVENTS = 1_000_000
"""Events that may come due in one world: what schedules itself without end must not run for ever."""
LONGEST_ERROR = 500


class Notice(Record):
    """Something that the agent is told."""

    time: float
    app: str
    text: str
    by: Actor = "env"


class RunawaySchedule(EnvironmentFailure):
    """More events came due than a world may have."""


class Flow:
    """The half of a world that nobody calls: one loop over what is due."""

    __slots__ = (
        "_apps",
        "_counts",
        "_inbox",
        "_rank",
        "_rest",
        "_runs",
        "_schedule",
        "end",
        "failures",
        "gate",
        "log",
        "most_events",
        "now",
        "seed",
        "stopped",
    )
    _apps: dict[str, App]
    _counts: dict[str, int]
    _inbox: tuple[Notice, ...]
    _rank: int
    _runs: bool
    _schedule: Schedule
    end: float
    log: Log
    most_events: int
    now: float
    seed: int | str
    stopped: str
    """Why the world has ended; empty while it goes on."""

    def _tell(self, notice: Notice) -> None:
        """Have the agent told, before its next action."""
        self._inbox = (*self._inbox, notice)

    def stop(self, reason: str) -> None:
        """End the world: time stands still from now on."""
        if not self.stopped:
            self._write("world", ENGINE, "stop", args={"reason": reason})
            self.stopped = reason

    def decided(self, turn: int, decision: str, text: str) -> None:
        """Note what was thought of a finished turn: a line of the log, and nothing else."""
        self._write("world", ENGINE, "decided", args={"turn": turn, "decision": decision, "text": text})

    def new_id(self, kind: str) -> str:
        """The next id of this kind: 32 hexadecimal digits that follow from the seed."""
        number = self._counts[kind] = self._counts.get(kind, 0) + 1
        return blake2b(f"{self.seed}/{kind}/{number}".encode(), digest_size=16).hexdigest()

    def draw(self, stream: str) -> Random:
        """A generator for the next draw of a stream; streams do not disturb each other."""
        number = self._counts[f"draw {stream}"] = self._counts.get(f"draw {stream}", 0) + 1
        return Random(f"{self.seed}/draw {stream}/{number}")

    def _use(
        self, action: Action, app: str, args: Mapping[str, Any], *, by: Actor, event: str | None = None
    ) -> Happened:
        found = self._apps[app]
        if found.place is not self:  # type: ignore[comparison-overlap]  # every flow is a world
            found = self._own(found)
        result = error = None
        try:
            result = action.function(found, **args)
        except Exception as raised:  # noqa: BLE001 (the tool call of a world: what an app raises is data)
            error = _told(raised)
        line = Happened(self.now, by, app, action.name, args, result, error, event, action.writes)
        self.log.append(line)
        if action.rank <= self._rank and by != "agent" and error is None:
            self._tell(Notice(time=self.now, app=app, text=action.notice(args), by=by))
        if self._schedule.armed:
            self._check()
        return line

    def _write(self, by: Actor, app: str, action: str, **rest: Any) -> None:
        self.log.append(Happened(self.now, by, app, action, **rest))

    def _own(self, app: A) -> A:
        mine = self._apps[app.name] = app.bound(cast("World", self))
        return mine

    def _sleep(self, seconds: float) -> None:
        if self._inbox:
            return
        until = self.now + seconds
        self._run(until, wakes=True)
        if not self._inbox and not self.stopped and self.now == until < inf:
            self._tell(Notice(time=self.now, app=ENGINE, text=f"{seconds:g} seconds went by, nothing came", by="world"))

    def _run(self, until: float, *, wakes: bool = False) -> None:
        """All that is due until then; when it `wakes`, only until there is a notice and the moment is over."""
        last = min(until, self.end)
        if self._runs:
            raise UsageError("time cannot be moved by what happens in it")
        self._runs = True
        try:
            self._drain(self._moving(), last, wakes=wakes)
        finally:
            self._runs = False
        if self.stopped or (wakes and self._inbox):
            return
        self.now = max(self.now, last) if last < inf else self.now
        if self.now >= self.end:
            self.stop("duration")

    def _drain(self, schedule: Schedule, last: float, *, wakes: bool) -> None:
        log, ready = self.log, schedule.plan.ready
        while not self.stopped and (due := schedule.take(last)) is not None:
            self.now, _, event, gives_up = due
            if schedule.number > self.most_events:
                raise RunawaySchedule(f"event {event.id!r}: more than {self.most_events:,} came due by {self.now}")
            if type(event) is not Act:
                self._turn(schedule, event, gives_up=gives_up)
            elif (found := ready.get(event.id)) is None:
                self._use_filled(event)
                schedule.happened(event.id, len(log) - 1, now=self.now)
            else:
                self._use(found[0], event.app, found[1], by=event.by, event=event.id)
                schedule.happened(event.id, len(log) - 1, now=self.now)
            if wakes and self._inbox:
                last = self.now  # the rest of this moment, and no more

    def _turn(self, schedule: Schedule, event: Event, *, gives_up: bool) -> None:
        """An event that is no act."""
        if gives_up:
            self._give_up(schedule, event)
        elif isinstance(event, Condition):
            schedule.arm(event, self.now)
            self._check()
        elif isinstance(event, Stop):
            self._note(event, result=event.reason)
            self.stop(event.reason)

    def _use_filled(self, event: Act) -> None:
        """An act whose arguments are known only now: they are other events' results, or an app said `later`."""
        action = self._apps[event.app].actions[event.action]
        planned = (
            event.id in self._schedule.plan.events
        )  # what an app says may be an agent's text: no placeholders there
        try:
            args = action.tool.read(filled(event.args, self._result) if planned else event.args)
        except (WrongArguments, LookupError, ValueError) as error:
            self._write(event.by, event.app, event.action, args=event.args, error=_told(error), event=event.id)
            return
        self._use(action, event.app, args, by=event.by, event=event.id)

    def _result(self, name: str) -> Any:
        found = source(name, self._schedule.done)
        if found is None:
            return ref(name)
        return msgspec.to_builtins(part_of(self.log[self._schedule.done[found[0]]].result, found[1]))

    def _check(self) -> None:
        """See which conditions have come true; those that these let go are seen to when they are due."""
        for event in self._schedule.armed:
            if event in self._schedule.armed and event.holds(cast("World", self)):
                schedule = self._moving()
                schedule.disarm(event)
                if isinstance(event, Minefield):
                    self._note(event, result=False, error="stepped on a minefield")
                    self.stop(f"minefield {event.id}")
                else:
                    self._note(event, result=True)

    def _give_up(self, schedule: Schedule, event: Event) -> None:
        if event in schedule.armed:
            schedule.disarm(event)
            if isinstance(event, Minefield):
                self._note(event, result=True)
            else:
                missed = "missed" if isinstance(event, Milestone) else "given up"
                self._write("world", ENGINE, type(event).__name__.lower(), args={}, error=missed, event=event.id)

    def _note(self, event: Event, *, result: Any, error: str | None = None) -> None:
        kind = type(event).__name__.lower()
        self._write("world", ENGINE, kind, args={}, result=result, error=error, event=event.id)
        self._moving().happened(event.id, len(self.log) - 1, now=self.now)

    def _moving(self) -> Schedule:
        """The schedule, this world's own."""
        if self._schedule.owner is not self:
            self._schedule = self._schedule.branch(self)
        return self._schedule


def _told(error: Exception) -> str:
    """An error as the agent reads it: an app's own words as they are, anything else with its kind."""
    own = isinstance(error, ToolError | ValueError) and str(error)
    return one_line(str(error) if own else f"{type(error).__name__}: {error}", LONGEST_ERROR)
