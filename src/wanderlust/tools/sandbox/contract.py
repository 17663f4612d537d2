"""What every sandbox offers, the bounds it keeps, and what a command came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from wanderlust.tools.sandbox.child import Child

MEBI = 1 << 20

Stopped = Literal["", "time", "output"]
"""Why a command was ended early: it was not, its time was up, or it flooded its output."""

Command = str | Sequence[str]
"""A line for `sh`, or a program with its arguments."""


class NotIsolated(UserWarning):
    """Commands run on this machine with nothing but resource limits around them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
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
    stopped: Stopped = ""
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

    bounds: Bounds
    isolated: ClassVar[bool]
    """Whether anything but resource limits stands between a command and this machine."""

    async def run(self, command: Command, *, stdin: bytes = b"", timeout: float | None = None) -> Result:  # noqa: ASYNC109
        """Run a command in the folder to its end, or to `timeout` seconds; nothing that it started outlives it.

        `timeout` never exceeds `bounds.seconds`, which is the default.
        """
        ...

    async def start(self, command: Command) -> Child:
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
