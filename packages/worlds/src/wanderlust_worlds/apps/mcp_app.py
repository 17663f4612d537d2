"""An MCP server as an app: its tools are actions, and what it answered is in the log (extra `mcp`)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from inspect import Parameter, Signature
from typing import Any, Protocol

from wanderlust.errors import ToolFailure, UsageError
from wanderlust.tools.function import ToolError, WrongArguments
from wanderlust.tools.mcp_toolset import McpServer
from wanderlust.types import Tool
from wanderlust_worlds.engine.app import App, AppAction, ArgumentReader
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord
from wanderlust_worlds.engine.log import LogEntry

MCP_START_SECONDS, MCP_CALL_SECONDS = 90.0, 60.0
"""Wall-clock seconds until a server must have started, and answered."""


class McpToolDescription(FrozenRecord):
    """The name, description and argument schema that a server gives for a tool."""

    name: str
    description: str = ""
    schema: Mapping[str, Any] = {}
    """The JSON schema of its arguments."""
    reads_only: bool = False


class AnswerSource(Protocol):
    """A source of answers: a live server, or a log."""

    def answer(self, number: int, tool: str, args: Mapping[str, Any]) -> str:
        """The answer to the call of this number. Raises ToolError when the tool refuses."""
        ...


class McpApp(App):
    """The tools of an MCP server, as actions of the agent. Those that the server does not call read-only are writes.

    The server is no part of the world: what it remembers is neither branched nor saved, and its answers take no time of
    the world. They are in the log, so `recorded` plays the same calls again without it.
    """

    aliases = ("MCPApp",)
    outside = True
    tools: CowDict[McpToolDescription] = CowDict()
    calls: int = 0
    """Number of calls made so far."""

    def __init__(self, name: str = "", /, **state: Any):
        super().__init__(name, **state)
        self.source: AnswerSource | None = None
        # every server has its own tools; an instance's actions go with it from world to world
        self.__dict__["actions"] = {
            description.name: _server_action(description) for description in self.tools.values()
        }

    def recorded(self, log: Iterable[LogEntry]) -> McpApp:
        """The app that answers as it did in this log: what a scenario needs in order to be replayed.

        Arguments that were refused never reached the server, so they are no answers.
        """
        lines = []
        for line in log:
            if line.app == self.name and (action := self.actions.get(line.action)) is not None:
                with suppress(WrongArguments):
                    action.tool.parse_arguments(line.args)
                    lines.append(line)
        twin = type(self)(self.name, tools=self.tools)
        twin.source = RecordedAnswers(lines)
        return twin

    def ask(self, tool: str, args: Mapping[str, Any]) -> str:
        """Use a tool of the server."""
        if self.source is None:
            raise UsageError(f"{self.name} has no server: make it by `open_mcp_app`, or by `recorded` from a log")
        number, self.calls = self.calls, self.calls + 1
        return self.source.answer(number, tool, args)


@dataclass(frozen=True, slots=True)
class RecordedAnswers:
    """Answers from a log."""

    lines: Sequence[LogEntry]

    def answer(self, number: int, tool: str, args: Mapping[str, Any]) -> str:
        """The answer in the log. Raises UsageError when the log has another call at this number."""
        line = self.lines[number] if number < len(self.lines) else None
        if line is None or (line.action, dict(line.args)) != (tool, dict(args)):
            raise UsageError(f"call {number} of {tool} is not in the log that answers are taken from")
        if line.error is not None:
            raise ToolError(line.error)
        return str(line.result)


class McpServerThread:
    """A live server in a thread with its own event loop, because a world's calls are synchronous."""

    def __init__(self, server: McpServer):
        self._server = server
        self._ready: Future[list[Tool]] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name=f"MCP server {server}", daemon=True
        )
        self._thread.start()

    def tools(self) -> list[Tool]:
        """The server's tools. Waits until it has started; raises ToolFailure when it does not."""
        try:
            return self._ready.result(MCP_START_SECONDS)
        except Late:
            raise ToolFailure(f"the MCP server {self._server} did not start in {MCP_START_SECONDS:g} seconds") from None

    def answer(self, number: int, tool: str, args: Mapping[str, Any]) -> str:
        """The server's answer. Raises ToolError (also after MCP_CALL_SECONDS), and ToolFailure after its end."""
        tool_found = next(one for one in self.tools() if one.name == tool)
        if self._loop is None or self._loop.is_closed():
            raise ToolFailure(f"the MCP server {self._server} has ended")

        async def call() -> str:
            return str(await tool_found(**args))

        future = asyncio.run_coroutine_threadsafe(call(), self._loop)
        try:
            return future.result(MCP_CALL_SECONDS)
        except Late:
            future.cancel()
            raise ToolError(f"no answer in {MCP_CALL_SECONDS:g} seconds") from None

    def close(self) -> None:
        """End the server."""
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(MCP_START_SECONDS)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with self._server.open() as tools:
                self._ready.set_result(tools)
                await self._stop.wait()
        except (ToolFailure, UsageError) as failure:
            if not self._ready.done():
                self._ready.set_exception(failure)


@contextmanager
def open_mcp_app(name: str, server: McpServer) -> Iterator[McpApp]:
    """An app with the tools of a server that runs for as long as the block.

    Raises ToolFailure in one line when it does not start, UsageError without the extra `mcp`.
    """
    live = McpServerThread(server)
    try:
        descriptions = (
            McpToolDescription(
                name=one.name,
                description=one.description,
                schema=one.schema,
                reads_only=getattr(one, "reads_only", False),
            )
            for one in live.tools()
        )
        app = McpApp(name, tools=CowDict({one.name: one for one in descriptions}))
        app.source = live
        yield app
    finally:
        live.close()


@dataclass(slots=True)
class ServerTool:
    """A tool as the server told of it. It checks arguments itself; what is missing or too much is seen here."""

    name: str
    description: str
    schema: dict[str, Any]

    def parse_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as they are. Raises WrongArguments when one is missing, or is not one of the tool's."""
        properties = self.schema.get("properties", {})
        missing = [name for name in self.schema.get("required", ()) if name not in arguments]
        closed = self.schema.get("additionalProperties") is False
        wrong = missing or [name for name in arguments if closed and name not in properties]
        if wrong:
            takes = ", ".join(properties) or "nothing"
            raise WrongArguments(f"wrong arguments for {self.name}: look at {', '.join(wrong)}; it takes {takes}")
        return dict(arguments)


@dataclass(frozen=True, kw_only=True)
class ServerAction(AppAction):
    """An action that is a tool of a server."""

    server_tool: ArgumentReader = field(repr=False)

    @property
    def tool(self) -> ArgumentReader:
        """The tool as the server told of it."""
        return self.server_tool


def _server_action(description: McpToolDescription) -> ServerAction:
    """An action whose function has the signature that the tool's schema describes."""

    def call(self: McpApp, /, **args: Any) -> str:
        return self.ask(description.name, args)

    names, required = description.schema.get("properties", {}), description.schema.get("required", ())
    function: Any = call
    function.__name__ = description.name
    function.__annotations__ = {**dict.fromkeys(names, Any), "return": str}
    arguments = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=Parameter.empty if name in required else None)
        for name in names
        if name.isidentifier()
    ]
    function.__signature__ = Signature([Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *arguments])
    return ServerAction(
        name=description.name,
        function=call,
        scopes=frozenset({"agent"}),
        writes=not description.reads_only,
        notify="none",
        says=description.name,
        checks={},
        ends_turn=False,
        server_tool=ServerTool(description.name, description.description, dict(description.schema)),
    )
