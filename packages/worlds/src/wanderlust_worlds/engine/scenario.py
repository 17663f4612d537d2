"""Scenarios: how a world begins, what will happen in it, and what a perfect agent does; and how one is written as a
story, where inside the block a normal, typed call of an app's action becomes an event.

with capture(mail, ui) as story:
    asked = story.user(ui).send_message_to_agent("Invite Ana to lunch.")
    sent = story.agent(mail, after=asked).send_email(recipients=["ana@example.org"], subject="Lunch")
    story.env(mail, after=sent, delay=60).reply_to_email_from_user(sender="ana@example.org", email_id=sent)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Any, TypeAlias, TypeVar, cast

from wanderlust.types import Message
from wanderlust_worlds.engine.app import App
from wanderlust_worlds.engine.events import (
    ConditionEvent,
    Event,
    Milestone,
    Minefield,
    Plan,
    PlannedCall,
    Predicate,
    ScenarioError,
    StopEvent,
    result_ref,
)
from wanderlust_worlds.engine.events import event_id_of as id_of
from wanderlust_worlds.engine.log import ENGINE, Actor, NotificationLevel
from wanderlust_worlds.engine.world import Gate, World


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
    descriptions: Mapping[str, str] = field(default_factory=dict)
    """The descriptions shown to the agent for `App.action`, where they differ from the true ones."""
    prompt: tuple[Message, ...] = ()
    """The messages that the agent reads before anything happens."""
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ScenarioError for figures in which no world can be played."""
        if not self.duration > 0:
            raise ScenarioError(f"scenario {self.id!r}: its duration is {self.duration:g}, expected seconds above 0")
        if not isfinite(self.start):
            raise ScenarioError(f"scenario {self.id!r}: its start is {self.start:g}, expected seconds since 1970")
        if not 0 <= self.failures <= 1:
            raise ScenarioError(f"scenario {self.id!r}: its failures are {self.failures:g}, expected a share of calls")

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


A = TypeVar("A", bound=App)
C = TypeVar("C", bound=ConditionEvent)
E = TypeVar("E", bound=Event)
EventReferences: TypeAlias = str | Event | Sequence[str | Event] | None
"""Events to come after: results of calls in the story, events, or their ids."""


class ScenarioBuilder:
    """Events in the making. What a call returns stands for its result, and for the event itself in `after`."""

    def __init__(self, apps: Sequence[App]):
        self.apps = tuple(apps)
        self.events: list[Event] = []

    def user(
        self, app: A, *, after: EventReferences = None, delay: float = 0.0, at: float | None = None, id: str = ""
    ) -> A:
        """The app as the user is going to use it."""
        return self._by("user", app, after=after, delay=delay, at=at, id=id)

    def env(
        self, app: A, *, after: EventReferences = None, delay: float = 0.0, at: float | None = None, id: str = ""
    ) -> A:
        """The app as used by the environment: other people, or chance."""
        return self._by("env", app, after=after, delay=delay, at=at, id=id)

    def agent(
        self, app: A, *, after: EventReferences = None, delay: float = 0.0, at: float | None = None, id: str = ""
    ) -> A:
        """The app as a perfect agent would use it: an event of the oracle."""
        return self._by("agent", app, after=after, delay=delay, at=at, id=id)

    def result(self, event: str, *path: str) -> Any:
        """A part of what an earlier call is going to return, as an argument for a later one."""
        return result_ref(id_of(event), *path)

    def when(
        self, holds: Predicate, *, after: EventReferences = None, within: float | None = None, id: str = ""
    ) -> ConditionEvent:
        """A condition; what comes after it waits until `holds(world)` is true."""
        return self._watch(ConditionEvent, holds, after=after, within=within, id=id)

    def milestone(
        self, holds: Predicate, *, after: EventReferences = None, within: float | None = None, id: str = ""
    ) -> Milestone:
        """Add a condition that must come true."""
        return self._watch(Milestone, holds, after=after, within=within, id=id)

    def minefield(
        self, holds: Predicate, *, after: EventReferences = None, within: float | None = None, id: str = ""
    ) -> Minefield:
        """Add a condition that must not come true."""
        return self._watch(Minefield, holds, after=after, within=within, id=id)

    def stop(
        self, reason: str = "stop", *, after: EventReferences = None, delay: float = 0.0, at: float | None = None
    ) -> StopEvent:
        """The end."""
        return self._add(StopEvent(id=self._name("stop"), after=_ids(after), delay=delay, at=at, reason=reason))

    def _watch(self, kind: type[C], holds: Predicate, *, after: EventReferences, within: float | None, id: str) -> C:
        name = id or self._name(kind.kind)
        return self._add(kind(id=name, after=_ids(after), holds=holds, within=within))

    def _by(self, actor: Actor, app: A, **when: Any) -> A:
        if app not in self.apps:
            raise ScenarioError(f"{app.name} is not an app of this story")
        return cast(A, _CallRecorder(self, app, by=actor, **when))

    def _name(self, what: str) -> str:
        return f"{len(self.events) + 1}-{what}"

    def _add(self, event: E) -> E:
        self.events.append(event)
        return event


class _CallRecorder:
    """Looks like an app, and turns calls of its actions into events."""

    def __init__(self, story: ScenarioBuilder, app: App, **when: Any):
        self._story, self._app, self._when = story, app, when

    def __getattr__(self, name: str) -> Callable[..., str]:
        action = self._app.actions.get(name)
        if action is None:
            raise ScenarioError(f"{self._app.name} has no action {name!r}; it has: {', '.join(self._app.actions)}")
        signature = inspect.signature(action.function)

        def record(*arguments: Any, **named: Any) -> str:
            try:
                args = dict(signature.bind(self._app, *arguments, **named).arguments)
            except TypeError as error:
                raise ScenarioError(f"{self._app.name}.{name}: {error}") from error
            del args["self"]
            when = {**self._when, "id": self._when["id"] or self._story._name(name), "after": _ids(self._when["after"])}
            act = PlannedCall(app=self._app.name, action=name, args=args, **when)
            return result_ref(self._story._add(act).id)

        return record


def _ids(after: EventReferences) -> tuple[str, ...]:
    if after is None:
        return ()
    if isinstance(after, str | Event):
        after = (after,)
    return tuple(one.id if isinstance(one, Event) else id_of(one) for one in after)


@contextmanager
def capture(*apps: App) -> Iterator[ScenarioBuilder]:
    """A story about these apps. Leaving the block checks it: ScenarioError names the event and what was expected."""
    story = ScenarioBuilder(apps)
    yield story
    Plan.of(story.events, apps)
