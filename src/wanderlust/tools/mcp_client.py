"""The connection to an MCP server, by the official SDK (extra `mcp`)."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryFile
from typing import Any, Protocol, Self, TextIO

import mcp_types as wire
import msgspec
from anyio import EndOfStream
from httpx2 import AsyncClient, Timeout, TransportError
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client._transport import Transport, TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from wanderlust.errors import ToolFailure, boundary, one_line
from wanderlust.tools.function import ToolError
from wanderlust.types import Tool

logging.getLogger("mcp").addHandler(logging.NullHandler())  # the SDK logs a traceback for each line that is no message

MCP_START_TIMEOUT_SECONDS = 60.0
"""Wall-clock seconds from the start of a server to its list of tools."""
MCP_READ_TIMEOUT_SECONDS = 300.0
"""Wall-clock seconds that an HTTP server may be silent within one answer."""
MAX_TOOL_LIST_PAGES = 100
"""Pages of a list of tools that are read."""
CONNECTION_LOST_CODES = frozenset({wire.CONNECTION_CLOSED, wire.INVALID_REQUEST})
"""Codes of errors after which only a new connection helps; INVALID_REQUEST means that the session has ended."""
SERVER_FAULT_CODES = frozenset({wire.INTERNAL_ERROR, wire.PARSE_ERROR, wire.REQUEST_TIMEOUT})
"""Codes of faults of the server; a tool's own errors are results."""
MCP_ALIVE_TIMEOUT_SECONDS = 5.0
"""Wall-clock seconds in which a server must list its tools again when a call has taken too long."""
MAX_STDERR_BYTES = 20_000
"""The end of a server's standard error that is read."""
MAX_MCP_RESULT_CHARS = 10_000_000
"""Characters of a call's result; a larger one is a fault of the server."""


class ServerAddress(Protocol):
    """Where a server is, as `McpServer` says it, and which of its tools are used."""

    command: tuple[str, ...]
    token: str
    env: dict[str, str]
    cwd: str | None
    only: frozenset[str]
    prefix: str

    @property
    def is_address(self) -> bool:
        """Whether the server is called at an address; otherwise it is started."""
        ...


