"""A program in a process of its own: given one text, its outputs bounded, nothing of it left behind.

What this does not cover: isolation of any kind, and a child that puts itself into another session.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass

from wanderlust.core.errors import EnvironmentFailure
from wanderlust.core.text import one_line

KEPT = 64 * 2**10
"""Bytes of each of a program's outputs that are kept: the last ones."""
DRAIN_SECONDS = 1.0


class Output(asyncio.Protocol):
    """What a program prints.

    The pipes of `asyncio.subprocess` do not do: there, a process has not ended as long as a child of it holds one.
    """

    def __init__(self) -> None:
        self._kept = bytearray()
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Keep the last KEPT bytes."""
        self._kept += data
        del self._kept[:-KEPT]

    def connection_lost(self, exc: Exception | None) -> None:
        """All is read."""
        self.closed.set()

    @property
    def text(self) -> str:
        """What was kept."""
        return self._kept.decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A started program."""

    process: Process
    stdout: Output
    stderr: Output

    def kill(self) -> None:
        """End it and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def end(self) -> int:
        """Kill what still runs and read the outputs to their ends; returns the exit code, as `subprocess` has it."""
        self.kill()
        code = await self.process.wait()
        with suppress(TimeoutError):  # a child that fled may hold the outputs open: it is not waited for
            async with asyncio.timeout(DRAIN_SECONDS):
                await self.stdout.closed.wait()
                await self.stderr.closed.wait()
        return code


@asynccontextmanager
async def running(argv: Sequence[str], given: bytes, variables: Mapping[str, str]) -> AsyncIterator[Running]:
    """Start `argv` at home in `variables["HOME"]` with nothing else around it and `given` as its input.

    It is killed at the end of the block, with its children. EnvironmentFailure when it cannot be started.
    """
    with ExitStack() as stack:
        stdin = stack.enter_context(tempfile.TemporaryFile())
        stdin.write(given)
        stdin.seek(0)
        (stdout, out), (stderr, err) = await _pipe(stack), await _pipe(stack)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=variables["HOME"],
                env=dict(variables),
                stdin=stdin,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise EnvironmentFailure(f"cannot start {one_line(str(argv[0]))!r}: {error}") from error
        finally:
            os.close(out)
            os.close(err)
        started = Running(process=process, stdout=stdout, stderr=stderr)
        try:
            yield started
        finally:
            started.kill()
            await process.wait()


async def _pipe(stack: ExitStack) -> tuple[Output, int]:
    """An output, and the end of its pipe that the program gets."""
    reading, writing = os.pipe()
    end = os.fdopen(reading, "rb", buffering=0)
    transport, output = await asyncio.get_running_loop().connect_read_pipe(Output, end)
    stack.callback(transport.close)
    return output, writing
