"""The world: one thread, one clock that nothing but events and charges move, one log of all that happens.

What happens by itself: events as they come due, conditions as they come true, time as it passes.

Gates: who says that what the agent did is what the oracle was waiting for, so that the world may go on.

A world as plain data, and back: for disks, other processes, and readers. `World.branch` is the fast way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from math import inf
from random import Random
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from wanderlust.errors import EnvironmentFailure, UsageError, one_line
from wanderlust.tools.function import ToolError, WrongArguments
from wanderlust.worlds.engine.app import LEVEL_RANK, App, AppAction
from wanderlust.worlds.engine.cow_dict import FrozenRecord
from wanderlust.worlds.engine.events import (
    EMPTY_PLAN,
    LATER_PREFIX,
    ConditionEvent,
    Event,
    Milestone,
    Minefield,
    Plan,
    PlannedCall,
    Schedule,
    StopEvent,
    action_of,
    fill_placeholders,
    resolve_placeholder,
    result_part,
    result_ref,
)
from wanderlust.worlds.engine.log import ENGINE, Actor, Log, LogEntry, NotificationLevel, digest

A = TypeVar("A", bound=App)
DEFAULT_MAX_EVENTS = 1_000_000
"""Events that may come due in one world: what schedules itself without end must not run for ever."""
MAX_ACTION_ERROR_CHARS = 500


class Notice(FrozenRecord):
    """Something that the agent is told."""

    time: float
    app: str
    text: str
    by: Actor = "env"


class RunawaySchedule(EnvironmentFailure):
    """More events came due than a world may have."""


class WorldEngine:
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
        "max_events",
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
    max_events: int
    now: float
    seed: int | str
    stopped: str
    """Why the world has ended; empty while it goes on."""

    def _queue_notice(self, notice: Notice) -> None:
        """Have the agent told, before its next action."""
        self._inbox = (*self._inbox, notice)

    def stop(self, reason: str) -> None:
        """End the world: time stands still from now on."""
        if not self.stopped:
            self._write("world", ENGINE, "stop", args={"reason": reason})
            self.stopped = reason

    def note_decision(self, turn: int, decision: str, text: str) -> None:
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
        self, action: AppAction, app: str, args: Mapping[str, Any], *, by: Actor, event: str | None = None
    ) -> LogEntry:
        owner = self._apps[app]
        if owner.context is not self:  # type: ignore[comparison-overlap]  # every flow is a world
            owner = self._own_app(owner)
        result = error = None
        try:
            result = action.function(owner, **args)
        except Exception as raised:  # noqa: BLE001 (the tool call of a world: what an app raises is data)
            error = _error_text(raised)
        line = LogEntry(self.now, by, app, action.name, args, result, error, event, action.writes)
        self.log.append(line)
        if action.rank <= self._rank and by != "agent" and error is None:
            self._queue_notice(Notice(time=self.now, app=app, text=action.notice(args), by=by))
        if self._schedule.armed:
            self._check()
        return line

    def _write(self, by: Actor, app: str, action: str, **rest: Any) -> None:
        self.log.append(LogEntry(self.now, by, app, action, **rest))

    def _own_app(self, app: A) -> A:
        mine = self._apps[app.name] = app.bound_to(cast("World", self))
        return mine

    def _let_time_pass(self, seconds: float) -> None:
        if self._inbox:
            return
        until = self.now + seconds
        self._run(until, wakes=True)
        if not self._inbox and not self.stopped and self.now == until < inf:
            self._queue_notice(
                Notice(time=self.now, app=ENGINE, text=f"{seconds:g} seconds went by, nothing came", by="world")
            )

    def _run(self, until: float, *, wakes: bool = False) -> None:
        """All that is due until then; when it `wakes`, only until there is a notice and the moment is over."""
        last = min(until, self.end)
        if self._runs:
            raise UsageError("time cannot be moved by what happens in it")
        self._runs = True
        try:
            self._drain(self._own_schedule(), last, wakes=wakes)
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
            if schedule.number > self.max_events:
                raise RunawaySchedule(f"event {event.id!r}: more than {self.max_events:,} came due by {self.now}")
            if type(event) is not PlannedCall:
                self._turn(schedule, event, gives_up=gives_up)
            elif (ready_call := ready.get(event.id)) is None:
                self._use_with_results(event)
                schedule.happened(event.id, len(log) - 1, now=self.now)
            else:
                self._use(ready_call[0], event.app, ready_call[1], by=event.by, event=event.id)
                schedule.happened(event.id, len(log) - 1, now=self.now)
            if wakes and self._inbox:
                last = self.now  # the rest of this moment, and no more

    def _turn(self, schedule: Schedule, event: Event, *, gives_up: bool) -> None:
        """An event that is no act."""
        if gives_up:
            self._give_up(schedule, event)
        elif isinstance(event, ConditionEvent):
            schedule.arm(event, self.now)
            self._check()
        elif isinstance(event, StopEvent):
            self._note(event, result=event.reason)
            self.stop(event.reason)

    def _use_with_results(self, event: PlannedCall) -> None:
        """An act whose arguments are known only now: they are other events' results, or an app said `later`."""
        action = self._apps[event.app].actions[event.action]
        planned = (
            event.id in self._schedule.plan.events
        )  # what an app says may be an agent's text: no placeholders there
        try:
            args = action.tool.parse_arguments(fill_placeholders(event.args, self._result) if planned else event.args)
        except (WrongArguments, LookupError, ValueError) as error:
            self._write(event.by, event.app, event.action, args=event.args, error=_error_text(error), event=event.id)
            return
        self._use(action, event.app, args, by=event.by, event=event.id)

    def _result(self, name: str) -> Any:
        match = resolve_placeholder(name, self._schedule.done)
        if match is None:
            return result_ref(name)
        return msgspec.to_builtins(result_part(self.log[self._schedule.done[match[0]]].result, match[1]))

    def _check(self) -> None:
        """See which conditions have come true; those that these let go are seen to when they are due."""
        for event in self._schedule.armed:
            if event in self._schedule.armed and event.holds(cast("World", self)):
                schedule = self._own_schedule()
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
        self._own_schedule().happened(event.id, len(self.log) - 1, now=self.now)

    def _own_schedule(self) -> Schedule:
        """The schedule, this world's own."""
        if self._schedule.owner is not self:
            self._schedule = self._schedule.branch(self)
        return self._schedule


