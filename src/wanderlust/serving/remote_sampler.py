"""A sampler for other processes: one connection each, over which they ask for answers.

Episodes of a training run are played in Ray actors, and their answers are drawn by the run's own sampler, whatever that
is. Requests wait for each other nowhere: a connection carries many. When one closes, what it asked for is cancelled
and its conversations are forgotten, so that an episode played again elsewhere begins anew. A key is needed; there is
no encryption.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import aiohttp
import msgspec
from aiohttp import web

from wanderlust.errors import ContextFull, PolicyFailure, WanderlustError, one_line
from wanderlust.policies.base import SampledTokens, Sampler, SamplingOptions
from wanderlust.serving.http import start_app

CONTEXT_FULL, FAILED, PASSING = "context full", "failed", "passing"
"""Kinds of errors that are told over a connection."""
HEARTBEAT_SECONDS = 30.0
"""Time after which a connection that says nothing is taken for lost."""
MAX_MESSAGE_BYTES = 64 * 2**20


class _Request(msgspec.Struct, array_like=True):
    """Asks for an answer; with `prompt` None the session is released, with `key` None as well the request `number` is
    cancelled."""

    number: int
    session: str
    prompt: list[int] | None = None
    key: int | None = None
    sampling: SamplingOptions = SamplingOptions()


class _Answer(msgspec.Struct, array_like=True):
    number: int
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish: str = ""
    version: int = 0
    failure: str = ""
    """One of the kinds."""
    text: str = ""


_requests, _answers = msgspec.msgpack.Decoder(_Request), msgspec.msgpack.Decoder(_Answer)


@asynccontextmanager
async def serve_samplers(samplers: Mapping[str, Sampler], *, host: str = "127.0.0.1") -> AsyncIterator[SamplerAddress]:
    """Answer for these samplers, by name, until the block ends; the address is what `RemoteSampler` takes."""
    key = secrets.token_hex(16)

    async def connect(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in samplers or not secrets.compare_digest(request.headers.get("Authorization", ""), key):
            raise web.HTTPForbidden
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_SECONDS, max_msg_size=MAX_MESSAGE_BYTES)
        await socket.prepare(request)
        await _Connection(samplers[name], socket, prefix=secrets.token_hex(4)).answer_all()
        return socket

    app = web.Application()
    app.router.add_get("/{name}", connect)
    listening = await start_app(app, host, 0)
    try:
        yield (listening.url, key)
    finally:
        await listening.close()


SamplerAddress: TypeAlias = tuple[str, str]
"""URL and key."""


class _Connection:
    """One process that asks."""

    def __init__(self, sampler: Sampler, socket: web.WebSocketResponse, *, prefix: str):
        """`prefix` keeps its conversations apart from those of others."""
        self.sampler, self.socket, self.prefix = sampler, socket, prefix
        self.sessions: set[str] = set()
        self.drawing: dict[int, asyncio.Task[None]] = {}

    async def answer_all(self) -> None:
        """Answer until the other side goes away."""
        try:
            async for message in self.socket:
                if message.type != aiohttp.WSMsgType.BINARY:
                    break
                self._take(_requests.decode(message.data))
        except msgspec.MsgspecError:
            await self.socket.close(code=aiohttp.WSCloseCode.UNSUPPORTED_DATA)
        finally:
            for task in self.drawing.values():
                task.cancel()
            await asyncio.gather(*self.drawing.values(), return_exceptions=True)
            for session in self.sessions:
                self.sampler.release(session)

    def _take(self, request: _Request) -> None:
        session = f"{self.prefix}/{request.session}" if request.session else ""
        if request.prompt is None or request.key is None:
            drawing = self.drawing.get(request.number)
            if drawing is not None:
                drawing.cancel()
            if session in self.sessions:
                self.sessions.discard(session)
                self.sampler.release(session)
            return
        if session:
            self.sessions.add(session)
        self.drawing[request.number] = task = asyncio.create_task(self._draw(request, session))
        task.add_done_callback(lambda _: self.drawing.pop(request.number, None))

    async def _draw(self, request: _Request, session: str) -> None:
        assert request.prompt is not None
        assert request.key is not None
        try:
            drawn = await self.sampler.sample(request.prompt, request.sampling, key=request.key, session=session)
            answer = _Answer(request.number, drawn.ids, drawn.logprobs, drawn.finish, drawn.version)
        except WanderlustError as error:
            passing = PASSING if isinstance(error, PolicyFailure) and error.transient else FAILED
            kind = CONTEXT_FULL if isinstance(error, ContextFull) else passing
            answer = _Answer(request.number, failure=kind, text=str(error))
        await self.socket.send_bytes(msgspec.msgpack.encode(answer))


class RemoteSampler:
    """A `Sampler` of another process; a copy that was sent elsewhere connects from there.

    All copies in an event loop share one connection to a sampler.
    """

    def __init__(self, address: SamplerAddress, name: str):
        """`name` is that of one of the samplers served at `address`."""
        self.address, self.name = address, name

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str = ""
    ) -> SampledTokens:
        """Draw one answer there. PolicyFailure when the connection is lost."""
        mine = _connections.setdefault(asyncio.get_running_loop(), {})
        place = (*self.address, self.name)
        if place not in mine or (mine[place].done() and (mine[place].exception() or mine[place].result().closed)):
            mine[place] = asyncio.ensure_future(_connect(self.address, self.name))
        connection = await asyncio.shield(mine[place])
        return await connection.ask(prompt, sampling, key=key, session=session)

    def release(self, session: str) -> None:
        """Have the conversation forgotten there."""
        connection = _connections.get(asyncio.get_running_loop(), {}).get((*self.address, self.name))
        if connection is not None and connection.done() and not connection.exception():
            connection.result().tell(_Request(0, session))


_connections: WeakKeyDictionary[Any, dict[tuple[str, str, str], asyncio.Future[_Client]]] = WeakKeyDictionary()
"""By event loop and address."""


async def _connect(address: SamplerAddress, name: str) -> _Client:
    url, key = address
    session = aiohttp.ClientSession(headers={"Authorization": key})
    try:
        socket = await session.ws_connect(f"{url}/{name}", heartbeat=HEARTBEAT_SECONDS, max_msg_size=MAX_MESSAGE_BYTES)
    except (aiohttp.ClientError, OSError) as error:
        await session.close()
        raise PolicyFailure(
            f"no sampler of the run answers at {url}: {one_line(str(error))}", transient=True
        ) from error
    return _Client(session, socket, url)


class _Client:
    """The asking side of a connection."""

    def __init__(self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse, url: str):
        self.session, self.socket, self.url, self.closed = session, socket, url, False
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[_Answer]] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._reading = asyncio.create_task(self._read())

    async def ask(self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str) -> SampledTokens:
        """Send a request and wait for its answer; it is cancelled there when it is cancelled here."""
        number = next(self._numbers)
        self._waiting[number] = waiting = asyncio.get_running_loop().create_future()
        self.tell(_Request(number, session, list(prompt), key, sampling))
        try:
            answer = await waiting
        except asyncio.CancelledError:
            self.tell(_Request(number, ""))
            raise
        finally:
            self._waiting.pop(number, None)
        if answer.failure == CONTEXT_FULL:
            raise ContextFull(answer.text)
        if answer.failure:
            raise PolicyFailure(answer.text, transient=answer.failure == PASSING)
        return SampledTokens(ids=answer.ids, logprobs=answer.logprobs, finish=answer.finish, version=answer.version)

    def tell(self, request: _Request) -> None:
        """Send without waiting; requests arrive in their order."""
        if not self.closed:
            sending = asyncio.create_task(self._send(msgspec.msgpack.encode(request)))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    async def _send(self, data: bytes) -> None:
        try:
            await self.socket.send_bytes(data)
        except (aiohttp.ClientError, OSError):
            self._lose()

    async def _read(self) -> None:
        try:
            async for message in self.socket:
                if message.type != aiohttp.WSMsgType.BINARY:
                    break
                answer = _answers.decode(message.data)
                waiting = self._waiting.pop(answer.number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        finally:
            self._lose()
            await self.session.close()

    def _lose(self) -> None:
        """Fail what waits."""
        self.closed = True
        for number, waiting in self._waiting.items():
            if not waiting.done():
                lost = f"the connection with the run's sampler at {self.url} was lost"
                waiting.set_result(_Answer(number, failure=PASSING, text=lost))
        self._waiting.clear()
