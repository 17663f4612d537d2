"""A process that answers requests, one answer to each, in a sandbox or without; its time and its answers are bounded.

Whatever answers may be hostile: an answer that is late, too long or more than one is none, and the worker is not asked
again. Not covered: whether an answer is true, and isolation, which is the sandbox's.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any, Literal, Self
from weakref import finalize

from wanderlust.errors import Failure
from wanderlust.tools.process import CHUNK_BYTES, Child, wait_readable, wait_writable

_CHILD = files(__package__).joinpath("worker_child.py").read_text(encoding="utf-8")
EXIT_SECONDS = 5.0
"""Seconds within which a process that gave its answers back must have ended, for its status to be its own."""


class NoReply(Failure):
    """A worker did not answer."""

    def __init__(self, why: Literal["time", "length", "forged", "died"], *, status: int | None = None):
        """`length`: too long; `forged`: more than was asked for; `died` with a status, where it is known."""
        super().__init__(f"a worker did not answer: {why}")
        self.why, self.status = why, status


def worker_command(source: str, *arguments: str) -> list[str]:
    """Arguments of Python for a worker: `source` defines `answer`, and finds `arguments` in `sys.argv`.

    Its requests and answers are JSON. Before the first it answers an empty request: it is ready.
    """
    return ["-c", _CHILD, source, *arguments]


def encode_request(request: Any) -> bytes:
    """A request to a `worker_command`."""
    return json.dumps(request).encode() + b"\n"


class Worker:
    """Asks a started process: `await worker.ask(b"request\\n", seconds=2.0)` is its answer, a line without its end.

    One request at a time. After a request without an answer there is no other: `alive` is false.
    """

    def __init__(self, child: Child, *, max_bytes: int, answers: int | None = None):
        """`max_bytes` bound one answer; `answers` is the pipe that they come by, the standard output by default."""
        self.child, self.max_bytes = child, max_bytes
        self._answers = child.stdout if answers is None else answers
        self._buffer, self._busy = b"", False

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self._busy and not self.child.closed and self.child.alive

    async def ask(self, request: bytes, *, seconds: float) -> bytes:
        """The answer, waited for in the event loop. Raises NoReply."""
        try:
            async with asyncio.timeout(seconds):
                for pipe, event in self._exchange(request):
                    await (wait_writable if event == select.POLLOUT else wait_readable)(pipe)
        except TimeoutError:
            raise NoReply("time") from None
        return self._take()

    def ask_blocking(self, request: bytes, *, seconds: float) -> bytes:
        """The answer, waited for in this thread. Raises NoReply, with the status of a process that has ended."""
        deadline = time.monotonic() + seconds
        try:
            for pipe, event in self._exchange(request):
                _wait(pipe, event, deadline)
        except NoReply as none:
            none.status = self.child.wait(EXIT_SECONDS) if none.why == "died" else None
            raise
        return self._take()

    def _exchange(self, request: bytes) -> Iterator[tuple[int, int]]:
        """Write the request and read the answer; yields each pipe that must be ready, and for what."""
        if self._busy:
            raise NoReply("forged")
        self._busy, rest = True, memoryview(request)
        if request:
            with suppress(BlockingIOError):
                if os.read(self._answers, 1):  # nobody asked for it
                    raise NoReply("forged")
        with suppress(BrokenPipeError):  # the missing answer tells why
            while rest:
                yield self.child.stdin, select.POLLOUT
                with suppress(BlockingIOError):
                    rest = rest[os.write(self.child.stdin, rest) :]
        while b"\n" not in self._buffer:
            yield self._answers, select.POLLIN
            with suppress(BlockingIOError):
                more = os.read(self._answers, CHUNK_BYTES)
                if not more:
                    raise NoReply("died")
                self._buffer += more
                if len(self._buffer) > self.max_bytes:
                    raise NoReply("length")

    def _take(self) -> bytes:
        line, _, self._buffer = self._buffer.partition(b"\n")
        if self._buffer:
            raise NoReply("forged")
        self._busy = False
        return line


def _wait(pipe: int, event: int, deadline: float) -> None:
    ready = select.poll()  # select() knows no file above number 1023
    ready.register(pipe, event)
    if not ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise NoReply("time")


class LocalWorker(Worker):
    """A worker in a process of this machine, without a sandbox; it ends with the object or a `with` block of it."""

    def __init__(
        self,
        source: str,
        *arguments: str,
        flags: Sequence[str] = ("-I",),
        env: Mapping[str, str] | None = None,
        max_bytes: int = CHUNK_BYTES,
        start_seconds: float,
    ):
        """`flags` are Python's. Raises NoReply where it is not ready in `start_seconds`."""
        argv = [sys.executable, *flags, *worker_command(source, *arguments)]
        super().__init__(Child(argv, env=env or {}), max_bytes=max_bytes)
        self.end = finalize(self, _end, self.child, os.getpid())
        """Kill it."""
        try:
            self.ask_blocking(b"", seconds=start_seconds)
        except NoReply:
            self.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _end(child: Child, owner: int) -> None:
    if os.getpid() == owner:  # a forked copy of the record is no owner of the process
        child.kill()
        child.wait(0.0)
        child.close()
