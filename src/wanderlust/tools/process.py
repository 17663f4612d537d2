"""Programs in processes of their own: bounded outputs, their end, and the end of everything that they started.

`run_program` gives a program one input and kills its session at the end; `Child` is a program with open pipes, for
sandboxes. Not covered: isolation of any kind; and, by `run_program`, a child that puts itself into another session.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import IO

from wanderlust.errors import EnvironmentFailure, SandboxFailure, one_line

MAX_OUTPUT_BYTES = 64 * 2**10
"""Last bytes of each of a program's outputs that are kept."""
DRAIN_SECONDS = 1.0
"""Seconds that outputs are read after the end."""


class ProgramNotStarted(EnvironmentFailure):
    """A program could not be started."""


class ProgramOutput(asyncio.Protocol):
    """The output of a program.

    With the pipes of `asyncio.subprocess`, a process has not ended as long as a child of it holds one.
    """

    def __init__(self) -> None:
        self._tail = bytearray()
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Keep the last MAX_OUTPUT_BYTES."""
        self._tail += data
        del self._tail[:-MAX_OUTPUT_BYTES]

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark the output as read to its end."""
        self.closed.set()

    @property
    def text(self) -> str:
        """The bytes that are kept, as text."""
        return self._tail.decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProgram:
    """A started program."""

    process: Process
    stdout: ProgramOutput
    stderr: ProgramOutput

    def kill(self) -> None:
        """End it and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def end(self) -> int:
        """Kill the program and read the outputs to their ends; returns the exit code, as `subprocess` has it."""
        self.kill()
        code = await self.process.wait()
        with suppress(TimeoutError):  # a child in another session may hold the outputs open
            async with asyncio.timeout(DRAIN_SECONDS):
                await self.stdout.closed.wait()
                await self.stderr.closed.wait()
        return code


@asynccontextmanager
async def run_program(
    argv: Sequence[str], stdin_bytes: bytes, variables: Mapping[str, str]
) -> AsyncIterator[RunningProgram]:
    """Start `argv` in the folder `variables["HOME"]`, with these environment variables and input alone.

    It is killed at the end of the block, with its children. ProgramNotStarted when it cannot be started.
    """
    with ExitStack() as stack:
        stdin = stack.enter_context(tempfile.TemporaryFile())
        stdin.write(stdin_bytes)
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
            raise ProgramNotStarted(f"cannot start {one_line(str(argv[0]))!r}: {error}") from error
        finally:
            os.close(out)
            os.close(err)
        started = RunningProgram(process=process, stdout=stdout, stderr=stderr)
        try:
            yield started
        finally:
            started.kill()
            await process.wait()


async def _pipe(stack: ExitStack) -> tuple[ProgramOutput, int]:
    """Make an output, and the end of its pipe for the program."""
    reading, writing = os.pipe()
    end = os.fdopen(reading, "rb", buffering=0)
    transport, output = await asyncio.get_running_loop().connect_read_pipe(ProgramOutput, end)
    stack.callback(transport.close)
    return output, writing


CHUNK_BYTES = 1 << 16
EXIT_GRACE_SECONDS = 5.0
"""Seconds within which a killed process is gone; the kernel takes milliseconds."""


async def wait_readable(fd: int) -> None:
    """Wait until `fd` has data, is at its end, or (a pidfd) its process has ended."""
    loop = asyncio.get_running_loop()
    await _wait_for(fd, loop.add_reader, loop.remove_reader)


async def wait_writable(fd: int) -> None:
    """Wait until `fd` takes data or its reader is gone."""
    loop = asyncio.get_running_loop()
    await _wait_for(fd, loop.add_writer, loop.remove_writer)


async def _wait_for(fd: int, add: Callable[..., object], remove: Callable[[int], object]) -> None:
    ready = asyncio.Event()
    add(fd, ready.set)
    try:
        await ready.wait()
    finally:
        remove(fd)


class Child:
    """A started program. `end` leaves nothing of it alive, `close` after it gives back its pipes."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        status: int | None = None,
        pass_fds: Sequence[int] = (),
        cwd: str | None = None,
    ):
        """Start `argv`; `status` is the pipe of bubblewrap's status, which the child closes in the end."""
        self._popen = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        self.pid = self._popen.pid
        self._status, self._status_output = status, b""
        self._exit, self._init = os.pidfd_open(self.pid), -1
        for pipe in self._pipes():
            os.set_blocking(pipe.fileno(), False)
        self.stdin, self.stdout, self.stderr = (pipe.fileno() for pipe in self._pipes())
        self.sweep: Callable[[], None] | None = None
        """Kills further processes, where no kernel does it."""

    def _pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        popen = self._popen
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        return popen.stdin, popen.stdout, popen.stderr

    async def adopt(self) -> None:
        """Find the sandbox's first process: when it ends, the kernel ends all the others."""
        while self._status is not None and b"}" not in self._status_output:
            await wait_readable(self._status)
            if not (data := os.read(self._status, CHUNK_BYTES)):
                return
            self._status_output += data
        if self._status is None:
            return
        status = json.loads(self._status_output.split(b"\n", 1)[0])
        with suppress(OSError):
            init = os.pidfd_open(status["child-pid"])
            # The number may have passed to a stranger by now; the namespace cannot have.
            if self._init < 0 and _namespace(status["child-pid"]) == status["pid-namespace"]:
                self._init = init
            else:
                os.close(init)

    @property
    def began(self) -> bool:
        """Whether the program itself was started, by bubblewrap's status at its end; true without a status."""
        if self._status is None:
            return True
        os.set_blocking(self._status, False)
        with suppress(BlockingIOError):
            self._status_output += os.read(self._status, CHUNK_BYTES)
        return b"exit-code" in self._status_output

    @property
    def code(self) -> int:
        """Exit status after the end; 128 + the signal's number when a signal ended it."""
        code = self._popen.returncode
        return 128 - code if code < 0 else code

    @property
    def alive(self) -> bool:
        """Whether the program still runs."""
        return self._popen.poll() is None

    @property
    def closed(self) -> bool:
        """Whether its pipes have been given back."""
        return self._exit < 0

    @property
    def unread_errors(self) -> str:
        """What it has written to its standard error, where nobody else reads that; each is given once."""
        text = b""
        with suppress(BlockingIOError):
            text = os.read(self.stderr, CHUNK_BYTES)
        return text.decode("utf-8", "replace").strip()

    @property
    def last_words(self) -> str:
        """The last line of `unread_errors`; empty without one."""
        return one_line(self.unread_errors.rpartition("\n")[2])

    def wait(self, seconds: float) -> int:
        """Block until the program has ended; after `seconds` it is killed. The status is as `subprocess` has it."""
        with suppress(subprocess.TimeoutExpired):
            return self._popen.wait(seconds)
        self._popen.kill()
        return self._popen.wait()

    async def exited(self) -> None:
        """Wait for the program's own end."""
        await wait_readable(self._exit)

    def kill(self) -> None:
        """Kill it and all that it started, without waiting."""
        if self._init >= 0:  # Its monitor ends by itself then, and takes the dead from the process table.
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
        else:
            self._popen.kill()
        if self.sweep is not None:
            self.sweep()

    async def end(self) -> None:
        """Kill it and all that it started, and wait until the last of them is gone."""
        try:
            async with asyncio.timeout(EXIT_GRACE_SECONDS):
                # bubblewrap killed while it sets up would leave a first process that waits for it for ever.
                await self.adopt()
                self.kill()
                await wait_readable(self._exit)
                if self._init >= 0:
                    await wait_readable(self._init)
        except TimeoutError as error:
            raise SandboxFailure(
                f"process {self.pid} was killed and is still there after {EXIT_GRACE_SECONDS:g} s"
            ) from error
        finally:
            self._popen.kill()
            self._popen.wait()

    def close(self) -> None:
        """Give back its pipes, after its end."""
        for pipe in self._pipes():
            with suppress(OSError):
                pipe.close()
        for fd in (self._exit, self._init, -1 if self._status is None else self._status):
            if fd >= 0:
                os.close(fd)
        self._status, self._exit, self._init = None, -1, -1

    async def feed(self, data: bytes) -> None:
        """Write all of `data`, then close its input; a reader that is gone takes the rest with it."""
        with suppress(BrokenPipeError):
            await self.send(data)
        with suppress(BrokenPipeError):
            self._pipes()[0].close()

    async def send(self, data: bytes) -> None:
        """Write all of `data`; raises BrokenPipeError when the reader is gone."""
        rest = memoryview(data)
        while rest:
            await wait_writable(self.stdin)
            with suppress(BlockingIOError):
                rest = rest[os.write(self.stdin, rest) :]


def _namespace(pid: int) -> int:
    """The process namespace of `pid`; 0 where it is not readable."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return 0


async def end_all(children: list[Child]) -> None:
    """End and close these children, and empty the list: all of them, even where one fails or this is cancelled."""
    async with AsyncExitStack() as ending:
        for child in children:
            ending.push_async_callback(_end_and_close, child)
        children.clear()


async def _end_and_close(child: Child) -> None:
    if not child.closed:
        try:
            await child.end()
        finally:
            child.close()
