"""A pool of threads for functions that block; a thread whose caller is cancelled is abandoned.

A thread cannot be stopped from outside. One that hangs is therefore abandoned, and another takes its place; all of
them are daemons, so none holds up the end of the process, which the standard library's executor would do.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

from wanderlust.errors import ToolFailure

MAX_THREADS = 256
"""Calls that run at once; further ones wait their turn, which counts towards their time limit."""
MAX_ABANDONED_THREADS = 1024
"""Abandoned threads from which on further calls are refused."""


@dataclass(slots=True, eq=False)
class _Job:
    call: Callable[[], Any]
    future: asyncio.Future[tuple[Any, BaseException | None]]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    state: Literal["waiting", "running", "finished", "abandoned"] = "waiting"
    value: Any = None
    error: BaseException | None = None

    def __enter__(self) -> None:
        self.error = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Store the exception; it is raised again where the call is awaited."""
        self.error = error
        return True

    def run(self) -> None:
        with self:
            self.value = self.context.run(self.call)

    def deliver(self) -> None:
        if not self.future.done():
            # As a pair, because a future refuses StopIteration, which any function may raise.
            self.future.set_result((self.value, self.error))


class Threads:
    """At most `limit` threads, abandoned ones not counted."""

    def __init__(self, limit: int = MAX_THREADS, *, abandoned: int = MAX_ABANDONED_THREADS):
        self.limit, self.max_abandoned = limit, abandoned
        self.reset()

    def reset(self) -> None:
        """Start without any thread, as a process must that was forked: threads stay with their parent."""
        self.abandoned = 0
        self._waiting: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._threads = self._idle = 0

    async def run(self, call: Callable[[], Any]) -> Any:
        """Return or raise the outcome of `call`, run in a copy of this context. Cancelling abandons the thread.

        Raises ToolFailure when too many threads have been abandoned.
        """
        job = _Job(call, asyncio.get_running_loop().create_future())
        with self._changed:
            if self.abandoned >= self.max_abandoned:
                raise ToolFailure(f"{self.abandoned} calls of tools never came back: their functions hang")
            self._waiting.append(job)
            self._staff()
        try:
            value, error = await job.future
        except asyncio.CancelledError:
            with self._changed:
                if job.state == "waiting":
                    self._waiting.remove(job)
                elif job.state == "running":
                    job.state = "abandoned"
                    self._threads -= 1
                    self.abandoned += 1
                    if self._waiting:
                        self._staff()
            raise
        if error is not None:
            raise error
        return value

    def _staff(self) -> None:
        """Wake or start a thread for the waiting jobs; the caller holds the lock."""
        if self._idle >= len(self._waiting):
            self._changed.notify()
        elif self._threads < self.limit:
            self._threads += 1
            threading.Thread(target=self._work, name="wanderlust-tool", daemon=True).start()

    def _next(self) -> _Job:
        with self._changed:
            self._idle += 1
            while not self._waiting:
                self._changed.wait()
            self._idle -= 1
            job = self._waiting.popleft()
            job.state = "running"
            return job

    def _work(self) -> None:
        """Run jobs until one of them has been abandoned."""
        while True:
            job = self._next()
            job.run()
            with self._changed:
                if job.state == "abandoned":  # another thread has taken this one's place
                    self.abandoned -= 1
                    return
                job.state = "finished"
            with suppress(RuntimeError):  # the loop may have closed meanwhile: then nothing waits for the result
                job.future.get_loop().call_soon_threadsafe(job.deliver)


SHARED_THREADS = Threads()
"""The threads of this process: their number is the process's, not a tool's."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SHARED_THREADS.reset)
