"""A program in its own process: its pipes, its end, and the end of everything that it started."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

from wanderlust.core.errors import SandboxFailure

CHUNK = 1 << 16
GRACE = 5.0
"""Seconds within which a killed process is gone; the kernel takes milliseconds."""


async def readable(fd: int) -> None:
    """Wait until `fd` has something to read, is at its end, or (a pidfd) its process has ended."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


async def writable(fd: int) -> None:
    """Wait until `fd` takes something or its reader is gone."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(fd)


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
        """Start `argv`; `status` is a pipe on which bubblewrap tells of it, and belongs to the child from here on."""
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
        self._status, self._told = status, b""
        self._exit, self._init = os.pidfd_open(self.pid), -1
        self.stdin, self.stdout, self.stderr = (_unblocked(pipe) for pipe in self._pipes())
        self.sweep: Callable[[], None] | None = None
        """What else to end, where no kernel does it."""

    def _pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        popen = self._popen
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        return popen.stdin, popen.stdout, popen.stderr

    async def adopt(self) -> None:
        """Learn which process is the sandbox's first: when that one ends, the kernel ends all the others."""
        while self._status is not None and not self._learn():
            await readable(self._status)
            if not (data := os.read(self._status, CHUNK)):
                return
            self._told += data

    def _learn(self) -> bool:
        """Take the first process from what bubblewrap has told; False when that is not enough yet."""
        if b"}" not in self._told:
            return False
        told = json.loads(self._told.split(b"\n", 1)[0])
        with suppress(OSError):
            init = os.pidfd_open(told["child-pid"])
            # The number may have passed to a stranger by now; the namespace cannot have.
            if self._init < 0 and _namespace(told["child-pid"]) == told["pid-namespace"]:
                self._init = init
            else:
                os.close(init)
        return True

    def _listen(self) -> None:
        """Take what bubblewrap has told so far."""
        if self._status is not None:
            os.set_blocking(self._status, False)
            with suppress(BlockingIOError):
                self._told += os.read(self._status, CHUNK)

    @property
    def began(self) -> bool:
        """Whether the program itself was reached, as bubblewrap told at its end; true where nobody tells."""
        self._listen()
        return self._status is None or b"exit-code" in self._told

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

    async def exited(self) -> None:
        """Wait for the program's own end."""
        await readable(self._exit)

    def kill(self) -> None:
        """Kill it and all that it started, without waiting."""
        if self._init >= 0:  # Whoever watches over it ends by itself then, and takes the dead from the process table.
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
        else:
            self._popen.kill()
        if self.sweep is not None:
            self.sweep()

    async def end(self) -> None:
        """Kill it and all that it started, and wait until the last of them is gone."""
        try:
            async with asyncio.timeout(GRACE):
                # bubblewrap killed while it sets up would leave a first process that waits for it for ever.
                await self.adopt()
                self.kill()
                await readable(self._exit)
                if self._init >= 0:
                    await readable(self._init)
        except TimeoutError as error:
            raise SandboxFailure(f"process {self.pid} was killed and is still there after {GRACE:g} s") from error
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
        """Write all of `data`; raises BrokenPipeError when nobody reads any more."""
        rest = memoryview(data)
        while rest:
            await writable(self.stdin)
            with suppress(BlockingIOError):
                rest = rest[os.write(self.stdin, rest) :]


def _unblocked(pipe: IO[bytes]) -> int:
    os.set_blocking(pipe.fileno(), False)
    return pipe.fileno()


def _namespace(pid: int) -> int:
    """The process namespace of `pid`; 0 when it may not be seen."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return 0


async def end_all(children: list[Child]) -> None:
    """Nothing of these is alive afterwards, and the list is empty."""
    for child in children:
        if not child.closed:
            await child.end()
            child.close()
    children.clear()
