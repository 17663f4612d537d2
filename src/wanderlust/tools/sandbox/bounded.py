"""A command played to its end within its bounds, however much it writes and however little it wants to stop."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field

from wanderlust.core.errors import SandboxFailure
from wanderlust.core.text import one_line
from wanderlust.tools.sandbox.child import CHUNK, Child, readable
from wanderlust.tools.sandbox.contract import Result, Stopped

FLOOD = 64
"""A command that writes this many times what is kept of a stream is ended."""
LEFTOVER = 0.5
"""Seconds that output may still come after the end, from what has escaped where nothing isolates."""


@dataclass(slots=True)
class Kept:
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
        return self.total > FLOOD * max(self.limit, CHUNK)

    def content(self) -> bytes:
        """What was kept, and between its halves a line that says how much was not."""
        left_out = self.total - len(self.head) - len(self.tail)
        middle = f"\n[... {left_out:,} bytes left out ...]\n".encode() if left_out else b""
        return bytes(self.head) + middle + bytes(self.tail)


async def drain(child: Child, fd: int, kept: Kept) -> None:
    """Read a stream of the child to its end; kills the child when it floods."""
    while True:
        await readable(fd)
        with suppress(BlockingIOError):
            data = os.read(fd, CHUNK)
            if not data:
                return
            kept.add(data)
            if kept.flooded:
                child.kill()
                return


async def play(child: Child, *, stdin: bytes, seconds: float, output: int) -> Result:
    """The result of a started child, of which nothing is alive afterwards, not even when this is cancelled.

    Raises SandboxFailure when the sandbox around the program could not be set up.
    """
    kept, stopped = (Kept(output), Kept(output)), False
    fault: SandboxFailure | None = None
    async with asyncio.TaskGroup() as group:
        drains = [
            group.create_task(drain(child, fd, k)) for fd, k in zip((child.stdout, child.stderr), kept, strict=True)
        ]
        feeding = group.create_task(child.feed(stdin))
        try:
            async with asyncio.timeout(seconds):
                await child.adopt()
                await child.exited()
        except TimeoutError:
            stopped = True
        finally:
            fault = await _ended(child)
        feeding.cancel()
        _, late = await asyncio.wait(drains, timeout=LEFTOVER)
        for task in late:
            task.cancel()
    if fault is not None:
        raise fault
    flooded = any(k.flooded for k in kept)
    stop: Stopped = "output" if flooded else "time" if stopped else ""
    if not stop and not child.began:
        why = one_line(kept[1].content().decode("utf-8", "replace")) or f"exit status {child.code}"
        raise SandboxFailure(f"the sandbox could not be set up: {why}")
    return Result(code=child.code, stdout=kept[0].content(), stderr=kept[1].content(), stopped=stop)


async def _ended(child: Child) -> SandboxFailure | None:
    """End the child; what went wrong is returned, because a task group would wrap what is raised."""
    try:
        await child.end()
    except SandboxFailure as error:
        return error
    return None
