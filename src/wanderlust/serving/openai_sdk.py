"""The real `openai.AsyncOpenAI` over a recorded seat, without a socket: for code that needs the SDK itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2
from openai import AsyncOpenAI

from wanderlust.agent import Agent
from wanderlust.serving.agent_api import AgentAPI
from wanderlust.serving.http import HttpResponse, ResponseStream, path_below_version

URL = "http://seat.invalid/v1"
"""The client's base URL; it is never resolved."""


class _Seats(httpx2.AsyncBaseTransport):
    """Pass the SDK's requests to an AgentAPI in this process."""

    def __init__(self, agent_api: AgentAPI):
        self._agent_api = agent_api

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        path = path_below_version(request.url.path)
        reply = await self._agent_api.answer(request.method, path, await request.aread())
        if isinstance(reply, HttpResponse):
            return httpx2.Response(reply.status, headers=reply.headers, content=reply.body)
        return httpx2.Response(200, headers={"Content-Type": "text/event-stream"}, stream=_Events(reply))


class _Events(httpx2.AsyncByteStream):
    """What a stream writes, as it is read."""

    def __init__(self, reply: ResponseStream):
        self._reply = reply
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        writing = asyncio.create_task(self._reply.write(self._parts.put))
        writing.add_done_callback(lambda _: self._parts.put_nowait(None))
        try:
            while (part := await self._parts.get()) is not None:
                yield part
            await writing
        finally:
            writing.cancel()

    async def aclose(self) -> None:
        self._reply.cancel()


def openai_client(*agents: Agent) -> AsyncOpenAI:
    """Make a client whose every call is a recorded, bounded turn; `model` names the seat if there are several.

    Everything above HTTP is the SDK's own: types, streams, helpers, errors. A limit is `PermissionDeniedError`, a
    failed policy `InternalServerError`, and neither is retried; even where the program catches them, they end the
    episode under their own name. There is no timeout, as a call takes as long as the policy does.
    """
    transport = _Seats(AgentAPI({agent.trajectory.seat: agent for agent in agents}))
    http = httpx2.AsyncClient(transport=transport, trust_env=False)
    return AsyncOpenAI(api_key="seat", base_url=URL, http_client=http, timeout=None)
