"""A model behind an OpenAI-compatible HTTP endpoint: hosted ones, vLLM, SGLang, llama.cpp, Ollama.

Room for many connections: each is an open file, and systems bound how many of those a process may have.
"""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from io import BytesIO
from random import Random
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import aiohttp
import msgspec
from yarl import URL

from wanderlust.errors import PolicyFailure, UsageError, one_line
from wanderlust.openai_types import message_to_wire, parse_chat_completion, tool_to_wire
from wanderlust.policies.rate_limit import Throttle
from wanderlust.types import Completion, Message, Tokens, Tool

SPARE_FILES = 256
"""Open files left to everything else in the process."""


def raise_file_limit(connections: int) -> None:
    """This process may hold as many connections at once, and the bound that it may raise itself is raised if need be.

    Raises UsageError of one line when the system's own bound is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    except (ValueError, OSError) as error:
        raise UsageError(
            f"{connections} calls at once take {needed} open files and this process may have {max(soft, hard)}:"
            f" ask for at most {max(1, max(soft, hard) - SPARE_FILES)} at once, or raise the hard limit (ulimit -Hn)"
        ) from error


PREFER_TOKEN_IDS = "token-ids"


MAX_ATTEMPTS = 5
"""Calls made before a server that is busy, stumbles or talks nonsense is a failure."""
FIRST_PAUSE_SECONDS = 0.5
"""Before the second call, give or take a half; doubles with each further one, unless the server names a time."""
MAX_PAUSE_SECONDS = 30.0
"""A server that asks for more is a failure at once: the caller knows better what to do."""
MAX_RESPONSE_BYTES = 8 * 2**20
"""Bytes of a body that are read before it is refused; ten thousand conversations must fit into memory."""
AnswerT = TypeVar("AnswerT")
_TRANSIENT = frozenset({408, 409, 425, 429})
_OVERLOAD = frozenset({408, 429, 503, 529})


class HttpConnection:
    """Calls to one server, as stubborn as they should be.

    `async with` holds the connections open between calls; without it they live while calls overlap. A server that
    is busy or stumbles (429, 5xx, a dropped connection, a time-out) or talks nonsense (no JSON, cut JSON, no answer
    in it, too long a body) is asked up to ATTEMPTS times, after pauses drawn from the key; where it is overloaded,
    fewer calls are made at once until it is not. What still fails is a PolicyFailure of one line that names the URL
    and what happened, and so is at once a refusal (4xx) and a refused connection. Nonsense and refusals are not
    transient. Each call at once is an open file: more than the system allows are a UsageError when it is opened.
    """

    def __init__(self, *, api_key: str | None = None, timeout: float = 300.0, concurrency: int = 64):
        """`timeout` in seconds per call, which waiting for one of the `concurrency` places is no part of."""
        self.concurrency = concurrency
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "Prefer": PREFER_TOKEN_IDS}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key.strip()}"
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._users = 0
        self._session: aiohttp.ClientSession | None = None
        self.throttle = Throttle(concurrency)

    async def __aenter__(self) -> Self:
        if self._session is None:
            raise_file_limit(self.concurrency)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # the throttle bounds it
                timeout=self._timeout,
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # a small body could become an endless one
            )
            self.throttle = Throttle(self.concurrency)
        self._users += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._users -= 1
        if not self._users and self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def ask(self, url: URL, body: bytes, *, draw: str, read: Callable[[bytes], AnswerT]) -> AnswerT:
        """Post `body`; what `read` makes of the answer. `read` raises PolicyFailure for nonsense."""
        async with self:
            return await self._call_with_retries(_Call(url, body, read), draw)

    async def _call_with_retries(self, call: _Call[AnswerT], draw: str) -> AnswerT:
        attempt = 1
        while isinstance(outcome := await self._call_when_admitted(call), _Fault):
            if attempt == MAX_ATTEMPTS or (outcome.retry_after or 0) > MAX_PAUSE_SECONDS:
                description = f"{outcome.what} (the last of {attempt} calls)" if attempt > 1 else outcome.what
                raise endpoint_failure(call.url, description, transient=outcome.transient)
            await asyncio.sleep(pause_before(attempt + 1, draw, retry_after=outcome.retry_after))
            attempt += 1
        return outcome

    async def _call_when_admitted(self, call: _Call[AnswerT]) -> AnswerT | _Fault:
        await self.throttle.enter()
        refused = False
        try:
            outcome = await self._call(call)
            refused = isinstance(outcome, _Fault) and outcome.overload
        finally:
            self.throttle.leave(overloaded=refused)
        return outcome

    async def _call(self, call: _Call[AnswerT]) -> AnswerT | _Fault:
        if self._session is None:
            raise endpoint_failure(call.url, "used outside of its session")
        try:
            # A redirect would carry the key to wherever it points.
            data = (
                call.body if len(call.body) < 2**20 else BytesIO(call.body)
            )  # sent in pieces, others may go on meanwhile
            async with self._session.post(call.url, data=data, allow_redirects=False) as response:
                return _parse_response(call, response, await _read(response))
        except TimeoutError:
            return _Fault(f"no answer within {self._timeout.total:g} seconds", overload=True)
        except aiohttp.ClientConnectorError as error:
            raise endpoint_failure(call.url, f"cannot connect: {error.os_error}", transient=True) from error
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            return _Fault(f"the connection broke: {error}", overload=True)
        except aiohttp.ClientError as error:
            return _Fault(f"{type(error).__name__}: {error}", transient=False)


def _parse_response(call: _Call[AnswerT], response: aiohttp.ClientResponse, answer: bytes | None) -> AnswerT | _Fault:
    status, headers = response.status, response.headers
    if answer is None:
        return _Fault(f"HTTP {status} with a body of more than {MAX_RESPONSE_BYTES} bytes", transient=False)
    start = answer[:1000].decode(errors="replace")
    if status != 200:
        if status not in _TRANSIENT and status < 500:
            raise endpoint_failure(call.url, f"HTTP {status}: {start}")
        named = _seconds(headers.get("Retry-After", ""))
        return _Fault(f"HTTP {status}: {start}", named, overload=status in _OVERLOAD)
    if headers.get("Content-Encoding", "identity") != "identity":
        return _Fault("a compressed answer, though none was asked for", transient=False)
    try:
        return call.read(answer)
    except PolicyFailure as failure:
        return _Fault(f"{failure}: {start[:200]!r}", transient=False)


def endpoint_failure(url: URL, what: str, *, transient: bool = False) -> PolicyFailure:
    """The failure of one line that names the URL, without what may be secret in it."""
    safe_url = url.with_user(None).with_query(None)
    return PolicyFailure(f"{safe_url}: {one_line(what)}", transient=transient)


class Endpoint(HttpConnection):
    """Answers by calling `URL/chat/completions`.

    `async with` holds the connections open between calls; without it they live while calls overlap. A server that
    is busy or stumbles (429, 5xx, a dropped connection, a time-out) or talks nonsense (no JSON, cut JSON, no answer
    in it, too long a body) is asked up to ATTEMPTS times, after pauses drawn from the key; where it is overloaded,
    fewer calls are made at once until it is not. What still fails is a PolicyFailure of one line that names the URL
    and what happened, and so is at once a refusal (4xx) and a refused connection. Nonsense and refusals are not
    transient. The draw's seed comes from the key and the turn. Each call at once is an open file: more than the system
    allows are a UsageError when it is opened.
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
        """`url` ends before `/chat/completions`, e.g. `http://127.0.0.1:8000/v1`; `timeout` in seconds per call, which
        waiting for one of the `concurrency` places is no part of.

        `extra` is merged into each request's JSON; a None in it takes a field out, e.g. {"seed": None}.
        """
        self.url, self.model = parse_endpoint_url(url, "chat/completions"), model
        if api_key and self.url.user:
            raise UsageError("the endpoint's URL has a user in it: leave that out, or the api_key")
        super().__init__(api_key=api_key, timeout=timeout, concurrency=concurrency)
        self._body = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
        self._extra = dict(extra or {})
        self._read: dict[str, tuple[int, ...]] = {}
        """By key, the ids of the conversation so far, where the server tells them."""

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Ask the endpoint; `usage` is what it reported."""
        body = self._request(messages, tools, key=key)
        done = await self.ask(self.url, body, draw=f"{key}/{len(messages)}", read=parse_chat_completion)
        return self._exact(done, key) if done.tokens is not None else done

    async def complete_with_format(
        self,
        response_format: Mapping[str, Any],
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        key: str = "",
    ) -> Completion:
        """Ask for an answer in a `response_format`; what the endpoint makes of it is its business."""
        body = self._request(messages, tools, key=key, response_format=response_format)
        done = await self.ask(self.url, body, draw=f"{key}/{len(messages)}", read=parse_chat_completion)
        return self._exact(done, key) if done.tokens is not None else done

    def release(self, key: str) -> None:
        """A conversation is over."""
        self._read.pop(key, None)

    def _exact(self, done: Completion, key: str) -> Completion:
        """Tokens that say what of the context is new, where it goes on from the turn before."""
        tokens, before = done.tokens, self._read.get(key, ())
        assert tokens is not None
        goes_on = len(tokens.prompt) > len(before) and tokens.prompt[: len(before)] == before
        if key:
            self._read[key] = (*tokens.prompt, *tokens.completion)
        offset = len(before) if goes_on else 0
        new = Tokens(
            prompt=tokens.prompt[offset:], completion=tokens.completion, logprobs=tokens.logprobs, offset=offset
        )
        return replace(done, tokens=new)

    def _request(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        *,
        key: str,
        response_format: Mapping[str, Any] | None = None,
    ) -> bytes:
        drawn = sha256(f"{key}/{len(messages)}".encode()).digest()
        body: dict[str, Any] = {
            **self._body,
            "messages": [message_to_wire(message) for message in messages],
            "tools": [tool_to_wire(tool) for tool in tools] or None,
            "seed": int.from_bytes(drawn[:4]) >> 1,
            "response_format": response_format,
            **self._extra,
        }
        sent = {name: value for name, value in body.items() if value is not None}
        try:
            return msgspec.json.encode(sent)
        except UnicodeEncodeError:  # half a character, which an escape can carry
            return json.dumps(sent).encode()


def pause_before(call: int, draw: str, *, retry_after: float | None = None) -> float:
    """Seconds before the call of that number (from 2), the same for the same `draw`; a little over what was `retry_after`."""
    jitter = Random(f"{draw}/{call}").random()
    return (
        FIRST_PAUSE_SECONDS * 2 ** (call - 2) * (0.5 + jitter)
        if retry_after is None
        else retry_after * (1 + jitter / 4)
    )


@dataclass(frozen=True, slots=True)
class _Call(Generic[AnswerT]):
    url: URL
    body: bytes
    read: Callable[[bytes], AnswerT]


@dataclass(frozen=True, slots=True)
class _Fault:
    """The server may well answer the same call a little later."""

    what: str
    retry_after: float | None = None
    """Seconds, when the server said."""
    overload: bool = False
    """Whether fewer calls at once might have helped."""
    transient: bool = True


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    """The body; None when it is longer than LARGEST_ANSWER."""
    if response.content_length is not None:
        return await response.read() if response.content_length <= MAX_RESPONSE_BYTES else None
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            return None
    return bytes(body)


def _seconds(retry_after: str) -> float | None:
    # Some servers name a date: comparing that with our clock would trust both clocks.
    return float(retry_after) if retry_after.isdecimal() and len(retry_after) < 10 else None


def parse_endpoint_url(url: str, path: str) -> URL:
    """The URL of `path` at an endpoint, which may end in it already. Raises UsageError for what is no such URL."""
    try:
        base = URL(url.rstrip("/"))
    except ValueError as error:
        raise UsageError(f"{url!r} is not a URL: {error}") from error
    if base.scheme not in ("http", "https") or not base.host:
        raise UsageError(f"{url!r} is not the URL of an endpoint, like http://127.0.0.1:8000/v1")
    if base.path.endswith(f"/{path}"):
        return base
    return base.joinpath(*path.split("/")).with_query(base.query)
