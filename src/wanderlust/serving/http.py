"""The HTTP server of seats and models: an API key names the episode, or the served models.

Programs in any language can be agents of an episode. There is no encryption.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, Self

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from wanderlust.errors import UsageError
from wanderlust.serving.dialect import Style, error_data

MAX_REQUEST_BYTES = 16 * 2**20
"""Longest body of a request that is read."""
API_PREFIX = "/v1"


@dataclass(frozen=True, slots=True)
class ListeningApp:
    """An application that answers, until `close`."""

    server: asyncio.Server
    runner: web.AppRunner

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port, *_ = self.server.sockets[0].getsockname()
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop, and close all connections: also where a client does not read, or was accepted a moment ago."""
        loop = asyncio.get_running_loop()
        for listener in self.server.sockets:
            loop.remove_reader(listener)
        for _ in range(_ACCEPT_ROUNDS):  # a connection that comes during the end stays open: asyncio forgets it
            await asyncio.sleep(0)
        self.server.close()
        assert self.runner.server is not None
        transports = [connection.transport for connection in self.runner.server.connections]
        try:
            await self.runner.cleanup()
        finally:
            for transport in filter(None, transports):
                transport.abort()


_ACCEPT_ROUNDS = 4
"""Rounds of the event loop after which a connection that it has accepted is among the application's."""


async def start_app(app: web.Application, host: str, port: int, *, grace: float = 0.1) -> ListeningApp:
    """Listen; `port` 0 takes a free one. `close` leaves requests under way `grace` seconds.

    Raises UsageError when the port is taken.
    """
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=grace)
    await runner.setup()
    assert runner.server is not None
    try:
        server = await asyncio.get_running_loop().create_server(runner.server, host, port, backlog=1024)
    except OSError as error:
        await runner.cleanup()
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return ListeningApp(server, runner)


def endpoint_variables(url: str, key: str) -> dict[str, str]:
    """Environment variables by which the SDKs of OpenAI, Anthropic and Google find the server under this URL.

    The base URL of OpenAI's has `/v1`, as its SDKs expect; the server takes all of them with it and without.
    """
    root = url.removesuffix(API_PREFIX)
    return {
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": root,
        "ANTHROPIC_API_KEY": key,
        "GOOGLE_GEMINI_BASE_URL": root,
        "GEMINI_API_KEY": key,
    }


class RequestHandler(Protocol):
    """Handles the requests with one API key: an `AgentAPI` or a `ModelAPI`."""

    async def answer(
        self, method: str, path: str, body: bytes, *, prefer: str = "", style: Style = "openai"
    ) -> HttpResponse | ResponseStream:
        """Answer a request to a path below the API's version, with its query; never raises for a bad request.

        `prefer` is its `Prefer` header, and `style` the form that its client understands.
        """
        ...


def path_below_version(path: str) -> str:
    """The path without `/v1`, `/v1beta` and the like, however often a client puts it there."""
    return _VERSIONS.sub("", path)


_VERSIONS = re.compile(r"^(/v1(alpha|beta)?\d*(?=/|$))+")


_METHOD = re.compile(r":(generateContent|streamGenerateContent|countTokens)$")
"""Google's methods, which stand at the end of a path; a colon alone is also in names of OpenAI's models."""


def read_key(headers: Mapping[str, str], query: Mapping[str, str]) -> str:
    """The API key of a request, wherever the SDKs of OpenAI, Anthropic and Google put it; empty where there is none."""
    bearer = headers.get("Authorization", "").removeprefix("Bearer ")
    return (bearer or headers.get("x-api-key") or headers.get("x-goog-api-key") or query.get("key") or "").strip()


def recognize_style(path: str, headers: Mapping[str, str], query: Mapping[str, str]) -> Style:
    """Whose client sends a request, by its path and its headers."""
    if "x-goog-api-key" in headers or "x-goog-api-client" in headers or "key" in query or _METHOD.search(path):
        return "google"
    anthropic = "x-api-key" in headers or "anthropic-version" in headers or path.startswith("/messages")
    return "anthropic" if anthropic else "openai"


