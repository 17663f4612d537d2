"""Scenarios: how a world begins, what will happen in it, and what a perfect agent does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from wanderlust.errors import UsageError
from wanderlust.tools.function import ToolError
from wanderlust.types import Message
from wanderlust.worlds.engine.app import App
from wanderlust.worlds.engine.events import Event, Plan, PlannedCall, ScenarioError
from wanderlust.worlds.engine.log import ENGINE, LogEntry, NotificationLevel, line_bytes
from wanderlust.worlds.engine.world import Gate, World


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A world before it starts, and its events. Immutable: any number of worlds begin here, and share its apps.

    Not slotted, because the plan is made once, when it is first needed.
    """

    id: str
    apps: Sequence[App]
    """As they are at the start. No world writes to them."""
    events: Sequence[Event] = ()
    """The events of the user and the environment, and the acts of a perfect agent (the oracle)."""
    start: float = 1_728_975_600.0
    """Seconds since 1970, UTC."""
    duration: float = 1_000.0
    """Seconds after which the world stops."""
    seed: int = 0
    level: NotificationLevel = "medium"
    """From which verbosity on the agent is notified."""
    failures: float = 0.0
    """The share of the agent's calls that fail at random, from 0 to 1."""
    names: Mapping[str, str] = field(default_factory=dict)
    """The names shown to the agent for `App.action` and `App.action.argument`, where they differ from the true ones."""
    prompt: tuple[Message, ...] = ()
    """The messages that the agent reads before anything happens."""
    info: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def plan(self) -> Plan:
        """The events, checked. Raises ScenarioError in one line that names the event and what was expected."""
        return Plan.of(self.events, self.apps)

    @property
    def oracle(self) -> tuple[PlannedCall, ...]:
        """The acts of a perfect agent."""
        return tuple(event for event in self.events if isinstance(event, PlannedCall) and event.by == "agent")

    def world(self, seed: int = 0, *, oracle: bool = False, gate: Gate | None = None) -> World:
        """A world at its start; equal seeds give equal ids and draws."""
        return World(
            self.apps,
            self.plan,
            start=self.start,
            duration=self.duration,
            seed=f"{self.id}/{self.seed}/{seed}",
            level=self.level,
            oracle=oracle,
            gate=gate,
            failures=self.failures,
        )


def play_oracle(scenario: Scenario, seed: int = 0) -> World:
    """The world after a perfect agent has been in it: its acts happen as the scenario says.

    Raises ScenarioError when one of the scenario's acts fails, or never happens.
    """
    world = scenario.world(seed, oracle=True)
    while world.pending and not world.stopped:
        world.wait()
        world.deliver()
    for line in world.log:
        if line.error is not None and line.event in scenario.plan.events and line.app != ENGINE:
            raise ScenarioError(f"event {line.event!r}: {line.app}.{line.action} failed: {line.error}")
    if left := [act.id for act in scenario.oracle if act.id not in world.done]:
        raise ScenarioError(f"event {left[0]!r}: it never happened; the world stopped by {world.stopped or 'itself'}")
    return world


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
    return line_bytes(line).decode()[:300]


@dataclass(frozen=True, slots=True)
class _RecordedGate:
    """A gate that repeats the decisions of a log."""

    lines: Sequence[LogEntry]

    def __call__(self, world: World, line: LogEntry) -> None:
        while len(world.log) < len(self.lines):
            decided = self.lines[len(world.log)]
            if decided.app != ENGINE or decided.action not in ("fulfil", "stop"):
                return
            before = len(world.log)
            replay_line(world, decided)
            if len(world.log) == before:
                return
