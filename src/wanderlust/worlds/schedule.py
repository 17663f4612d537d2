"""What is due next: the plan's opening, a heap for what was let go since, and the counting of what still waits."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from math import inf
from typing import Any

import msgspec

from wanderlust.worlds.events import Act, Condition, Event
from wanderlust.worlds.plan import Due, Plan, due_at, expects


class Schedule:
    """One world's way through a plan. The opening is shared by all worlds of a plan: each only counts how far it is."""

    __slots__ = ("armed", "at", "done", "expected", "heap", "missing", "number", "opening", "oracle", "owner", "plan")

    def __init__(self, plan: Plan, *, start: float, oracle: bool, owner: object):
        self.plan, self.oracle, self.owner = plan, oracle, owner
        self.opening, self.at = plan.opening(start, oracle=oracle), 0
        self.heap: list[Due] = []
        self.done: dict[str, int] = {}
        """The line of the log in which an event happened."""
        self.missing: dict[str, int] = {}
        """How many parents have yet to happen, for those of whose parents one has."""
        self.armed: tuple[Condition, ...] = ()
        """Conditions that are waiting to come true."""
        self.expected = () if oracle else tuple(filter(expects, plan.roots))
        """What the agent is expected to do now, when it is not the oracle that plays."""
        self.number = len(self.opening)

    def branch(self, owner: object) -> Schedule:
        """A copy of its own for `owner`."""
        twin = Schedule.__new__(Schedule)
        twin.plan, twin.oracle, twin.owner, twin.number = self.plan, self.oracle, owner, self.number
        twin.opening, twin.at = self.opening, self.at
        twin.heap, twin.done, twin.missing = self.heap.copy(), self.done.copy(), self.missing.copy()
        twin.armed, twin.expected = self.armed, self.expected
        return twin

    def push(self, event: Event, time: float, *, gives_up: bool = False) -> None:
        """Have an event at a time."""
        self.number += 1
        heappush(self.heap, (time, self.number, event, gives_up))

    def take(self, last: float) -> Due | None:
        """What is due first, if it is by `last`, taken out."""
        heap, opening, at = self.heap, self.opening, self.at
        if at < len(opening) and not (heap and heap[0] < opening[at]):
            if opening[at][0] > last:
                return None
            self.at = at + 1
            return opening[at]
        return heappop(heap) if heap and heap[0][0] <= last else None

    @property
    def next_time(self) -> float:
        """When something is due; infinite when nothing is."""
        soonest = self.heap[0][0] if self.heap else inf
        return min(soonest, self.opening[self.at][0]) if self.at < len(self.opening) else soonest

    @property
    def pending(self) -> int:
        """How many entries there are."""
        return len(self.heap) + len(self.opening) - self.at

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
            if not self.oracle and expects(child):
                self.expected = (*self.expected, child)
            else:
                self.push(child, due_at(child, now))

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
            "due": [[time, number, self._named(event), over] for time, number, event, over in self._due()],
            "done": self.done.copy(),
            "missing": self.missing.copy(),
            "armed": [event.id for event in self.armed],
            "expected": [event.id for event in self.expected],
            "number": self.number,
            "oracle": self.oracle,
        }

    def _due(self) -> list[Due]:
        return sorted([*self.opening[self.at :], *self.heap], key=lambda due: due[:2])

    def _named(self, event: Event) -> Any:
        return event.id if self.plan.events.get(event.id) is event else msgspec.to_builtins(event)

    @classmethod
    def load(cls, plan: Plan, state: Mapping[str, Any], owner: object) -> Schedule:
        """The schedule that `state` told of."""
        found = cls.__new__(cls)
        found.plan, found.oracle, found.owner, found.number = plan, state["oracle"], owner, state["number"]
        events: Mapping[str, Any] = plan.events
        found.heap, found.at = [], 0
        found.opening = tuple(
            (time, number, events[event] if isinstance(event, str) else msgspec.convert(event, Act), over)
            for time, number, event, over in state["due"]
        )
        found.done, found.missing = dict(state["done"]), dict(state["missing"])
        found.armed = tuple(events[name] for name in state["armed"])
        found.expected = tuple(events[name] for name in state["expected"])
        return found
