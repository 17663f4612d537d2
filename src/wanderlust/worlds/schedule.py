"""What is due next: a heap on (time, number), and the counting of what still waits."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappush
from typing import Any, TypeAlias

import msgspec

from wanderlust.worlds.events import Act, Condition, Event
from wanderlust.worlds.plan import Plan

Due: TypeAlias = tuple[float, int, Event, bool]
"""An entry of the heap: when, its number, what, and whether that is a condition's being given up.

Entries of one time come in the order of their numbers. A plain tuple, because it is made for every event.
"""


class Schedule:
    """One world's way through a plan. `branch` shares everything until one side moves on."""

    __slots__ = ("armed", "done", "expected", "heap", "missing", "number", "oracle", "owner", "plan")

    def __init__(self, plan: Plan, *, start: float, oracle: bool, owner: object):
        self.plan, self.oracle, self.owner = plan, oracle, owner
        self.heap: list[Due] = []
        self.done: dict[str, int] = {}
        """The line of the log in which an event happened."""
        self.missing: dict[str, int] = {}
        """How many parents have yet to happen, for those of whose parents one has."""
        self.armed: tuple[Condition, ...] = ()
        """Conditions that are waiting to come true."""
        self.expected: tuple[Act, ...] = ()
        """What the agent is expected to do now, when it is not the oracle that plays."""
        self.number = 0
        for event in plan.roots:
            self._put(event, start + event.delay)

    def branch(self, owner: object) -> Schedule:
        """A copy of its own for `owner`."""
        twin = Schedule.__new__(Schedule)
        twin.plan, twin.oracle, twin.owner, twin.number = self.plan, self.oracle, owner, self.number
        twin.heap, twin.done, twin.missing = self.heap.copy(), self.done.copy(), self.missing.copy()
        twin.armed, twin.expected = self.armed, self.expected
        return twin

    def push(self, event: Event, time: float, *, gives_up: bool = False) -> None:
        """Have an event at a time."""
        self.number += 1
        heappush(self.heap, (time, self.number, event, gives_up))

    def _put(self, event: Event, time: float) -> None:
        if event.at is not None and event.at > time:
            time = event.at
        if isinstance(event, Act) and event.by == "agent" and not self.oracle:
            self.expected = (*self.expected, event)
        else:
            self.push(event, time)

    def happened(self, event: str, line: int, *, now: float) -> None:
        """Note that an event has happened, and let go what waited for it alone."""
        self.done[event] = line
        for child in self.plan.children.get(event, ()):
            parents = len(child.after)
            if parents > 1:
                parents = self.missing.get(child.id, parents) - 1
                if parents:
                    self.missing[child.id] = parents
                    continue
                del self.missing[child.id]
            self._put(child, now + child.delay)

    def arm(self, event: Condition, now: float) -> None:
        """Begin to watch a condition."""
        self.armed = (*self.armed, event)
        if event.within is not None:
            self.push(event, now + event.within, gives_up=True)

    def disarm(self, event: Event) -> None:
        """Watch it no longer."""
        self.armed = tuple(other for other in self.armed if other is not event)

    def met(self, event: Act) -> None:
        """Expect it no longer."""
        self.expected = tuple(other for other in self.expected if other is not event)

    def state(self) -> dict[str, Any]:
        """Where it stands, as plain data; events of the plan by their ids."""
        return {
            "due": [[time, number, self._named(event), over] for time, number, event, over in sorted(self.heap)],
            "done": self.done.copy(),
            "missing": self.missing.copy(),
            "armed": [event.id for event in self.armed],
            "expected": [event.id for event in self.expected],
            "number": self.number,
            "oracle": self.oracle,
        }

    def _named(self, event: Event) -> Any:
        return event.id if self.plan.events.get(event.id) is event else msgspec.to_builtins(event)

    @classmethod
    def load(cls, plan: Plan, state: Mapping[str, Any], owner: object) -> Schedule:
        """The schedule that `state` told of."""
        found = cls.__new__(cls)
        found.plan, found.oracle, found.owner, found.number = plan, state["oracle"], owner, state["number"]
        events: Mapping[str, Any] = plan.events
        found.heap = [
            (time, number, events[event] if isinstance(event, str) else msgspec.convert(event, Act), over)
            for time, number, event, over in state["due"]
        ]
        found.done, found.missing = dict(state["done"]), dict(state["missing"])
        found.armed = tuple(events[name] for name in state["armed"])
        found.expected = tuple(events[name] for name in state["expected"])
        return found
