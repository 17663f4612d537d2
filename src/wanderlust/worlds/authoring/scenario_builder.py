"""Writing a scenario as a story: inside the block a normal, typed call of an app's action becomes an event.

with capture(mail, ui) as story:
    asked = story.user(ui).send_message_to_agent("Invite Ana to lunch.")
    sent = story.agent(mail, after=asked).send_email(recipients=["ana@example.org"], subject="Lunch")
    story.env(mail, after=sent, delay=60).reply_to_email_from_user(sender="ana@example.org", email_id=sent)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar, cast

from wanderlust.worlds.engine.app import App
from wanderlust.worlds.engine.events import (
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
from wanderlust.worlds.engine.events import event_id_of as id_of
from wanderlust.worlds.engine.log import Actor

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
