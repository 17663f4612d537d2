"""A Python session in a sandbox: names live from cell to cell, output is captured, and every end is reported.

And the tools of a model over the sandbox of one episode: a shell and such a session.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from wanderlust.errors import printable
from wanderlust.tools.process import end_all
from wanderlust.tools.sandbox.base import BoundedOutput, Closing, Sandbox, drain
from wanderlust.tools.worker import NoReply, Worker

CellStatus = Literal["done", "error", "time", "output", "died", "forged"]
"""`error`: it raised; `time`, `output`: a bound; `died`: its process ended; `forged`: its status was not genuine."""

SESSION_START_SECONDS = 10.0
"""Seconds that an interpreter may take to start, besides the first cell's own."""
CELL_GRACE_SECONDS = 1.0
"""Seconds after a cell's time within which the session must have stopped it; the session is ended otherwise."""
MAX_STATUS_BYTES = 4096
"""Longest status of a cell."""
_SOURCE = files(__package__).joinpath("python_session_child.py").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The result of one cell."""

    output: str
    """Everything that it and its processes wrote, traceback and last value included."""
    status: CellStatus
    lost: bool
    """True when the session ended with this cell: names are gone, the next cell begins a new one."""
    fresh: bool
    """True when this cell began a new session."""


class PythonSession(Closing):
    """One interpreter that runs cells one at a time, started with the first cell and again after every end.

    Cells are not isolated from each other: they share the interpreter. Their status is checked as untrusted text; a
    cell can neither keep the caller waiting nor make it hold more than `bounds.output`. `fork` and `undo` of the
    sandbox end the session, and the next cell is marked as fresh.
    """

    def __init__(self, sandbox: Sandbox, *, python: str):
        self.sandbox, self.python = sandbox, python
        self._worker: Worker | None = None
        self._lock = asyncio.Lock()

    async def run(self, source: str, *, timeout: float | None = None) -> Cell:  # noqa: ASYNC109
        """Run a cell to its end, or to `timeout` seconds (the sandbox's own bound at most, and by default)."""
        bound = self.sandbox.bounds.seconds
        async with self._lock:
            return await self._run(source, bound if timeout is None else min(timeout, bound))

    async def _run(self, source: str, seconds: float) -> Cell:
        worker, fresh = self._worker, False
        if worker is None or not worker.alive:
            fresh, child = True, await self.sandbox.start([self.python, "-I", "-c", _SOURCE])
            worker = self._worker = Worker(child, max_bytes=MAX_STATUS_BYTES, answers=child.stderr)
        child, output, token = worker.child, BoundedOutput(self.sandbox.bounds.output), secrets.token_hex(8)
        body = source.encode("utf-8", "replace")
        status: CellStatus = "died"
        late = False
        async with asyncio.TaskGroup() as group:
            draining = group.create_task(drain(child, child.stdout, output))
            try:
                request = f"{len(body)} {token} {seconds}\n".encode() + body
                bound = seconds + CELL_GRACE_SECONDS + SESSION_START_SECONDS * fresh
                status = _read_status(await worker.ask(request, seconds=bound), token)
            except NoReply as none:
                late = none.why == "time"
                status = "died" if none.why == "died" else "forged"
            except asyncio.CancelledError:
                await self.close()
                raise
            finally:
                draining.cancel()
        late_bytes = b""
        with suppress(BlockingIOError):  # the pipe holds at most this much
            while len(late_bytes) < 1 << 20 and (more := os.read(child.stdout, 1 << 16)):
                late_bytes += more
        output.add(late_bytes)
        if output.flooded:
            status = "output"
        elif late:
            status = "time"
        lost = late or status in ("died", "forged", "output")
        if lost:
            await self.close()
        return Cell(output=output.content().decode("utf-8", "replace"), status=status, lost=lost, fresh=fresh)

    async def close(self) -> None:
        """End the session; the next cell begins a new one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await end_all([worker.child])


def _read_status(reply: bytes, token: str) -> CellStatus:
    """The cell's status; every other text is `forged`."""
    try:
        word = json.loads(reply)
    except (ValueError, RecursionError):
        return "forged"
    answers = reply.startswith(b"{") and isinstance(word, dict) and word.get("token") == token
    honest = answers and word.get("ended") in ("done", "error", "time")
    return word["ended"] if honest else "forged"


MAX_ARGUMENT_BYTES = 100_000
"""Longest command that fits into a program's arguments; a longer one is passed as input."""
_NOTES = {
    "time": "stopped: time is up",
    "output": "stopped: too much output",
    "died": "the Python process ended",
    "forged": "stopped: the code wrote to the session's result channel",
}


class SandboxTools(Closing):
    """`bash` and `python` over one sandbox; what they return is text for the model. `close` closes the sandbox too."""

    def __init__(self, sandbox: Sandbox, *, python: str = "python3"):
        self.sandbox = sandbox
        self.session = PythonSession(sandbox, python=python)

    async def bash(self, command: str) -> str:
        """Run a command in bash, in the working folder; files stay, variables and processes do not.

        Args:
            command: The command line or script.
        """
        encoded = command.encode("utf-8", "replace")
        if len(encoded) <= MAX_ARGUMENT_BYTES:
            result = await self.sandbox.run(["bash", "-c", command])
        else:
            result = await self.sandbox.run(["bash", "-c", 'eval "$(cat)"'], stdin=encoded)
        words = [_NOTES[result.reached_limit]] if result.reached_limit else []
        words += [f"exit status {result.code}"] if result.code and not words else []
        return _render_output(result.text, words)

    async def python(self, code: str) -> str:
        """Run Python code in a session that keeps its variables; returns what it prints and the last value.

        Args:
            code: The source code of one cell.
        """
        cell = await self.session.run(code)
        words = [_NOTES[cell.status]] if cell.status in _NOTES else []
        words += ["all variables are lost, the next call begins a new session"] if cell.lost else []
        return _render_output(cell.output, words)

    async def close(self) -> None:
        """End the session and the sandbox."""
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self.sandbox.close)
            await self.session.close()


def _render_output(text: str, words: list[str]) -> str:
    """The output, followed by notes in brackets."""
    return "\n".join([*([printable(text).rstrip("\n")] if text else []), *([f"[{'; '.join(words)}]"] if words else [])])