class AgentServer:
    """`async with AgentServer() as server, server.serving(handler) as key: ...` answers under `server.url`.

    Serves the APIs of OpenAI, Anthropic and Google that a handler knows, whole and as server-sent events. A key is
    valid only while its episode lasts; others are refused. A request whose program hangs up is dropped, and no turn is
    recorded. Entered more than once, it is one server that ends with the last exit. There is no encryption, so it
    listens on this machine alone unless `host` is set. `GET /health` needs no key.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, grace: float = 0.1):
        """`port` 0 takes a free one, anew for each time the server starts; requests under way get `grace` seconds."""
        self.host, self.port, self._grace = host, port, grace
        self._handlers: dict[str, RequestHandler] = {}
        self._users = 0
        self._starting: asyncio.Task[ListeningApp] | None = None

    @property
    def url(self) -> str:
        """Base URL for programs; only inside of the block."""
        assert self._starting is not None, "the server is not running"
        return f"{self._starting.result().url}{API_PREFIX}"

    def variables(self, key: str) -> dict[str, str]:
        """`endpoint_variables` of this server; inside of the block."""
        return endpoint_variables(self.url, key)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            self._users += 1
            undo.push_async_exit(self)
            if self._starting is None:
                app = self.make_app()
                self._starting = asyncio.create_task(start_app(app, self.host, self.port, grace=self._grace))
            await asyncio.shield(self._starting)
            undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._users -= 1
        if not self._users and self._starting is not None:
            starting, self._starting = self._starting, None
            with suppress(UsageError):  # the start failed: nothing to clean up, and `__aenter__` has raised it
                await (await starting).close()

    @asynccontextmanager
    async def serving(self, handler: RequestHandler, key: str = "") -> AsyncIterator[str]:
        """Answer requests with `key`, or with a new random key, for the time of the block."""
        key = key or f"wander-{secrets.token_urlsafe(24)}"  # must not be guessed by the programs of other episodes
        self._handlers[key] = handler
        try:
            yield key
        finally:
            del self._handlers[key]

    def make_app(self, *middlewares: Middleware) -> web.Application:
        """An application that answers by the keys of this server, to be served elsewhere."""
        app = web.Application(client_max_size=MAX_REQUEST_BYTES, middlewares=middlewares)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET" and request.path == "/health":
            return web.Response()
        handler = self._handlers.get(read_key(request.headers, request.query))
        path = path_below_version(request.rel_url.raw_path)
        style = recognize_style(path, request.headers, request.query)
        reply: HttpResponse | ResponseStream
        if handler is None:
            why = "no episode has this API key, nor has a model: it is wrong, or over"
            reply = error_response(401, why, code="invalid_api_key", style=style)
        else:
            try:
                body = await request.read()
            except web.HTTPRequestEntityTooLarge:
                why = f"a request of more than {MAX_REQUEST_BYTES} bytes"
                reply = error_response(413, why, code="request_too_large", style=style)
            else:
                target, prefer = f"{path}?{request.rel_url.raw_query_string}", request.headers.get("Prefer", "")
                reply = await handler.answer(request.method, target, body, prefer=prefer, style=style)
        if isinstance(reply, HttpResponse):
            return web.Response(status=reply.status, body=reply.body, headers=reply.headers)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        try:
            with suppress(ConnectionResetError):  # the client has gone
                await response.prepare(request)
                await reply.write(response.write)
                await response.write_eof()
        finally:
            reply.cancel()
        return response


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP answer."""

    status: int
    body: bytes
    content_type: str = "application/json"
    retryable: bool = False
    """Whether the same request may succeed a little later."""

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer; the SDKs of OpenAI and Anthropic read `x-should-retry`."""
        return {"Content-Type": self.content_type, "x-should-retry": "true" if self.retryable else "false"}


Send = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ResponseStream:
    """An HTTP answer that is written while it is sampled, as server-sent events."""

    write: Callable[[Send], Coroutine[Any, Any, None]]
    cancel: Callable[[], object] = bool
    """To be called in the end: drops what is under way where the client has gone."""


def error_response(
    status: int, message: str, *, code: str, retryable: bool = False, style: Style = "openai"
) -> HttpResponse:
    """Render an error in the shape that SDKs parse."""
    data = error_data(status, message, code=code, style=style)
    return HttpResponse(status, msgspec.json.encode(data), retryable=retryable)
