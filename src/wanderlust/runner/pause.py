"""The gate that a run goes through before each rollout and each step; it is closed while the run is paused."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from threading import Lock


class PauseGate:
    """A gate that is closed while the run is paused; another thread than the waiting one closes and opens it."""

    def __init__(self) -> None:
        self.is_closed = False
        self._lock = Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    async def wait_until_open(self) -> None:
        """Wait while it is closed."""
        while self.is_closed:
            loop = asyncio.get_running_loop()
            waiting = loop, loop.create_future()
            with self._lock:
                if not self.is_closed:
                    return
                self._waiting.append(waiting)
            await waiting[1]

    def close(self) -> None:
        """Close the gate."""
        with self._lock:
            self.is_closed = True

    def open(self) -> None:
        """Open the gate, and wake all waiting tasks."""
        with self._lock:
            self.is_closed, waiting, self._waiting = False, self._waiting, []
        for loop, future in waiting:
            with suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(_release, future)


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


pause_gate: ContextVar[PauseGate | None] = ContextVar("pause_gate", default=None)


async def wait_if_paused() -> None:
    """Wait while the caller's run is paused."""
    gate = pause_gate.get()
    if gate is not None and gate.is_closed:
        await gate.wait_until_open()
