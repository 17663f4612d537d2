"""An adaptive bound of the concurrent calls to one server."""

from __future__ import annotations

import asyncio
from collections import deque

GROWTH = 1 / 16
"""Growth of the limit after a window, as a share of the limit."""
MIN_GROWTH = 1 / 4
"""Least growth of the limit after a window, in calls."""
MIN_WINDOW_CALLS = 8
"""Fewest calls in a window."""


class Throttle:
    """Admit at most `max_calls` calls at once, and fewer while the server is overloaded.

    After each window (as many calls as the limit) the limit grows by a step and shrinks by half the share of the
    window's calls that the server refused: it about halves where all were refused, and stays where one in eight was.
    Callers wait in order. Source: additive increase and the proportional decrease of Data Center TCP (RFC 8257).
    """

    def __init__(self, max_calls: int):
        self.max_calls = max_calls
        self.limit = float(max_calls)
        self._live = self._calls = self._refused = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait for a place; each call that gets one must `leave`."""
        if not self._waiting and self._live + 1 <= self.limit:
            self._live += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._waiting = deque(other for other in self._waiting if other is not place)
            else:  # it was given the place in the same moment
                self._live -= 1
                self._admit()
            raise

    def leave(self, *, overloaded: bool = False) -> None:
        """Give the place back; `overloaded` when the server refused the call as one too many."""
        self._live -= 1
        self._calls += 1
        self._refused += overloaded
        if self._calls >= max(MIN_WINDOW_CALLS, self.limit):
            shrunk = self.limit * (1 - self._refused / self._calls / 2)
            self.limit = max(1.0, min(float(self.max_calls), shrunk + max(MIN_GROWTH, self.limit * GROWTH)))
            self._calls = self._refused = 0
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._live + 1 <= self.limit:
            place = self._waiting.popleft()
            if not place.done():
                self._live += 1
                place.set_result(None)
