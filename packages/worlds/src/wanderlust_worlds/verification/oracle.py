"""The oracle: the acts of a perfect agent, prepared for comparison with what an agent did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from math import inf
from typing import Any, NamedTuple, Self

import msgspec

from wanderlust_worlds.engine.app import App, AppAction, user_names_of
from wanderlust_worlds.engine.argument_checks import ArgumentCheck
from wanderlust_worlds.engine.events import (
    Event,
    Milestone,
    Minefield,
    Plan,
    PlannedCall,
    action_of,
    is_agent_call,
    placeholders,
    reachable,
    resolve_placeholder,
)
from wanderlust_worlds.engine.scenario import Scenario

_PLAIN = (str, int, float, bool, type(None), list, dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """Seconds of the world's clock by which an act may miss its due time."""

    before: float = 10.0
    after: float = 25.0
    over: float = 1.0
    """Delays up to this many seconds set no window."""

    def around(self, act: PlannedCall) -> tuple[float, float]:
        """The seconds by which this act may be early and late; infinite where it has no window."""
        timing = act.timing or ("about" if act.at is not None or act.delay > self.over else "")
        early = self.before if timing in ("about", "from") else inf
        late = self.after if timing in ("about", "by") else inf
        return early, late


class Argument(NamedTuple):
    """The comparison of one argument of an act."""

    name: str
    check: ArgumentCheck
    wanted: Any
    normal: Any
    """The wanted value in the check's normal form."""
    default: Any
    """The value that a call has which leaves it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCall:
    """One of the oracle's acts, and all that must hold for a line of the log to be it."""

    act: PlannedCall
    action: AppAction
    arguments: tuple[Argument, ...]
    """The arguments to compare. A soft argument that the oracle leaves out is not among them."""
    turn: int
    """Number of ends of turns before it."""
    parents: tuple[int, ...]
    """The agent's acts that come directly before it, or with only others' events between: numbers in the oracle."""
    waits: tuple[str, ...]
    """Events of others that come directly before it."""
    sources: tuple[int, ...]
    """The agent's acts whose results are in its arguments."""
    refers: bool
    """Whether results of any events are in its arguments."""
    awaited: bool
    """Whether events of others wait for it."""
    early: float
    late: float
    """Seconds by which it may be done before and after it is due; infinite where that does not matter."""

    @classmethod
    def of(
        cls,
        act: PlannedCall,
        plan: Plan,
        *,
        apps: Mapping[str, App],
        users: frozenset[str],
        numbers: Mapping[str, int],
        turn: int,
        window: TimeWindow,
    ) -> Self:
        """An act of a plan; `numbers` are those of the acts before it. ScenarioError when there is no such action."""
        action, ready = action_of(apps, act.app, act.action), plan.ready.get(act.id)
        arguments = act.args if ready is None else ready[1]
        origins = (resolve_placeholder(name, plan.events) for name, _ in placeholders(act.args))
        named = {origin[0] for origin in origins if origin is not None}
        before = reachable(act.after, lambda name: () if name in numbers else plan.events[name].after)
        early, late = window.around(act)
        return cls(
            act=act,
            action=action,
            arguments=compared_arguments(act, action, arguments, users=users),
            turn=turn,
            parents=tuple(sorted(numbers[name] for name in before if name in numbers)),
            waits=tuple(name for name in act.after if name not in numbers),
            sources=tuple(sorted(numbers[name] for name in named if name in numbers)),
            refers=bool(named),
            awaited=any(not is_agent_call(child) for child in plan.children.get(act.id, ())),
            early=early,
            late=late,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """All acts that are expected of an agent, parents first. Made once per scenario, and shared."""

    acts: tuple[ExpectedCall, ...]
    events: Mapping[str, Event]
    """All events of the scenario."""
    turn_of: Mapping[str, int]
    """The turn in which each event lies."""
    kinds: Mapping[str, str]
    """The class name of each app, by the app's name."""
    writes: Mapping[tuple[str, str], AppAction]
    """The actions that change the world, by app and name."""
    start: float
    user_names: frozenset[str] = frozenset()
    """The names of the user, who may be counted among people or not."""
    user_addresses: frozenset[str] = frozenset()
    """Where the user lives, for a judge who compares places."""
    window: TimeWindow = TimeWindow()

    @classmethod
    def of(cls, scenario: Scenario, window: TimeWindow | None = None) -> Oracle:
        """The oracle of a scenario. Raises ScenarioError when the scenario cannot be played."""
        plan, window = scenario.plan, window or TimeWindow()
        apps = {app.name: app for app in scenario.apps}
        users = user_names_of(scenario.apps)
        parents_first = TopologicalSorter(dict.fromkeys(plan.events, ()))  # else in the order of the scenario
        for event in plan.events.values():
            parents_first.add(event.id, *event.after)
        in_order = [plan.events[name] for name in parents_first.static_order()]
        ends = {one.id for one in in_order if is_agent_call(one) and action_of(apps, one.app, one.action).ends_turn}
        turn_of: dict[str, int] = {}  # ends of the agent's turns before an event, along the longest way
        for event in in_order:
            turn_of[event.id] = max((turn_of[parent] + (parent in ends) for parent in event.after), default=0)
        order = sorted(in_order, key=lambda event: turn_of[event.id])  # so that turns are parts of the whole
        numbers: dict[str, int] = {}
        acts: list[ExpectedCall] = []
        for event in order:
            if is_agent_call(event):
                numbers[event.id] = len(acts)
                turn = turn_of[event.id]
                made = ExpectedCall.of(event, plan, apps=apps, users=users, numbers=numbers, turn=turn, window=window)
                acts.append(made)
        return cls(
            acts=tuple(acts),
            events=plan.events,
            turn_of=turn_of,
            kinds={name: type(app).__name__ for name, app in apps.items()},
            writes={(name, a.name): a for name, app in apps.items() for a in app.actions.values() if a.writes},
            start=scenario.start,
            user_names=users,
            user_addresses=frozenset(place for app in scenario.apps for place in app.user_addresses()),
            window=window,
        )

    @property
    def turns(self) -> int:
        """Number of turns that the oracle takes."""
        return max((one.turn for one in self.acts), default=0) + 1

    @property
    def marked(self) -> tuple[str, ...]:
        """The ids of milestones and minefields."""
        return tuple(event.id for event in self.events.values() if isinstance(event, Milestone | Minefield))


def plain_value(value: Any) -> Any:
    """A value as the log's JSON has it."""
    return value if isinstance(value, _PLAIN) else msgspec.to_builtins(value)


def compared_arguments(
    act: PlannedCall, action: AppAction, args: Mapping[str, Any], *, users: frozenset[str]
) -> tuple[Argument, ...]:
    """The arguments of an act as they are compared: what is left out of both is not, nor are `users` among people."""
    defaults = action.complete({})
    return tuple(
        Argument(name, check, wanted := plain_value(value), check.normal(wanted), defaults.get(name))
        for name, value in action.complete(args).items()
        if (check := action.check(name).without(users)).name != "free" and not (check.soft and name not in act.args)
    )
