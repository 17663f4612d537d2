"""A model behind an OpenAI-compatible HTTP endpoint: hosted ones, vLLM, SGLang, llama.cpp, Ollama."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import TracebackType
from typing import Any, Self

import aiohttp
from yarl import URL

from wanderlust.core.contracts import Tool
from wanderlust.core.errors import PolicyFailure, UsageError
from wanderlust.core.messages import Message
from wanderlust.core.text import one_line
from wanderlust.core.types import Completion
from wanderlust.policies.wire import completion_of, message_to_wire, tool_to_wire

ATTEMPTS = 4
"""Calls made before a busy or stumbling server is a failure."""
PAUSE_SECONDS = 0.5
"""Before the second call; doubles with each further one, unless the server names a time."""
LONGEST_PAUSE_SECONDS = 30.0
"""A server that asks for more is a failure at once: the caller knows better what to do."""
LARGEST_ANSWER = 16 * 2**20
"""Bytes of a body that are read before it is refused."""
_TRANSIENT = frozenset({408, 409, 425, 429})


class Endpoint:
    """Answers by calling `URL/chat/completions`.

    `async with` holds the connections open between calls; without it they live while calls overlap. Each
    failure is a PolicyFailure of one line that names the URL: a server that is busy or stumbles (429, 5xx, a
    dropped connection) is asked up to ATTEMPTS times before; refused connections and time-outs are not. All of
    these are transient; a refusal (4xx) and garbage are not. The draw's seed comes from the key and the turn.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        timeout: float = 300.0,
        concurrency: int = 64,
        extra: Mapping[str, Any] | None = None,
    ):
        """`url` ends before `/chat/completions`, e.g. `http://127.0.0.1:8000/v1`; `timeout` in seconds per call.

        `extra` is merged into each request's JSON; a None in it takes a field out, e.g. {"seed": None}.
        """
        self.url, self.model = _checked(url), model
        if api_key and self.url.user:
            raise UsageError("the endpoint's URL has a user in it: leave that out, or the api_key")
        self.concurrency = concurrency
        self._body = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
        self._extra = dict(extra or {})
        self._headers = {"Authorization": f"Bearer {api_key.strip()}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._users = 0
        self._session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(concurrency)

    async def __aenter__(self) -> Self:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0)  # the slots bound it: waiting for one is not the server's time
            self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout, headers=self._headers)
            self._slots = asyncio.Semaphore(self.concurrency)
        self._users += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._users -= 1
        if not self._users and self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Ask the endpoint; `usage` is what it reported."""
        drawn = sha256(f"{key}/{len(messages)}".encode()).digest()
        body: dict[str, Any] = {
            **self._body,
            "messages": [message_to_wire(message) for message in messages],
            "tools": [tool_to_wire(tool) for tool in tools] or None,
            "seed": int.from_bytes(drawn[:4]) >> 1,
            **self._extra,
        }
        sent = {name: value for name, value in body.items() if value is not None}
        async with self, self._slots:
            answer = await self._stubbornly(sent)
        try:
            return completion_of(answer)
        except PolicyFailure as failure:
            start = answer[:200].decode(errors="replace")
            raise self._failure(f"{failure}: {start!r}") from failure

    async def _stubbornly(self, body: Mapping[str, Any]) -> bytes:
        pause, calls = PAUSE_SECONDS, 1
        while isinstance(answer := await self._call(body), _Busy):
            wait = pause if answer.retry_after is None else answer.retry_after
            if calls == ATTEMPTS or wait > LONGEST_PAUSE_SECONDS:
                raise self._failure(answer.what, transient=True)
            await asyncio.sleep(wait)
            pause, calls = 2 * pause, calls + 1
        return answer

    async def _call(self, body: Mapping[str, Any]) -> bytes | _Busy:
        if self._session is None:
            raise self._failure("used outside of its session")
        try:
            # A redirect would carry the key to wherever it points.
            async with self._session.post(self.url, json=body, allow_redirects=False) as response:
                answer = await self._read(response)
        except TimeoutError as error:
            raise self._failure(f"no answer within {self._timeout.total:g} seconds", transient=True) from error
        except aiohttp.ClientConnectorError as error:
            raise self._failure(f"cannot connect: {error.os_error}", transient=True) from error
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            return _Busy(f"the connection broke: {error}")
        except aiohttp.ClientError as error:
            raise self._failure(f"{type(error).__name__}: {error}") from error
        if response.status == 200:
            return answer
        line = f"HTTP {response.status}: {answer[:1000].decode(errors='replace')}"
        if response.status in _TRANSIENT or response.status >= 500:
            return _Busy(line, _seconds(response.headers.get("Retry-After", "")))
        raise self._failure(line)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > LARGEST_ANSWER:
                raise self._failure(f"HTTP {response.status} with a body of more than {LARGEST_ANSWER} bytes")
        return bytes(body)

    def _failure(self, what: str, *, transient: bool = False) -> PolicyFailure:
        shown = self.url.with_user(None).with_query(None)
        return PolicyFailure(f"{shown}: {one_line(what)}", transient=transient)


@dataclass(frozen=True, slots=True)
class _Busy:
    """The server may well answer the same call a little later."""

    what: str
    retry_after: float | None = None
    """Seconds, when the server said."""


def _seconds(retry_after: str) -> float | None:
    # Some servers name a date: comparing that with our clock would trust both clocks.
    return float(retry_after) if retry_after.isdecimal() and len(retry_after) < 10 else None


def _checked(url: str) -> URL:
    try:
        base = URL(url.rstrip("/"))
    except ValueError as error:
        raise UsageError(f"{url!r} is not a URL: {error}") from error
    if base.scheme not in ("http", "https") or not base.host:
        raise UsageError(f"{url!r} is not the URL of an endpoint, like http://127.0.0.1:8000/v1")
    if base.path.endswith("/chat/completions"):
        return base
    return (base / "chat" / "completions").with_query(base.query)
