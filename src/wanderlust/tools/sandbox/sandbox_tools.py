"""Tools for a model over the sandbox of one episode: a shell and a Python session."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from wanderlust.errors import printable
from wanderlust.tools.sandbox.base import Sandbox
from wanderlust.tools.sandbox.python_session import PythonSession

MAX_ARGUMENT_BYTES = 100_000
"""Longest command that fits into a program's arguments; a longer one is passed as input."""
_NOTES = {
    "time": "stopped: time is up",
    "output": "stopped: too much output",
    "died": "the Python process ended",
    "forged": "stopped: the code wrote to the session's result channel",
}


class SandboxTools:
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()


def _render_output(text: str, words: list[str]) -> str:
    """The output, followed by notes in brackets."""
    return "\n".join([*([printable(text).rstrip("\n")] if text else []), *([f"[{'; '.join(words)}]"] if words else [])])