class McpConnection:
    """A client in a task of its own, so that its failure reaches its callers alone."""

    def __init__(self, server: ServerAddress):
        self.server, self.users = server, 0
        self.broken = False
        """Whether the next episode needs a new connection."""
        self._faults: deque[str] = deque(maxlen=1)
        """What the server sent last that was no answer, since its last good one."""
        self._log: TextIO | None = None
        self._last_output = ""
        """What a started server writes to its standard error."""
        self._last_output = ""
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[tuple[Client, list[wire.Tool]]] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._run(), name=f"MCP server {server}")

    async def tools(self) -> list[Tool]:
        """Wait for the server's start, and return its tools."""
        either: set[asyncio.Future[Any]] = {self._ready, self._owner}
        await asyncio.wait(either, timeout=MCP_START_TIMEOUT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done():
            self.broken = True
            if self._owner.done():
                self._owner.result()
            raise self._failure(f"no list of tools within {MCP_START_TIMEOUT_SECONDS:g} seconds", transient=True)
        only = self.server.only
        return [
            McpTool(self, declaration)
            for declaration in self._ready.result()[1]
            if not only or declaration.name in only
        ]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool; returns its answer as text."""
        if self.broken:
            raise self._failure("the connection is lost", transient=True)
        client, _ = self._ready.result()
        with boundary(ToolFailure):
            try:
                result = await client.call_tool(name, arguments)
            except MCPError as error:
                self.broken |= error.code in CONNECTION_LOST_CODES
                if error.code in CONNECTION_LOST_CODES | SERVER_FAULT_CODES:
                    raise self._failure(error.message, transient=True) from error
                raise ToolError(error.message) from error
            except ValueError as error:  # the SDK's checks, of several lines
                raise self._give_up(f"its answer is no result of a tool: {error}") from error
        self._faults.clear()
        if not result.content and result.structured_content is not None:
            text = msgspec.json.encode(result.structured_content).decode()
        else:
            text = "\n".join(map(_block, result.content))
        if len(text) > MAX_MCP_RESULT_CHARS:
            raise self._give_up(f"a result of {len(text)} characters; at most {MAX_MCP_RESULT_CHARS} are read")
        if result.is_error:
            raise ToolError(text)
        return text

    async def check_alive(self) -> None:
        """Ask for the tools again. ToolFailure where that is not answered, or where what came was no answer."""
        if self._faults:
            raise self._give_up(self._faults[-1])
        client, _ = self._ready.result()
        try:
            async with asyncio.timeout(MCP_ALIVE_TIMEOUT_SECONDS):
                await client.session.list_tools()
        except (TimeoutError, MCPError, ValueError) as error:
            raise self._give_up("it has stopped answering") from error

    def _give_up(self, why: str) -> ToolFailure:
        self.broken = True
        return self._failure(why, transient=True)

    async def close(self) -> None:
        """End the connection, and the process if there is one."""
        self._stop.set()
        if not self._ready.done():
            self._owner.cancel()
        await asyncio.gather(self._owner, return_exceptions=True)

    async def _run(self) -> None:
        with TemporaryFile("w+", errors="replace") as log:
            self._log = log
            try:
                with boundary(ToolFailure):
                    async with _client(self.server, log, self._faults) as client:
                        self._ready.set_result((client, await _list_tools(client)))
                        await self._stop.wait()
            except ToolFailure as failure:
                why = failure.__cause__ or failure
                while isinstance(why, BaseExceptionGroup):
                    why = why.exceptions[0]
                lost = isinstance(why, TransportError)
                raise self._failure(f"{type(why).__name__}: {why}", transient=lost) from failure
            finally:
                self.broken = True

    def _failure(self, why: str, *, transient: bool = False) -> ToolFailure:
        written = self._written()
        last = written.rstrip().rpartition("\n")[2]  # usually the reason of its end
        why = f"{why} ({last})" if last else why
        return ToolFailure(f"MCP server {self.server}: {one_line(why, 400)}", transient=transient, output=written)

    def _written(self) -> str:
        """The end of what the server has written to its standard error so far."""
        if self._log is not None and not self._log.closed:
            file = self._log.fileno()  # whose position is the server's as well
            end = os.pread(file, MAX_STDERR_BYTES, max(0, os.fstat(file).st_size - MAX_STDERR_BYTES))
            self._last_output = end.decode(errors="replace")
        return self._last_output


class McpTool:
    """One tool of a server."""

    timeout: float | None = None
    """Wall-clock seconds of a call; None takes the caller's."""

    def __init__(self, connection: McpConnection, declaration: wire.Tool):
        self.name, self.description = connection.server.prefix + declaration.name, declaration.description or ""
        self.schema: dict[str, Any] = declaration.input_schema
        self.reads_only = bool(declaration.annotations and declaration.annotations.read_only_hint)
        self._connection, self._name = connection, declaration.name

    async def __call__(self, /, **arguments: Any) -> str:
        """The server's answer as text.

        Raises ToolError when the server refuses the call or its tool fails, ToolFailure when the server is gone.
        """
        return await self._connection.call(self._name, arguments)

    async def check_alive(self) -> None:
        """After a call that took too long: ToolFailure where the server hangs, and not this tool alone."""
        await self._connection.check_alive()


@asynccontextmanager
async def _client(server: ServerAddress, log: TextIO, faults: deque[str]) -> AsyncIterator[Client]:
    """Connect the SDK's client; a process's standard error goes to `log`, what is no answer is noted in `faults`."""
    if server.is_address:
        headers = {"Authorization": f"Bearer {server.token}"} if server.token else {}
        async with (
            AsyncClient(
                headers=headers, timeout=Timeout(MCP_START_TIMEOUT_SECONDS, read=MCP_READ_TIMEOUT_SECONDS)
            ) as http,
            Client(_watched(streamable_http_client(server.command[0], http_client=http), faults)) as client,
        ):
            yield client
    else:
        command, *arguments = server.command
        if "/" not in command and shutil.which(command, path=(server.env or {}).get("PATH")) is None:
            raise ToolFailure(f"there is no program {command!r}")
        process = StdioServerParameters(command=command, args=arguments, env=server.env, cwd=server.cwd)
        async with Client(_watched(stdio_client(process, errlog=log), faults)) as client:
            yield client


@asynccontextmanager
async def _watched(transport: Transport, faults: deque[str]) -> AsyncIterator[TransportStreams]:
    """The transport, with a note of what the server sends that is no message, or answers no request.

    The SDK drops both, so a call would wait for ever and look like a slow tool.
    """
    async with transport as (incoming, outgoing):
        sent: set[wire.RequestId] = set()
        yield _Incoming(incoming, sent, faults), _Outgoing(outgoing, sent)


class _Stream:
    """A stream of the SDK that is handed on."""

    def __init__(self, stream: Any):
        self._stream = stream

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        closed: bool | None = await self._stream.__aexit__(*error)
        return closed


class _Incoming(_Stream):
    def __init__(self, stream: Any, sent: set[wire.RequestId], faults: deque[str]):
        super().__init__(stream)
        self._sent, self._faults = sent, faults

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage | Exception:
        item: SessionMessage | Exception = await self._stream.receive()
        if isinstance(item, Exception):
            self._faults.append("it sends what is no message of the protocol")
        elif isinstance(item.message, wire.JSONRPCResponse | wire.JSONRPCError) and item.message.id not in self._sent:
            self._faults.append(f"it answers a request {item.message.id!r} that was never made")
        return item

    @property
    def last_context(self) -> Any:
        """The sender's context, which the SDK asks for."""
        return getattr(self._stream, "last_context", None)


class _Outgoing(_Stream):
    def __init__(self, stream: Any, sent: set[wire.RequestId]):
        super().__init__(stream)
        self._sent = sent

    async def send(self, item: SessionMessage, /) -> None:
        if isinstance(item.message, wire.JSONRPCRequest):
            self._sent.add(item.message.id)
        await self._stream.send(item)


async def _list_tools(client: Client) -> list[wire.Tool]:
    tools: list[wire.Tool] = []
    cursor = None
    for _ in range(MAX_TOOL_LIST_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return tools


def _block(block: wire.ContentBlock) -> str:
    if isinstance(block, wire.TextContent):
        return block.text
    if isinstance(block, wire.ImageContent | wire.AudioContent):
        return f"[{block.mime_type}, {len(block.data) * 3 // 4} bytes]"
    if isinstance(block, wire.ResourceLink):
        return f"[{block.name}: {block.uri}]"
    inner = block.resource
    return inner.text if isinstance(inner, wire.TextResourceContents) else f"[{inner.mime_type}: {inner.uri}]"
