"""A server of our own tools over standard input and output, for the tests to start."""

import asyncio
import os

from wanderlust.core.errors import ToolFailure
from wanderlust.tools.serve_mcp import serve_stdio
from wanderlust.tools.toolset import toolset


def add(a: int, b: int = 2) -> int:
    """Adds.

    Args:
        a: The first.
    """
    return a + b


def process() -> int:
    """The number of this process."""
    return os.getpid()


def die() -> None:
    """Ends the server in the middle of the call."""
    os._exit(7)


def breaks() -> str:
    """Its machinery is broken."""
    raise ToolFailure("the wire is cut")


@toolset
async def notes(episode):
    lines: list[str] = []

    def note(line: str) -> list[str]:
        """Write a line down."""
        lines.append(line)
        return lines

    yield [note]


if __name__ == "__main__":
    asyncio.run(serve_stdio(add, process, die, breaks, notes))
