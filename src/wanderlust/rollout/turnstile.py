"""What a run goes through before each rollout and each step: shut while it is paused."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from threading import Lock


class Turnstile:
    """Open, unless the run is paused. Shut and opened from another thread than the one that waits."""

    def __init__(self) -> None:
        self.shut = False
        self._lock = Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    async def opened(self) -> None:
        """Wait while it is shut."""
        while self.shut:
            loop = asyncio.get_running_loop()
            waiting = loop, loop.create_future()
            with self._lock:
                if not self.shut:
                    return
                self._waiting.append(waiting)
            await waiting[1]

    def close(self) -> None:
        """Let nobody through."""
        with self._lock:
            self.shut = True

    def open(self) -> None:
        """Let everybody through."""
        with self._lock:
            self.shut, waiting, self._waiting = False, self._waiting, []
        for loop, future in waiting:
            with suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(_release, future)


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


TURNSTILE: ContextVar[Turnstile | None] = ContextVar("turnstile", default=None)


async def passed() -> None:
    """Returns at once, unless the run that the caller belongs to is paused."""
    turnstile = TURNSTILE.get()
    if turnstile is not None and turnstile.shut:
        await turnstile.opened()
