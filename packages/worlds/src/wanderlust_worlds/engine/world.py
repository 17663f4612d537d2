"""The world of a scenario: apps, one clock, a schedule of events and one log of all that happens.

A world runs in one thread. Time moves only by `advance`, `wait` and what an action asks to rest, and everything that
changes leaves a line in the log. `World.branch` copies a world cheaply; as plain data it is in `replay.snapshot`.
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
from wanderlust_worlds.engine.app import LEVEL_RANK, App, AppAction, user_names_of
from wanderlust_worlds.engine.cow_dict import FrozenRecord
from wanderlust_worlds.engine.events import (
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
from wanderlust_worlds.engine.log import ENGINE, Actor, Log, LogEntry, NotificationLevel, digest

A = TypeVar("A", bound=App)
DEFAULT_MAX_EVENTS = 1_000_000
"""Events that may come due in one world: ends a schedule that extends itself for ever."""
MAX_ACTION_ERROR_CHARS = 500
"""Characters of an action's error that the agent reads."""
FAILED_CALL_MESSAGE = "this does not work just now: try again"
"""Error text of a call that fails at random."""


class Notice(FrozenRecord):
    """A notification of the agent."""

    time: float
    app: str
    text: str
    by: Actor = "env"


Inbox: TypeAlias = "tuple[()] | tuple[Notice, Inbox]"
"""The notices that wait: the latest one and those before it, so that adding one costs the same however many wait."""


def inbox_notices(inbox: Inbox) -> tuple[Notice, ...]:
    """The notices, the first one first."""
    notices = []
    while inbox:
        notice, inbox = inbox
        notices.append(notice)
    return tuple(reversed(notices))


def inbox_of(notices: Iterable[Notice]) -> Inbox:
    """The inbox with these notices, the first one first."""
    inbox: Inbox = ()
    for notice in notices:
        inbox = notice, inbox
    return inbox


class RunawaySchedule(EnvironmentFailure):
    """More events came due than a world may have."""


class ActionFailed(ToolError):
    """The app refused; the text is in the log as well."""


Gate: TypeAlias = "Callable[[World, LogEntry], None]"
"""Called after every action of the agent that succeeded: may `mark_done` the expected act it was, or `stop` the world.

It must depend on the world and its log alone, because branches share it.
"""


