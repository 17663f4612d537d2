"""Toolsets: tools that are made for an episode, with what they share, and unmade after it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from wanderlust.core.contracts import Episode, Tool
from wanderlust.core.errors import UsageError
from wanderlust.tools.function import FunctionTool, tool


@runtime_checkable
class Toolset(Protocol):
    """Makes the tools of one episode."""

    def open(self, episode: Episode) -> AbstractAsyncContextManager[Sequence[Tool]]:
        """The tools, inside the block; leaving it frees what they hold, however the episode ended."""
        ...


Source: TypeAlias = Tool | Toolset | Callable[..., Any]
"""Where tools come from: a tool, a toolset, or a plain typed function."""


@dataclass(frozen=True, eq=False)
class _Made:
    """A toolset written as an asynchronous generator."""

    make: Callable[[Episode], AsyncIterator[Iterable[Source]]]

    @asynccontextmanager
    async def open(self, episode: Episode) -> AsyncIterator[Sequence[Tool]]:
        """Run the generator to its `yield`, and on after the block."""
        async with asynccontextmanager(self.make)(episode) as sources, opened(sources, episode) as tools:
            yield tools


def toolset(make: Callable[[Episode], AsyncIterator[Iterable[Source]]]) -> Toolset:
    """`@toolset async def shop(episode): cart = []; yield [...]; episode.state["cart"] = cart`.

    What is yielded may be functions, methods of an object of this episode, tools, and further toolsets.
    """
    return _Made(make)


@asynccontextmanager
async def opened(sources: Iterable[Source], episode: Episode) -> AsyncIterator[list[Tool]]:
    """The tools of all sources, for the time of the block. Raises UsageError when two have the same name."""
    async with AsyncExitStack() as stack:
        tools: list[Tool] = []
        for source in sources:
            if isinstance(source, Toolset):
                tools += await stack.enter_async_context(source.open(episode))
            else:
                tools.append(_tool(source))
        names = [one.name for one in tools]
        if twice := {name for name in names if names.count(name) > 1}:
            raise UsageError(f"two tools are called {', '.join(sorted(twice))}: a call could mean either")
        yield tools


def _tool(source: Tool | Callable[..., Any]) -> Tool:
    if isinstance(source, FunctionTool) or all(hasattr(source, name) for name in ("name", "description", "schema")):
        return cast(Tool, source)
    if callable(source):
        return tool(source)
    raise UsageError(f"{source!r} is neither a tool, nor a toolset, nor a function")
