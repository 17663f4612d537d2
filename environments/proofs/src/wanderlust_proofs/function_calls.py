"""Results of calls of untrusted programs' functions, many programs to one sandboxed process.

A judgement by tests that are pairs of arguments and results: the arguments go into the sandbox, the results come out,
and are compared here. A program that knows or changes everything inside can still only answer.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from wanderlust.errors import RubricFailure
from wanderlust.tools.process import Child, end_all
from wanderlust.tools.sandbox import Sandbox
from wanderlust.tools.worker import NoReply, Worker

_WORKER = Path(__file__).with_name("function_call_worker.py")
MAX_BATCH = 128
"""Programs in one sandboxed process."""
MAX_ANSWER_BYTES = 1 << 19
"""Longest line with a program's results: what the worker takes of them, with characters escaped."""
SPARE_SECONDS = 10.0
"""Wall-clock seconds for the worker's own work, besides those of a program."""

OpenSandbox = Callable[[], AbstractAsyncContextManager[Sandbox]]


@dataclass(slots=True, eq=False)
class _Job:
    body: bytes
    """As the worker reads it."""
    calls: int
    results: list[Any] | None = None
    """One entry per call: the result in a list, or None. An empty list: the program gave no results."""

    def take(self, found: Any) -> None:
        """Results as the worker wrote them."""
        whole = isinstance(found, list) and len(found) == self.calls
        self.results = [one if isinstance(one, list) and len(one) == 1 else None for one in found] if whole else []


@dataclass(slots=True, eq=False)
class _Waiting:
    """Jobs of one event loop; whoever holds the lock plays them all."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    jobs: dict[bytes, _Job] = field(default_factory=dict)
    """By their bodies."""


class FunctionCalls:
    """Runs programs that define a function, and calls it: `await calls.results(code, "f", [(1, 2), (3, 4)])`.

    Programs that are asked for while others run wait, and then share one sandbox and one process, in which each has a
    forked process of its own. Equal ones that wait are run once. One that keeps the others from their results is run
    again alone, and so are they.
    """

    def __init__(self, open: OpenSandbox, *, seconds: float = 2.0):
        """`open` gives a sandbox; `seconds` bound one program, in processor and wall-clock time."""
        self._open, self.seconds = open, seconds
        self._waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting] = WeakKeyDictionary()

    async def results(self, code: str, name: str, calls: Sequence[Sequence[Any]]) -> list[Any | None]:
        """Per call its result in a list, or None where it raised, gave no plain data, or was not reached.

        Results are JSON: tuples come back as lists. Raises RubricFailure when the sandbox fails.
        """
        waiting = self._waiting.setdefault(asyncio.get_running_loop(), _Waiting())
        body = json.dumps({"code": code, "name": name, "calls": calls}).encode()
        job = waiting.jobs.setdefault(body, _Job(body, len(calls)))
        async with waiting.lock:
            while job.results is None:
                batch = [*islice(waiting.jobs.values(), MAX_BATCH)]
                await self._run(batch)
                for done in batch:  # after a cancellation or a failure they wait for the next one who has the lock
                    del waiting.jobs[done.body]
        return job.results or [None] * len(calls)

    async def _run(self, batch: Sequence[_Job]) -> None:
        await self._play(batch)
        for job in batch:
            if job.results is None:
                await self._play([job])
                if job.results is None:  # it ended the process that it was alone in
                    job.results = []

    async def _play(self, batch: Sequence[_Job]) -> None:
        """Fill in the results that come out of one sandboxed process."""
        token = secrets.token_hex(16)
        source = f"{_WORKER.read_text('utf-8')}\nserve({self.seconds}, {token!r})\n"
        async with self._open() as sandbox:
            await sandbox.write("worker.py", source.encode())
            child = await sandbox.start(["python3", "-I", "worker.py"])
            try:
                worker = Worker(child, max_bytes=MAX_ANSWER_BYTES)
                for number, job in enumerate(batch):
                    request = struct.pack("<I", len(job.body)) + job.body
                    line = await worker.ask(request, seconds=SPARE_SECONDS + self.seconds)
                    if not line.startswith(head := f"{token} {number} ".encode()):
                        break
                    job.take(json.loads(line.removeprefix(head)))
            except NoReply as none:
                if none.why == "died" and len(batch) == 1:
                    await _raise_unless_begun(child)
            finally:
                await end_all([child])


async def _raise_unless_begun(child: Child) -> None:
    """A process that could not even begin is a fault of the sandbox; a signal is the program's doing."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SPARE_SECONDS):
            await child.exited()
    if not child.alive and child.code < 128:
        raise RubricFailure(f"programs cannot be run in the sandbox: {child.last_words or f'exit status {child.code}'}")