class World:
    """Apps, a clock, a schedule and a log.

    Guarantees that the same apps, plan, seed and calls give the same log, byte for byte, in any process. `call` is how
    anything changes; time moves by `advance` and `wait` and by nothing else, and both leave a line. Apps that are
    handed over are never written to: the world makes its own twin of each when it first needs it. `stopped` is the
    reason why the world has ended, empty while it goes on.
    """

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

        `failures` is the share of the agent's calls that fail at random, drawn from the stream `failures`; a call that
        ends a turn never fails.
        """
        self._apps: dict[str, App] = {app.name: app for app in apps}
        plan = plan or EMPTY_PLAN
        if missing := plan.needs - self._apps.keys():
            raise UsageError(f"the plan acts on apps that the world has not: {', '.join(sorted(missing))}")
        self.now, self.end, self.seed, self.gate = float(start), start + duration, seed, gate
        self.log, self.max_events, self.stopped = Log(), DEFAULT_MAX_EVENTS, ""
        self._schedule = Schedule(plan, start=start, oracle=oracle, owner=self)
        self._counts: dict[str, int] = {}
        self._inbox: Inbox = ()
        self._rank, self._rest, self._runs, self.failures = LEVEL_RANK[level], 0.0, False, failures

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
        can_fail = by == "agent" and self.failures and not declared.ends_turn
        if can_fail and self.draw("failures").random() < self.failures:
            self._write(by, app, action, args=read, error=FAILED_CALL_MESSAGE, writes=declared.writes)
            raise ActionFailed(FAILED_CALL_MESSAGE)
        line = self._use(declared, app, read, by=by)
        if by == "agent":
            if self.gate is not None and line.error is None:
                self.gate(self, line)
            seconds, self._rest = self._rest, 0.0
            if seconds:
                self._let_time_pass(seconds)
            elif self._schedule.next_time <= self.now:
                self._run(self.now)
        if line.error is not None:
            raise ActionFailed(line.error)
        return line.result

    def advance(self, seconds: float, why: str = "") -> None:
        """Let time pass, and what is due meanwhile happen. Leaves a line that says why."""
        if not 0 <= seconds < inf:
            raise UsageError(f"time cannot pass by {seconds} seconds")
        self._write("world", ENGINE, "advance", args={"seconds": seconds, "why": why})
        self._run(self.now + seconds)

    def wait(self, seconds: float | None = None) -> None:
        """Jump from event to event until there is a notice for the agent, at most `seconds`. Leaves a line."""
        self._write("world", ENGINE, "wait", args={"seconds": seconds})
        self._let_time_pass(inf if seconds is None else seconds)

    def deliver(self) -> tuple[Notice, ...]:
        """The notices since the last delivery. Leaves a line if there are any."""
        notices, self._inbox = inbox_notices(self._inbox), ()
        if notices:
            self._write("world", ENGINE, "deliver", args={}, result=notices)
        return notices

    def mark_done(self, event: str, line: int) -> None:
        """Record that the expected act `event` happened in this line of the log, and release what waits for it."""
        act = next((act for act in self._schedule.expected if act.id == event), None)
        if act is None:
            expected = ", ".join(act.id for act in self.expected)
            raise UsageError(f"the act {event!r} is not expected now; these are: {expected}")
        self._write("world", ENGINE, "fulfil", args={"event": event, "line": line})
        schedule = self._own_schedule()
        schedule.no_longer_expect(act)
        schedule.happened(event, line, now=self.now)

    def stop(self, reason: str) -> None:
        """End the world: time does not move any more."""
        if not self.stopped:
            self._write("world", ENGINE, "stop", args={"reason": reason})
            self.stopped = reason

    def note_decision(self, turn: int, decision: str, text: str) -> None:
        """Write the decision on a finished turn into the log; nothing else changes."""
        self._write("world", ENGINE, "decided", args={"turn": turn, "decision": decision, "text": text})

    @property
    def apps(self) -> Mapping[str, App]:
        """The apps by name, to look at; `app` gives the world's own."""
        return self._apps

    @property
    def plan(self) -> Plan:
        """The plan that the world began with."""
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
        return ready_call[1] if ready_call else cast(Mapping[str, Any], _filled(self, act.args))

    @property
    def pending(self) -> int:
        """Number of events that are still due."""
        return self._schedule.pending

    def action(self, line: LogEntry) -> AppAction | None:
        """The action that a line of the log tells of; None for the engine's own lines."""
        app = self._apps.get(line.app)
        return app.actions.get(line.action) if app else None

    def digest(self) -> str:
        """The hash of the log so far: equal worlds have equal ones."""
        return digest(self.log)

    def app(self, name: str) -> App:
        """An app of this world's own. After a branch, ask again. Raises UsageError when there is none."""
        if name not in self._apps:
            raise UsageError(f"there is no app {name!r}; there are: {', '.join(self._apps) or 'none'}")
        own_app = self._apps[name]
        return own_app if own_app.context is self else self._own_app(own_app)

    def find(self, kind: type[A]) -> A | None:
        """The first app of this class; None without one."""
        app = next((app for app in self._apps.values() if isinstance(app, kind)), None)
        return app if app is None or app.context is self else self._own_app(app)

    def new_id(self, kind: str) -> str:
        """The next id of this kind: 32 hexadecimal digits that follow from the seed."""
        number = self._counts[kind] = self._counts.get(kind, 0) + 1
        return blake2b(f"{self.seed}/{kind}/{number}".encode(), digest_size=16).hexdigest()

    def draw(self, stream: str) -> Random:
        """A generator for the next draw of a stream; streams do not disturb each other."""
        number = self._counts[f"draw {stream}"] = self._counts.get(f"draw {stream}", 0) + 1
        return Random(f"{self.seed}/draw {stream}/{number}")

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
        twin = World.__new__(World)
        # One by one: attributes set so share their keys with those of other worlds, which `__dict__.update` does not.
        twin._apps, twin._counts, twin.log = self._apps.copy(), self._counts.copy(), self.log.branch()
        twin._schedule, twin._inbox, twin._rank, twin._rest = self._schedule, self._inbox, self._rank, self._rest
        twin.now, twin.end, twin.seed, twin.gate, twin.stopped = self.now, self.end, self.seed, self.gate, self.stopped
        twin.max_events, twin.failures, twin._runs = self.max_events, self.failures, False
        return twin

    # The loop over what is due

    def _use(
        self, action: AppAction, app: str, args: Mapping[str, Any], *, by: Actor, event: str | None = None
    ) -> LogEntry:
        owner = self._apps[app]
        if owner.context is not self:
            owner = self._own_app(owner)
        result = error = None
        try:
            result = action.function(owner, **args)
        except Exception as raised:  # noqa: BLE001 (the tool call of a world: what an app raises is data)
            error = _error_text(raised)
        line = LogEntry(self.now, by, app, action.name, args, result, error, event, action.writes)
        self.log.append(line)
        if action.rank <= self._rank and by != "agent" and error is None:
            self._inbox = Notice(time=self.now, app=app, text=action.notice(args), by=by), self._inbox
        if self._schedule.armed:
            _check_conditions(self)
        return line

    def _write(self, by: Actor, app: str, action: str, **rest: Any) -> None:
        self.log.append(LogEntry(self.now, by, app, action, **rest))

    def _own_app(self, app: A) -> A:
        mine = self._apps[app.name] = app.bound_to(self)
        return mine

    def _own_schedule(self) -> Schedule:
        if self._schedule.owner is not self:
            self._schedule = self._schedule.branch(self)
        return self._schedule

    def _let_time_pass(self, seconds: float) -> None:
        """Run until there is a notice, at most `seconds`; when there is none by then, leave a notice that says so."""
        if self._inbox:
            return
        until = self.now + seconds
        self._run(until, wakes=True)
        if not self._inbox and not self.stopped and self.now == until < inf:
            text = f"{seconds:g} seconds went by, nothing came"
            self._inbox = Notice(time=self.now, app=ENGINE, text=text, by="world"), ()

    def _run(self, until: float, *, wakes: bool = False) -> None:
        """Execute all that is due by `until`; with `wakes`, end with the moment in which the first notice arrives."""
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
            if type(event) is PlannedCall:
                if (ready_call := ready.get(event.id)) is None:
                    self._use_with_results(event)
                else:
                    self._use(ready_call[0], event.app, ready_call[1], by=event.by, event=event.id)
                schedule.happened(event.id, len(log) - 1, now=self.now)
            elif gives_up:
                _give_up(self, schedule, event)
            elif isinstance(event, ConditionEvent):
                schedule.arm(event, self.now)
                _check_conditions(self)
            elif isinstance(event, StopEvent):
                self._note(event, result=event.reason)
                self.stop(event.reason)
            if wakes and self._inbox:
                last = self.now  # the rest of this moment, and no more

    def _use_with_results(self, event: PlannedCall) -> None:
        """Execute a call whose arguments were not read with the plan: they hold placeholders, or an app planned it."""
        action, args = self._apps[event.app].actions[event.action], event.args
        try:
            if event.id in self._schedule.plan.events:  # an app may pass on an agent's text: no placeholders in there
                args = _filled(self, args)
            args = action.tool.parse_arguments(args)
        except (WrongArguments, LookupError, ValueError) as error:
            self._write(event.by, event.app, event.action, args=event.args, error=_error_text(error), event=event.id)
            return
        self._use(action, event.app, args, by=event.by, event=event.id)

    def _note(self, event: Event, *, result: Any, error: str | None = None) -> None:
        kind = event.kind
        self._write("world", ENGINE, kind, args={}, result=result, error=error, event=event.id)
        self._own_schedule().happened(event.id, len(self.log) - 1, now=self.now)


