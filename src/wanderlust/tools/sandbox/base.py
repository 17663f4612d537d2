"""The protocol of sandboxes, their bounds, the result of a command, and the bounded run of a started child."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec, Protocol, Self, TypeVar

from wanderlust.errors import SandboxFailure, one_line
from wanderlust.tools.process import CHUNK_BYTES, Child, wait_readable

MEBI = 1 << 20

ReachedLimit = Literal["", "time", "output"]
"""Why a command was ended early: not at all, at its time limit, or for too much output."""

SandboxCommand = str | Sequence[str]
"""A line for `sh`, or a program with its arguments."""


class NotIsolatedWarning(UserWarning):
    """Commands run on this machine without isolation, with resource limits alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxBounds:
    """Resources of a sandbox. The system enforces every bound."""

    seconds: float = 30.0
    """Wall-clock seconds of one command."""
    memory: int = 512 * MEBI
    """Bytes of each process's address space; with a writable control group, of each one's private memory in use, and
    `memory + disk` is the total of the sandbox."""
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
    """The result of one command."""

    code: int
    """Exit status; 128 + the signal's number when a signal ended it."""
    stdout: bytes = b""
    stderr: bytes = b""
    reached_limit: ReachedLimit = ""
    isolated: bool = True
    """False when the command ran without isolation, with resource limits alone."""

    @property
    def text(self) -> str:
        """Both streams as text, output first; bytes that are no UTF-8 are replaced."""
        return (self.stdout + self.stderr).decode("utf-8", "replace")


class Closing:
    """What `async with` closes at the end of the block."""

    async def close(self) -> None:
        """Give back what it holds; a second call does nothing."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


OpenedT = TypeVar("OpenedT", bound=AbstractAsyncContextManager[Any])
P = ParamSpec("P")


class Opening(Coroutine[Any, Any, OpenedT]):
    """The coroutine that opens something; `async with` gives it as `await` does, and closes it at the end."""

    def __init__(self, opening: Coroutine[Any, Any, OpenedT]):
        self._opening, self._stack = opening, AsyncExitStack()

    def send(self, value: Any) -> Any:
        """As of the coroutine."""
        return self._opening.send(value)

    def throw(self, *error: Any) -> Any:
        """As of the coroutine."""
        return self._opening.throw(*error)

    def close(self) -> None:
        """Open nothing."""
        self._opening.close()

    def __await__(self) -> Generator[Any, None, OpenedT]:
        return self._opening.__await__()

    async def __aenter__(self) -> OpenedT:
        opened = await self._opening
        await self._stack.enter_async_context(opened)
        return opened

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


def opens(function: Callable[P, Coroutine[Any, Any, OpenedT]]) -> Callable[P, Opening[OpenedT]]:
    """Make a function whose result is opened by `await` or by `async with`."""

    @wraps(function)
    def opening(*args: P.args, **named: P.kwargs) -> Opening[OpenedT]:
        return Opening(function(*args, **named))

    return opening


class Sandbox(Protocol):
    """Runs hostile commands in a private folder.

    One sandbox serves one episode. Commands may run in parallel; `fork`, `undo` and `close` need all of them ended.
    Faults of the machinery raise SandboxFailure; the outcome of a command is always a `Result`.
    """

    bounds: SandboxBounds

    @property
    def isolated(self) -> bool:
        """Whether commands are separated from this machine by more than resource limits."""
        ...

    async def run(self, command: SandboxCommand, *, stdin: bytes = b"", timeout: float | None = None) -> Result:  # noqa: ASYNC109
        """Run a command in the folder to its end, or to `timeout` seconds; nothing that it started outlives it.

        `timeout` never exceeds `bounds.seconds`, which is the default.
        """
        ...

    async def start(self, command: SandboxCommand, *, env: Mapping[str, str] | None = None) -> Child:
        """Start a program that outlives the call, with these environment variables besides the usual ones.

        `fork`, `undo` and `close` end it.
        """
        ...

    async def listen(self) -> socket.socket:
        """A TCP socket that listens on the loopback of the sandbox, for this process to answer; the caller closes it.

        An isolated sandbox has a network of its own, where nobody else comes to the socket. Raises SandboxFailure where
        there can be none.
        """
        ...

    async def read(self, path: str, *, limit: int = MEBI) -> bytes:
        """The first `limit` bytes of a file of the folder.

        Raises FileNotFoundError, or PermissionError for what leaves the folder or is no regular file.
        """
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Write a file of the folder, its parent folders included; raises like `read`, or OSError when it is full."""
        ...

    async def put(self, source: Path, path: str = ".") -> None:
        """Copy what lies in the folder `source` of this machine into a folder, which is made; raises like `write`."""
        ...

    async def get(self, target: Path, path: str = ".", *, limit: int | None = None) -> None:
        """Copy a folder into the empty folder `target` of this machine: its folders and regular files.

        Raises like `read`, or OSError where it has more than `limit` bytes, `bounds.disk` by default.
        """
        ...

    async def fork(self) -> Sandbox:
        """A second, independent sandbox whose folder starts as this one's is now."""
        ...

    async def undo(self) -> None:
        """Take the folder back to the last `fork` from it, or to when it was made."""
        ...

    async def close(self) -> None:
        """End all processes and delete the folder, as `async with` does; a second call does nothing."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...


FLOOD_FACTOR = 64
"""A command is ended when a stream has this many times the bytes that are kept."""
LATE_OUTPUT_SECONDS = 0.5
"""Seconds that output is read after the end: without isolation, an escaped process may still write."""


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
        """Whether the stream has more bytes than any honest command writes."""
        return self.total > FLOOD_FACTOR * max(self.limit, CHUNK_BYTES)

    def content(self) -> bytes:
        """The kept bytes, and between their halves a line with the number of those left out."""
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


NOT_EXECUTABLE_STATUS = 126
"""Exit status, as of a shell, of a command that cannot be started."""
NOT_FOUND_STATUS = 127
"""Exit status, as of a shell, of a command that there is not."""


async def run_to_end(
    spawn: Callable[[], Child], *, stdin: bytes, seconds: float | None, bounds: SandboxBounds, output: int
) -> Result:
    """Start a child and run it as `run_bounded` does, for `seconds`, but at most for the sandbox's own bound.

    A command that cannot be started has a result as well. Raises SandboxFailure.
    """
    try:
        child = spawn()
    except (ValueError, OSError) as error:
        return Result(code=NOT_EXECUTABLE_STATUS, stderr=f"this command cannot be started: {error}".encode())
    try:
        bound = bounds.seconds if seconds is None else min(seconds, bounds.seconds)
        return await run_bounded(child, stdin=stdin, seconds=bound, output=output)
    finally:
        child.close()


async def run_bounded(child: Child, *, stdin: bytes, seconds: float, output: int) -> Result:
    """Run a started child to its end within its bounds; none of its processes is alive afterwards, even if cancelled.

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
            try:
                await child.end()
            except SandboxFailure as error:
                fault = error  # raised below, because a task group would wrap it
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
