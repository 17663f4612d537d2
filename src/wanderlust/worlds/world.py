"""The world: one thread, one clock that nothing but events and charges move, one log of all that happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, TypeAlias, TypeVar

from wanderlust.core.errors import UsageError
from wanderlust.tools.errors import ToolError, WrongArguments
from wanderlust.worlds.app import RANK, Action, App
from wanderlust.worlds.events import Act, filled
from wanderlust.worlds.flow import MOST_EVENTS, Flow, Notice
from wanderlust.worlds.log import ENGINE, Actor, Happened, Level, Log, digest
from wanderlust.worlds.plan import LATER, NOTHING, Plan, action_of
from wanderlust.worlds.schedule import Schedule

A = TypeVar("A", bound=App)
Gate: TypeAlias = "Callable[[World, Happened], None]"
"""Sees every action of the agent that succeeded, and may say which expected act it was (`fulfil`), or `stop` the world.

It must follow from the world and its log alone, because branches share it.
"""


OUT_OF_ORDER = "this does not work just now: try again"
"""What the agent reads of a call that fails for no reason."""


class ActionFailed(ToolError):
    """The app refused; the text is in the log as well."""


class World(Flow):
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
        level: Level = "medium",
        oracle: bool = False,
        gate: Gate | None = None,
        failures: float = 0.0,
    ):
        """`start` in seconds of the world's clock, `duration` in seconds; `oracle` plays the agent's acts too.

        `failures` is the share of the agent's calls that fail for no reason, drawn from the stream `failures`; what
        ends a turn never does.
        """
        self._apps, plan = {app.name: app for app in apps}, plan or NOTHING
        if missing := plan.needs - self._apps.keys():
            raise UsageError(f"the plan acts on apps that the world has not: {', '.join(sorted(missing))}")
        self.now, self.end, self.seed, self.gate = start, start + duration, seed, gate
        self.log, self.stopped, self.most_events = Log(), "", MOST_EVENTS
        self._schedule = Schedule(plan, start=start, oracle=oracle, owner=self)
        self._counts, self._inbox, self.failures = {}, (), failures
        self._rank, self._rest, self._runs = RANK[level], 0.0, False

    def call(self, app: str, action: str, args: Mapping[str, Any], *, by: Actor = "agent") -> Any:
        """Use an action: the one way in which anything changes. Returns what the action returned.

        An action that raises leaves a line with its error, and is raised as ActionFailed; so are WrongArguments, as
        they are. What is due by then happens at once after an agent's action.
        """
        found = action_of(self._apps, app, action)
        if by == "agent" and "agent" not in found.scopes:
            raise UsageError(f"{app}.{action} is not an agent's action")
        try:
            read = found.tool.read(args)
        except WrongArguments as wrong:
            self._write(by, app, action, args=args, error=str(wrong), writes=found.writes)
            raise
        if by == "agent" and self.failures and not found.ends_turn and self._fails():
            self._write(by, app, action, args=read, error=OUT_OF_ORDER, writes=found.writes)
            raise ActionFailed(OUT_OF_ORDER)
        line = self._use(found, app, read, by=by)
        if by == "agent":
            self._after(line)
        if line.error is not None:
            raise ActionFailed(line.error)
        return line.result

    def _fails(self) -> bool:
        return self.draw("failures").random() < self.failures

    def _after(self, line: Happened) -> None:
        """What follows an agent's action: it may have been expected, may end in a rest, and may have set things off."""
        if self.gate is not None and line.error is None:
            self.gate(self, line)
        seconds, self._rest = self._rest, 0.0
        if seconds:
            self._sleep(seconds)
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
        self._sleep(inf if seconds is None else seconds)

    def deliver(self) -> tuple[Notice, ...]:
        """What the agent has yet to be told; after this it has been. Leaves a line if there is anything."""
        told, self._inbox = self._inbox, ()
        if told:
            self._write("world", ENGINE, "deliver", args={}, result=told)
        return told

    def fulfil(self, event: str, line: int) -> None:
        """Say that the expected act `event` happened in this line of the log: what waits for it is let go."""
        act = next((act for act in self._schedule.expected if act.id == event), None)
        if act is None:
            raise UsageError(
                f"the act {event!r} is not expected now; these are: {', '.join(a.id for a in self.expected)}"
            )
        self._write("world", ENGINE, "fulfil", args={"event": event, "line": line})
        moved = self._moving()
        moved.met(act)
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
    def expected(self) -> tuple[Act, ...]:
        """The oracle's acts that the agent could do now: all before them has happened."""
        return self._schedule.expected

    def args_of(self, act: Act) -> Mapping[str, Any]:
        """The arguments of an act, with the results that they refer to. LookupError where a result has no such part."""
        found = self.plan.ready.get(act.id)
        args: Mapping[str, Any] = filled(act.args, self._result) if found is None else found[1]
        return args

    @property
    def pending(self) -> int:
        """How many events are due later."""
        return self._schedule.pending

    def action(self, line: Happened) -> Action | None:
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
        found = self._apps[name]
        return found if found.place is self else self._own(found)

    def find(self, kind: type[A]) -> A | None:
        """The first app of this class; None without one."""
        for app in self._apps.values():
            if isinstance(app, kind):
                return app if app.place is self else self._own(app)
        return None

    def later(self, seconds: float, app: str, action: str, /, **args: Any) -> None:
        """Have the environment use an action, that many seconds from now."""
        if seconds < 0:
            raise UsageError(f"{app}.{action} cannot happen {-seconds} seconds ago")
        number = self._counts["later"] = self._counts.get("later", 0) + 1
        act = Act(id=f"{LATER}{number}", app=app, action=action, args=args)
        self._moving().push(act, self.now + seconds)

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
            if app.place is self:
                app.place = None
        self._schedule.owner = None
        twin: World = World.__new__(World)
        twin._apps, twin._counts, twin._inbox = self._apps.copy(), self._counts.copy(), self._inbox
        twin._schedule, twin.log = self._schedule, self.log.branch()
        twin.now, twin.end, twin.seed, twin.gate = self.now, self.end, self.seed, self.gate
        twin.stopped, twin.most_events, twin.failures = self.stopped, self.most_events, self.failures
        twin._rank, twin._rest, twin._runs = self._rank, self._rest, False
        return twin
