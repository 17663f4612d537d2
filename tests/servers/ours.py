"""A server of our own tools over standard input and output, for the tests to start."""

import asyncio
import os

from wanderlust.errors import ToolFailure
from wanderlust.tools.function import toolset
from wanderlust.tools.mcp_server import serve_stdio


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