def _error_text(error: Exception) -> str:
    """An error as the agent reads it: an app's own words as they are, anything else with its kind."""
    own = isinstance(error, ToolError | ValueError) and str(error)
    return one_line(str(error) if own else f"{type(error).__name__}: {error}", MAX_ACTION_ERROR_CHARS)


Gate: TypeAlias = "Callable[[World, LogEntry], None]"
"""Sees every action of the agent that succeeded, and may say which expected act it was (`mark_done`), or `stop` the world.

It must follow from the world and its log alone, because branches share it.
"""


FAILED_CALL_MESSAGE = "this does not work just now: try again"
"""What the agent reads of a call that fails for no reason."""


class ActionFailed(ToolError):
    """The app refused; the text is in the log as well."""


class World(WorldEngine):
    """Apps, a clock, a schedule and a log.

    Guarantees that the same apps, plan, seed and calls give the same log, byte for byte, in any process. `call` is how
    anything changes; time moves by `advance` and `wait` and by nothing else, and both leave a line. Apps that are
    handed over are never written to: the world makes its own twin of each when it first needs it.
    """

    __slots__ = ()
    gate: Gate | None
    failures: float
    seed: int | str

    def __init__(
        self,
        apps: Iterable[App],
        plan: Plan | None = None,
        *,
        start: float = 0.0,
        duration: float = inf,
        seed: int | str = 0,
        level: NotificationLevel = "medium",
        oracle: bool = False,
        gate: Gate | None = None,
        failures: float = 0.0,
    ):
        """`start` in seconds of the world's clock, `duration` in seconds; `oracle` plays the agent's acts too.

        `failures` is the share of the agent's calls that fail for no reason, drawn from the stream `failures`; what
        ends a turn never does.
        """
        self._apps, plan = {app.name: app for app in apps}, plan or EMPTY_PLAN
        if missing := plan.needs - self._apps.keys():
            raise UsageError(f"the plan acts on apps that the world has not: {', '.join(sorted(missing))}")
        self.now, self.end, self.seed, self.gate = start, start + duration, seed, gate
        self.log, self.stopped, self.max_events = Log(), "", DEFAULT_MAX_EVENTS
        self._schedule = Schedule(plan, start=start, oracle=oracle, owner=self)
        self._counts, self._inbox, self.failures = {}, (), failures
        self._rank, self._rest, self._runs = LEVEL_RANK[level], 0.0, False

    def call(self, app: str, action: str, args: Mapping[str, Any], *, by: Actor = "agent") -> Any:
        """Use an action: the one way in which anything changes. Returns what the action returned.

        An action that raises leaves a line with its error, and is raised as ActionFailed; so are WrongArguments, as
        they are. What is due by then happens at once after an agent's action.
        """
        declared = action_of(self._apps, app, action)
        if by == "agent" and "agent" not in declared.scopes:
            raise UsageError(f"{app}.{action} is not an agent's action")
        try:
            read = declared.tool.parse_arguments(args)
        except WrongArguments as wrong:
            self._write(by, app, action, args=args, error=str(wrong), writes=declared.writes)
            raise
        if by == "agent" and self.failures and not declared.ends_turn and self._fails():
            self._write(by, app, action, args=read, error=FAILED_CALL_MESSAGE, writes=declared.writes)
            raise ActionFailed(FAILED_CALL_MESSAGE)
        line = self._use(declared, app, read, by=by)
        if by == "agent":
            self._after_agent_call(line)
        if line.error is not None:
            raise ActionFailed(line.error)
        return line.result

    def _fails(self) -> bool:
        return self.draw("failures").random() < self.failures

    def _after_agent_call(self, line: LogEntry) -> None:
        """What follows an agent's action: it may have been expected, may end in a rest, and may have set things off."""
        if self.gate is not None and line.error is None:
            self.gate(self, line)
        seconds, self._rest = self._rest, 0.0
        if seconds:
            self._let_time_pass(seconds)
        elif self._schedule.next_time <= self.now:
            self._run(self.now)

    def advance(self, seconds: float, why: str = "") -> None:
        """Let time pass, and what is due meanwhile happen. Leaves a line that says why."""
        if not 0 <= seconds < inf:
            raise UsageError(f"time cannot pass by {seconds} seconds")
        self._write("world", ENGINE, "advance", args={"seconds": seconds, "why": why})
        self._run(self.now + seconds)

    def wait(self, seconds: float | None = None) -> None:
        """Jump from event to event until the agent has something to be told, at most so far. Leaves a line."""
        self._write("world", ENGINE, "wait", args={"seconds": seconds})
        self._let_time_pass(inf if seconds is None else seconds)

    def deliver(self) -> tuple[Notice, ...]:
        """What the agent has yet to be told; after this it has been. Leaves a line if there is anything."""
        notices, self._inbox = self._inbox, ()
        if notices:
            self._write("world", ENGINE, "deliver", args={}, result=notices)
        return notices

    def mark_done(self, event: str, line: int) -> None:
        """Say that the expected act `event` happened in this line of the log: what waits for it is let go."""
        act = next((act for act in self._schedule.expected if act.id == event), None)
        if act is None:
            raise UsageError(
                f"the act {event!r} is not expected now; these are: {', '.join(a.id for a in self.expected)}"
            )
        self._write("world", ENGINE, "fulfil", args={"event": event, "line": line})
        moved = self._own_schedule()
        moved.no_longer_expect(act)
        moved.happened(event, line, now=self.now)

    # What there is

    @property
    def apps(self) -> Mapping[str, App]:
        """The apps by name, to look at; `app` gives the world's own."""
        return self._apps

    @property
    def plan(self) -> Plan:
        """What was to happen from the start."""
        return self._schedule.plan

    @property
    def done(self) -> Mapping[str, int]:
        """The line of the log in which each event happened."""
        return self._schedule.done

    @property
    def expected(self) -> tuple[PlannedCall, ...]:
        """The oracle's acts that the agent could do now: all before them has happened."""
        return self._schedule.expected

    def args_of(self, act: PlannedCall) -> Mapping[str, Any]:
        """The arguments of an act, with the results that they refer to. LookupError where a result has no such part."""
        ready_call = self.plan.ready.get(act.id)
        args: Mapping[str, Any] = fill_placeholders(act.args, self._result) if ready_call is None else ready_call[1]
        return args

    @property
    def pending(self) -> int:
        """How many events are due later."""
        return self._schedule.pending

    def action(self, line: LogEntry) -> AppAction | None:
        """The action that a line of the log tells of; None for the engine's own lines."""
        app = self._apps.get(line.app)
        return app.actions.get(line.action) if app else None

    def digest(self) -> str:
        """The hash of the log so far: equal worlds have equal ones."""
        return digest(self.log)

    # What apps ask for

    def app(self, name: str) -> App:
        """An app of this world's own. After a branch, ask again. Raises UsageError when there is none."""
        if name not in self._apps:
            raise UsageError(f"there is no app {name!r}; there are: {', '.join(self._apps) or 'none'}")
        own_app = self._apps[name]
        return own_app if own_app.context is self else self._own_app(own_app)

    def find(self, kind: type[A]) -> A | None:
        """The first app of this class; None without one."""
        for app in self._apps.values():
            if isinstance(app, kind):
                return app if app.context is self else self._own_app(app)
        return None

    def later(self, seconds: float, app: str, action: str, /, **args: Any) -> None:
        """Have the environment use an action, that many seconds from now."""
        if seconds < 0:
            raise UsageError(f"{app}.{action} cannot happen {-seconds} seconds ago")
        number = self._counts["later"] = self._counts.get("later", 0) + 1
        act = PlannedCall(id=f"{LATER_PREFIX}{number}", app=app, action=action, args=args)
        self._own_schedule().push(act, self.now + seconds)

    def rest(self, seconds: float) -> None:
        """After the agent's present action, let time pass until it is notified, at most so long."""
        self._rest = seconds

    # Copies

    def branch(self) -> World:
        """A world that goes on from here by itself, as does this one: neither sees what the other does.

        Costs the same for any size of the state: it is copied where one side writes. Apps taken from this world before
        belong to neither any more.
        """
        if self._runs:
            raise UsageError("a world cannot be branched while something is happening in it")
        for app in self._apps.values():
            if app.context is self:
                app.context = None
        self._schedule.owner = None
        twin: World = World.__new__(World)
        twin._apps, twin._counts, twin._inbox = self._apps.copy(), self._counts.copy(), self._inbox
        twin._schedule, twin.log = self._schedule, self.log.branch()
        twin.now, twin.end, twin.seed, twin.gate = self.now, self.end, self.seed, self.gate
        twin.stopped, twin.max_events, twin.failures = self.stopped, self.max_events, self.failures
        twin._rank, twin._rest, twin._runs = self._rank, self._rest, False
        return twin


def match_first(world: World, line: LogEntry) -> None:
    """Fulfils the first expected act with this action and no argument that is certainly another one.

    Enough for worlds that must go on by themselves: it never rejects. Acts that were done before what the oracle does
    first are not recognised, and soft arguments (texts) are taken on trust: verification is another matter.
    """
    action = world.action(line)
    for act in world.expected:
        if (
            action is not None
            and act.app == line.app
            and act.action == line.action
            and may_match(world, act, line=line)
        ):
            world.mark_done(act.id, len(world.log) - 1)
            return


def may_match(world: World, act: PlannedCall, *, line: LogEntry) -> bool:
    """Whether no argument of the line is certainly different from the act's, as the action's checks compare them."""
    action: AppAction = world.apps[act.app].actions[act.action]
    wanted, actual = action.complete(world.args_of(act)), action.complete(line.args)
    return all(action.check(name).same(value, actual[name]) is not False for name, value in wanted.items())
