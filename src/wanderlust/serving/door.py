"""The endpoint of one episode behind a door: a socket that listens where its program alone can reach it.

It knows one key, so the key of another episode is refused here even where it is known. Connections and the bytes of
requests under way are bounded, because open files and memory are this process's, which all episodes share.

Not covered: the processor time of answering. A program that asks as fast as it can slows the answers to others.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from wanderlust.serving.http import API_PREFIX, MAX_REQUEST_BYTES, AgentServer, ListeningApp, RequestHandler
from wanderlust.serving.http_response import error_response

MAX_DOOR_CONNECTIONS = 96
"""Connections of one episode at once; further ones are closed."""
MAX_DOOR_BYTES = 16 * MAX_REQUEST_BYTES
"""Bytes of the requests of one episode that are under way; one of unknown length counts as MAX_REQUEST_BYTES."""
DOOR_GRACE_SECONDS = 0.1
_REFUSALS = {
    400: "bad_request",
    401: "wrong_key",
    403: "episode_over",
    404: "no_such_path",
    413: "body_too_large",
    429: "too_many",
    502: "policy_failure",
}


@dataclass(slots=True, kw_only=True)
class Door:
    """An open door: where programs find it, the key that it takes, and what came to it."""

    url: str
    key: str = ""
    requests: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Requests that were answered by an error, by its name; `connections` were closed unread."""
    _bytes: int = 0

    @property
    def record(self) -> dict[str, Any]:
        """What came, as plain data."""
        return {"requests": self.requests, "refused": dict(self.refused)}

    async def count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request within the bounds, and count it."""
        self.requests += 1
        length = request.content_length
        size = min(MAX_REQUEST_BYTES, length) if length is not None else MAX_REQUEST_BYTES * request.body_exists
        if self._bytes + size > MAX_DOOR_BYTES:
            reply = error_response(429, "too many bytes of requests at once", code="busy", retryable=True)
            response: web.StreamResponse = web.Response(status=429, body=reply.body, headers=reply.headers)
        else:
            self._bytes += size
            try:
                response = await handler(request)
            finally:
                self._bytes -= size
        if response.status >= 400:
            self.refused[_REFUSALS.get(response.status, str(response.status))] += 1
        return response


class _Closed(asyncio.Protocol):
    """A connection that is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


@asynccontextmanager
async def open_endpoint(listener: socket.socket, handler: RequestHandler) -> AsyncIterator[Door]:
    """Answer by `handler` on `listener`, which is closed at the end of the block."""
    agents = AgentServer()
    door = Door(url=f"http://127.0.0.1:{listener.getsockname()[1]}{API_PREFIX}")

    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await door.count(request, handler)

    runner = web.AppRunner(
        agents.make_app(count), handler_cancellation=True, access_log=None, shutdown_timeout=DOOR_GRACE_SECONDS
    )
    await runner.setup()
    accept = runner.server
    assert accept is not None

    def bounded() -> asyncio.BaseProtocol:
        if len(accept.connections) < MAX_DOOR_CONNECTIONS:
            return accept()
        door.refused["connections"] += 1
        return _Closed()

    server = await asyncio.get_running_loop().create_server(bounded, sock=listener, backlog=MAX_DOOR_CONNECTIONS)
    try:
        async with agents.serving(handler) as door.key:
            yield door
    finally:
        await ListeningApp(server, runner).close()
