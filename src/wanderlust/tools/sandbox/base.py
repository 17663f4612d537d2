"""What every sandbox offers, the bounds it keeps, and what a command came to.

A command played to its end within its bounds, however much it writes and however little it wants to stop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from wanderlust.errors import SandboxFailure, one_line
from wanderlust.tools.process import CHUNK_BYTES, Child, wait_readable

MEBI = 1 << 20

ReachedLimit = Literal["", "time", "output"]
"""Why a command was ended early: it was not, its time was up, or it flooded its output."""

SandboxCommand = str | Sequence[str]
"""A line for `sh`, or a program with its arguments."""


class NotIsolatedWarning(UserWarning):
    """Commands run on this machine with nothing but resource limits around them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxBounds:
    """What a sandbox may use. The system keeps every one of them; none is a request to the command."""

    seconds: float = 30.0
    """Wall-clock seconds of one command."""
    memory: int = 512 * MEBI
    """Bytes of address space per process; with a writable control group `memory + disk` is the total of the sandbox."""
    processes: int = 64
    """Processes and threads of one command."""
    files: int = 256
    """Open files per process."""
    disk: int = 256 * MEBI
    """Bytes that may be written since the folder was made, forked or undone; also the largest file."""
    entries: int = 20_000
    """Files and folders that may be made, counted like `disk`."""
    output: int = 64 << 10
    """Bytes kept of each output stream: the first and the last half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one command came to."""

    code: int
    """Exit status; 128 + the signal's number when a signal ended it."""
    stdout: bytes = b""
    stderr: bytes = b""
    reached_limit: ReachedLimit = ""
    isolated: bool = True
    """False when the command ran with nothing but resource limits around it."""

    @property
    def text(self) -> str:
        """Both streams as text, output first; bytes that are no UTF-8 are replaced."""
        return (self.stdout + self.stderr).decode("utf-8", "replace")


class Sandbox(Protocol):
    """A place where hostile commands run, with a private folder that is theirs.

    One sandbox serves one episode. Commands may run side by side; `fork`, `undo` and `close` want none running.
    Machinery that fails raises SandboxFailure, whatever a command does is a `Result`.
    """

    bounds: SandboxBounds
    isolated: ClassVar[bool]
    """Whether anything but resource limits stands between a command and this machine."""

    async def run(self, command: SandboxCommand, *, stdin: bytes = b"", timeout: float | None = None) -> Result:  # noqa: ASYNC109
        """Run a command in the folder to its end, or to `timeout` seconds; nothing that it started outlives it.

        `timeout` never exceeds `bounds.seconds`, which is the default.
        """
        ...

    async def start(self, command: SandboxCommand) -> Child:
        """Start a program that outlives the call; `fork`, `undo` and `close` end it."""
        ...

    async def read(self, path: str, *, limit: int = MEBI) -> bytes:
        """The first `limit` bytes of a file of the folder.

        Raises FileNotFoundError, or PermissionError for what leaves the folder or is no regular file.
        """
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Write a file of the folder, its parent folders included; raises like `read`, or OSError when it is full."""
        ...

    async def fork(self) -> Sandbox:
        """A second, independent sandbox whose folder starts as this one's is now."""
        ...

    async def undo(self) -> None:
        """Take the folder back to the last `fork` from it, or to when it was made."""
        ...

    async def close(self) -> None:
        """End everything that runs and forget the folder; a second call does nothing."""
        ...


FLOOD_FACTOR = 64
"""A command that writes this many times what is kept of a stream is ended."""
LATE_OUTPUT_SECONDS = 0.5
"""Seconds that output may still come after the end, from what has escaped where nothing isolates."""


@dataclass(slots=True)
class BoundedOutput:
    """The first and the last bytes of a stream, at most `limit` in all."""

    limit: int
    total: int = 0
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)

    def add(self, data: bytes) -> None:
        """Take more of the stream."""
        self.total += len(data)
        room = self.limit // 2 - len(self.head)
        self.head += data[: max(room, 0)]
        self.tail += data[max(room, 0) :]
        del self.tail[: -(self.limit - self.limit // 2)]

    @property
    def flooded(self) -> bool:
        """Whether more came than any honest command writes."""
        return self.total > FLOOD_FACTOR * max(self.limit, CHUNK_BYTES)

    def content(self) -> bytes:
        """What was kept, and between its halves a line that says how much was not."""
        left_out = self.total - len(self.head) - len(self.tail)
        middle = f"\n[... {left_out:,} bytes left out ...]\n".encode() if left_out else b""
        return bytes(self.head) + middle + bytes(self.tail)


async def drain(child: Child, fd: int, output: BoundedOutput) -> None:
    """Read a stream of the child to its end; kills the child when it floods."""
    while True:
        await wait_readable(fd)
        with suppress(BlockingIOError):
            data = os.read(fd, CHUNK_BYTES)
            if not data:
                return
            output.add(data)
            if output.flooded:
                child.kill()
                return


async def run_bounded(child: Child, *, stdin: bytes, seconds: float, output: int) -> Result:
    """The result of a started child, of which nothing is alive afterwards, not even when this is cancelled.

    Raises SandboxFailure when the sandbox around the program could not be set up.
    """
    streams, stopped = (BoundedOutput(output), BoundedOutput(output)), False
    fault: SandboxFailure | None = None
    async with asyncio.TaskGroup() as group:
        drains = [
            group.create_task(drain(child, fd, k)) for fd, k in zip((child.stdout, child.stderr), streams, strict=True)
        ]
        feeding = group.create_task(child.feed(stdin))
        try:
            async with asyncio.timeout(seconds):
                await child.adopt()
                await child.exited()
        except TimeoutError:
            stopped = True
        finally:
            fault = await _end_child(child)
        feeding.cancel()
        _, late = await asyncio.wait(drains, timeout=LATE_OUTPUT_SECONDS)
        for task in late:
            task.cancel()
    if fault is not None:
        raise fault
    flooded = any(k.flooded for k in streams)
    stop: ReachedLimit = "output" if flooded else "time" if stopped else ""
    if not stop and not child.began:
        why = one_line(streams[1].content().decode("utf-8", "replace")) or f"exit status {child.code}"
        raise SandboxFailure(f"the sandbox could not be set up: {why}")
    return Result(code=child.code, stdout=streams[0].content(), stderr=streams[1].content(), reached_limit=stop)


async def _end_child(child: Child) -> SandboxFailure | None:
    """End the child; what went wrong is returned, because a task group would wrap what is raised."""
    try:
        await child.end()
    except SandboxFailure as error:
        return error
    return None