def _filled(world: World, args: Mapping[str, Any]) -> Any:
    """The arguments with the results of the events that their placeholders name."""

    def result(name: str) -> Any:
        match = resolve_placeholder(name, world.done)
        if match is None:
            return result_ref(name)
        return msgspec.to_builtins(result_part(world.log[world.done[match[0]]].result, match[1]))

    return fill_placeholders(args, result)


def _check_conditions(world: World) -> None:
    """Let the conditions happen that have come true. What follows them is executed when it is due."""
    for event in world._schedule.armed:
        if event in world._schedule.armed and event.holds(world):
            world._own_schedule().disarm(event)
            if isinstance(event, Minefield):
                world._note(event, result=False, error="stepped on a minefield")
                world.stop(f"minefield {event.id}")
            else:
                world._note(event, result=True)


def _give_up(world: World, schedule: Schedule, event: Event) -> None:
    """End the watch over a condition whose time has passed."""
    if event in schedule.armed:
        schedule.disarm(event)
        if isinstance(event, Minefield):
            world._note(event, result=True)
        else:
            missed = "missed" if isinstance(event, Milestone) else "given up"
            world._write("world", ENGINE, event.kind, args={}, error=missed, event=event.id)


def _error_text(error: Exception) -> str:
    """An error as the agent reads it: an app's own words as they are, anything else with its kind."""
    own = isinstance(error, ToolError | ValueError) and str(error)
    return one_line(str(error) if own else f"{type(error).__name__}: {error}", MAX_ACTION_ERROR_CHARS)


def match_first(world: World, line: LogEntry) -> None:
    """Fulfils the first expected act with this action and no argument that is certainly another one.

    Enough for worlds that must go on by themselves: it never rejects. Acts that were done before what the oracle does
    first are not recognised, and soft arguments (texts) are taken on trust: verification is another matter.
    """
    if world.action(line) is None:
        return
    for act in world.expected:
        if (act.app, act.action) == (line.app, line.action) and may_match(world, act, line=line):
            world.mark_done(act.id, len(world.log) - 1)
            return


def may_match(world: World, act: PlannedCall, *, line: LogEntry) -> bool:
    """Whether no argument of the line is certainly different from the act's, as the action's checks compare them."""
    action: AppAction = world.apps[act.app].actions[act.action]
    wanted, actual = action.complete(world.args_of(act)), action.complete(line.args)
    for name, value in wanted.items():
        check = action.check(name)
        if check.people:  # the user may be counted among them or not
            check = check.without(user_names_of(world.apps.values()))
        if check.same(value, actual[name]) is False:
            return False
    return True
