"""Serve any toolset as an MCP server, over standard input and output or HTTP.

HTTP listens on this machine alone unless `host` is set, and always requires a token, which allows every served tool.
Not covered: encryption, and limits on a client's sessions and requests beyond the SDK's own.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count

import mcp_types as wire
import msgspec
import uvicorn
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from wanderlust.environment import Episode
from wanderlust.errors import Failure, UsageError
from wanderlust.tools.function import ToolSource, open_toolsets
from wanderlust.tools.tool_calls import ERROR_PREFIX, CallLimits, CallOutcome, call_tools
from wanderlust.types import Task, Tool, ToolCall

SERVED_TASK = Task(id="served")
"""Default task of the episode that toolsets are opened for."""


async def serve_stdio(*sources: ToolSource, name: str = "wanderlust", task: Task = SERVED_TASK) -> None:
    """Serve the tools on standard input and output, until the input ends."""
    async with open_toolsets(sources, Episode(task, {})) as tools, stdio_server() as (read, write):
        server = mcp_server(tools, name=name)
        await server.run(read, write, server.create_initialization_options())


@dataclass(frozen=True, slots=True, kw_only=True)
class McpEndpoint:
    """Address and token of served tools."""

    url: str
    token: str
    """Goes into each request, as `Authorization: Bearer TOKEN`."""


@asynccontextmanager
async def serve_http(
    *sources: ToolSource,
    name: str = "wanderlust",
    task: Task = SERVED_TASK,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str = "",
) -> AsyncIterator[McpEndpoint]:
    """Serve the tools over streamable HTTP for the time of the block; all clients share one toolset.

    A `port` of 0 is any free one; without a `token` a new one is made. Raises UsageError when the port is taken.
    """
    password = token or secrets.token_urlsafe(24)
    try:  # the socket listens already: a client that connects before the server runs is served a moment later
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UsageError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error
    with listening:
        async with open_toolsets(sources, Episode(task, {})) as tools:
            app = _TokenGuard(mcp_server(tools, name=name).streamable_http_app(host=host), password)
            config = uvicorn.Config(app, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=1)
            server = _Embedded(config)
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            try:
                url_host = f"[{host}]" if ":" in host else host
                yield McpEndpoint(url=f"http://{url_host}:{listening.getsockname()[1]}/mcp", token=password)
            finally:
                server.should_exit = True
                await serving


def mcp_server(tools: Sequence[Tool], *, name: str = "wanderlust", limits: CallLimits | None = None) -> Server:
    """The SDK's server with these tools; calls are answered, bounded and timed as in an episode.

    A failure of a tool's machinery is a protocol error; every other error is a result marked as one.
    """
    numbers = count()

    async def list_tools(
        _context: ServerRequestContext, _page: wire.PaginatedRequestParams | None
    ) -> wire.ListToolsResult:
        listed = [wire.Tool(name=t.name, description=t.description, input_schema=t.schema) for t in tools]
        return wire.ListToolsResult(tools=listed)

    async def call_tool(_context: ServerRequestContext, request: wire.CallToolRequestParams) -> wire.CallToolResult:
        arguments = msgspec.json.encode(request.arguments or {}).decode()
        call = ToolCall(id=str(next(numbers)), name=request.name, arguments=arguments)
        try:
            (answer,) = await call_tools([call], tools, limits)
        except Failure as failure:
            raise MCPError(wire.INTERNAL_ERROR, str(failure)) from failure
        failed = answer.outcome is not CallOutcome.DONE
        text = answer.text.removeprefix(ERROR_PREFIX) if failed else answer.text
        return wire.CallToolResult(content=[wire.TextContent(text=text)], is_error=failed)

    return Server(name, on_list_tools=list_tools, on_call_tool=call_tool)


class _Embedded(uvicorn.Server):
    """Leave signals to the surrounding program."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _TokenGuard:
    """Refuse requests without the token."""

    def __init__(self, app: ASGIApp, token: str):
        self._app, self._expected = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        authorization = next((value for name, value in scope.get("headers", ()) if name == b"authorization"), b"")
        if scope["type"] == "http" and not secrets.compare_digest(authorization, self._expected):
            await PlainTextResponse("the token is missing or wrong", 401)(scope, receive, send)
        else:
            await self._app(scope, receive, send)
