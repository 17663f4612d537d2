"""A policy behind an OpenAI-compatible HTTP endpoint (hosted, vLLM, SGLang, llama.cpp, Ollama), with retries."""

from __future__ import annotations

import asyncio
import json
import re
import resource
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from io import BytesIO
from random import Random
from typing import Any, ClassVar, Generic, Self, TypeVar

import aiohttp
import msgspec
from yarl import URL

from wanderlust.agent.conversation_graph import draw_name
from wanderlust.errors import ContextFull, PolicyFailure, UsageError, one_line, quoted
from wanderlust.openai_types import message_to_wire, options_to_wire, parse_chat_completion, tool_to_wire
from wanderlust.policies.refusals import Refusal, Trial, parse_refusal, told_status
from wanderlust.types import AnswerOptions, Completion, Message, OnText, Tool

GROWTH = 1 / 16
"""Growth of the limit after a window, as a share of the limit."""
MIN_GROWTH = 1 / 4
"""Least growth of the limit after a window, in calls."""
MIN_WINDOW_CALLS = 8
"""Fewest calls in a window."""


class Throttle:
    """Admit at most `max_calls` calls at once, and fewer while the server is overloaded.

    After each window (as many calls as the limit) the limit grows by a step and shrinks by half the share of the
    window's calls that the server refused: it about halves where all were refused, and stays where one in eight was.
    Callers wait in order. Source: additive increase and the proportional decrease of Data Center TCP (RFC 8257).
    """

    def __init__(self, max_calls: int):
        self.max_calls = max_calls
        self.limit = float(max_calls)
        self._live = self._calls = self._refused = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait for a place; each call that gets one must `leave`."""
        if not self._waiting and self._live + 1 <= self.limit:
            self._live += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._waiting = deque(other for other in self._waiting if other is not place)
            else:  # it was given the place in the same moment
                self._live -= 1
                self._admit()
            raise

    def leave(self, *, overloaded: bool = False) -> None:
        """Give the place back; `overloaded` when the server refused the call as one too many."""
        self._live -= 1
        self._calls += 1
        self._refused += overloaded
        if self._calls >= max(MIN_WINDOW_CALLS, self.limit):
            shrunk = self.limit * (1 - self._refused / self._calls / 2)
            self.limit = max(1.0, min(float(self.max_calls), shrunk + max(MIN_GROWTH, self.limit * GROWTH)))
            self._calls = self._refused = 0
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._live + 1 <= self.limit:
            place = self._waiting.popleft()
            if not place.done():
                self._live += 1
                place.set_result(None)


SPARE_FILES = 256
"""Open files reserved for the rest of the process."""


def raise_file_limit(connections: int) -> None:
    """Raise the process's soft limit of open files so that it may hold as many connections at once.

    Raises UsageError of one line when the system's hard limit is too low.
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
"""Value of the header Prefer that asks a server for exact token ids."""
MAX_ATTEMPTS = 5
"""Calls made before a server that is busy, fails or answers nonsense is a PolicyFailure."""
FIRST_PAUSE_SECONDS = 0.5
"""Pause before the second call, varied by half; doubles with each further one, unless the server names a time."""
MAX_PAUSE_SECONDS = 30.0
"""A server that asks for a longer pause is a failure at once."""
MAX_RESPONSE_BYTES = 8 * 2**20
"""Longest body that is read; ten thousand conversations must fit into memory."""
MAX_ADAPTATIONS = 4
"""Bodies that are tried for one request, where a refusal says what to change."""
AnswerT = TypeVar("AnswerT")
_TRANSIENT = frozenset({408, 409, 425, 429})
_OVERLOAD = frozenset({408, 429, 503, 529})
_RETRY_DELAY = re.compile(rb'"retryDelay": ?"(\d+)(?:\.\d+)?s"')
"""Where Google's errors say when to ask again."""


class HttpConnection:
    """Calls to one server, with retries and a bound of concurrent calls.

    `async with` holds the connections open between calls; without it they live while calls overlap. A server that
    is busy or fails (429, 5xx, a dropped connection, a time-out) or answers nonsense (no JSON, cut JSON, no answer
    in it, too long a body) is asked up to MAX_ATTEMPTS times, after pauses drawn from the key; where it is
    overloaded, fewer calls are made at once until it is not. After the last attempt it is a PolicyFailure of one line
    that names the URL and the reason; a refusal (4xx) and a refused connection are failures at once. Nonsense and
    refusals are not transient. A conversation that is too long is a ContextFull, also where a 5xx says so. A server
    that refuses the first few requests is asked no further (`Trial`). Each concurrent call is an open file: more than
    the system allows are a UsageError when the connection is opened.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        timeout: float = 300.0,
        concurrency: int = 64,
        headers: Mapping[str, str] | None = None,
    ):
        """`timeout` in seconds per call; waiting for one of the `concurrency` places does not count.

        `headers` are sent with each call, and replace those of the same name.
        """
        self.concurrency = concurrency
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "Prefer": PREFER_TOKEN_IDS}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key.strip()}"
        self._headers |= headers or {}
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._users = 0
        self._session: aiohttp.ClientSession | None = None
        self.throttle, self.trial = Throttle(concurrency), Trial()

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
            self.throttle, self.trial = Throttle(self.concurrency), Trial(answered=self.trial.answered)
        self._users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._users -= 1
        if not self._users and self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def ask(
        self,
        url: URL,
        body: bytes,
        *,
        draw: str,
        read: Callable[[bytes], AnswerT],
        adapt: Callable[[Refusal], bytes | None] | None = None,
    ) -> AnswerT:
        """Post `body` and return the answer parsed by `read`, which raises PolicyFailure for nonsense.

        `adapt` makes another body of one that was refused, which is asked then; None where there is none.
        """
        tries = 1
        async with self:
            while isinstance(outcome := await self._try(Call(url, body, read), draw), Refusal):
                adapted = adapt(outcome) if adapt is not None and tries < MAX_ADAPTATIONS else None
                if adapted is None:
                    if outcome.context_full:
                        raise ContextFull(f"{safe_url(url)}: {one_line(outcome.text)}")
                    raise endpoint_failure(url, f"{outcome.name}: {outcome.text}", refusal=outcome.name)
                body, tries = adapted, tries + 1
        return outcome

    async def _try(self, call: Call[AnswerT], draw: str) -> AnswerT | Refusal:
        """The answer to one body, after as many attempts as it takes, or the server's refusal."""
        try:
            await self.trial.enter()
        except PolicyFailure as failure:
            raise endpoint_failure(call.url, str(failure), refusal=failure.refusal) from None
        answered, refusal, attempt = False, None, 1
        try:
            while True:
                await self.throttle.enter()
                overloaded = False
                try:
                    outcome = await self._call(call)
                    overloaded = isinstance(outcome, Fault) and outcome.overload
                finally:
                    self.throttle.leave(overloaded=overloaded)
                if not isinstance(outcome, Fault):
                    refusal = None
                    if isinstance(outcome, Refusal) and not (outcome.context_full or outcome.label):
                        refusal = outcome
                    answered = refusal is None
                    return outcome
                if attempt == MAX_ATTEMPTS or (outcome.retry_after or 0) > MAX_PAUSE_SECONDS:
                    description = f"{outcome.what} (the last of {attempt} calls)" if attempt > 1 else outcome.what
                    raise endpoint_failure(call.url, description, transient=outcome.transient)
                await asyncio.sleep(pause_before(attempt + 1, draw, retry_after=outcome.retry_after))
                attempt += 1
        finally:
            self.trial.leave(answered=answered, refusal=refusal)

    async def _call(self, call: Call[AnswerT]) -> AnswerT | Fault | Refusal:
        if self._session is None:
            raise endpoint_failure(call.url, "used outside of its session")
        try:
            # A large body is sent in pieces, so that other calls go on meanwhile.
            data = call.body if len(call.body) < 2**20 else BytesIO(call.body)
            # A redirect would carry the key to wherever it points.
            async with self._session.post(call.url, data=data, allow_redirects=False) as response:
                answer = await _read(response)
                return parse_http_answer(call, answer, status=response.status, headers=response.headers)
        except TimeoutError:
            return Fault(f"no answer within {self._timeout.total:g} seconds", overload=True)
        except aiohttp.ClientConnectorError as error:
            raise endpoint_failure(call.url, f"cannot connect: {error.os_error}", transient=True) from error
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            return Fault(f"the connection broke: {error}", overload=True)
        except aiohttp.ClientError as error:
            return Fault(f"{type(error).__name__}: {error}", transient=False)


def parse_http_answer(
    call: Call[AnswerT], answer: bytes | None, *, status: int, headers: Mapping[str, str]
) -> AnswerT | Fault | Refusal:
    """Read a server's answer to a call: what it said, a refusal, or a fault that may pass."""
    if answer is None:
        return Fault(f"HTTP {status} with a body of more than {MAX_RESPONSE_BYTES} bytes", transient=False)
    if status != 200:
        refusal = parse_refusal(status, answer)
        if refusal.context_full or refusal.used_up or (status not in _TRANSIENT and status < 500):
            return refusal
        delay = _RETRY_DELAY.search(answer[:10_000])
        retry_after = headers.get("Retry-After") or (delay[1].decode() if delay else "")
        # Some servers name a date: comparing that with our clock would trust both clocks.
        seconds = float(retry_after) if retry_after.isdecimal() and len(retry_after) < 10 else None
        return Fault(f"HTTP {status}: {refusal.text}", seconds, overload=status in _OVERLOAD)
    if headers.get("Content-Encoding", "identity") != "identity":
        return Fault("a compressed answer, though none was asked for", transient=False)
    return _read_answer(call, answer)


def _read_answer(call: Call[AnswerT], answer: bytes) -> AnswerT | Fault | Refusal:
    try:
        return call.read(answer)
    except PolicyFailure as failure:
        if failure.refusal:  # the provider said so: asking again is no use
            return Refusal(status=200, text=str(failure), label=failure.refusal)
        if status := told_status(answer):
            return parse_http_answer(call, answer, status=status, headers={})
        return Fault(f"{failure}: {quoted(answer[:1000].decode(errors='replace'), 200)}", transient=False)


def endpoint_failure(url: URL, what: str, *, transient: bool = False, refusal: str = "") -> PolicyFailure:
    """Make a PolicyFailure of one line that names the URL without user and query, which may be secret."""
    return PolicyFailure(f"{safe_url(url)}: {one_line(what)}", transient=transient, refusal=refusal)


def safe_url(url: URL) -> URL:
    """The URL without user and query, which may be secret."""
    return url.with_user(None).with_query(None)


class Endpoint(HttpConnection):
    """Answer by calling `URL/chat/completions`; the request's seed comes from the key and the turn.

    Connections, retries and failures are those of `HttpConnection`. Images are sent as they are.
    """

    accepts_images: ClassVar[bool] = True

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
        extra_body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        """`url` ends before `/chat/completions`, e.g. `http://127.0.0.1:8000/v1`; `timeout` in seconds per call,
        without the wait for one of the `concurrency` places.

        `extra_body` is merged into each request's JSON, e.g. {"top_p": 0.9, "reasoning_effort": "low"}; a None in it
        removes a field, e.g. {"seed": None}. Where the server asks for `max_completion_tokens`, `max_tokens` is sent
        under that name; where an answer of `max_tokens` does not fit into the context, a shorter one is asked for.
        """
        self.url, self.model = parse_endpoint_url(url, "chat/completions"), model
        if api_key and self.url.user:
            raise UsageError("the endpoint's URL has a user in it: leave that out, or the api_key")
        super().__init__(api_key=api_key, timeout=timeout, concurrency=concurrency, headers=headers)
        self._body = {"model": model or None, "temperature": temperature, "max_tokens": max_tokens}
        self._extra = dict(extra_body or {})
        self._length_name = "max_tokens"
        self._sends_reasoning = True
        self.sampling: Mapping[str, Any] = {**self._body, **self._extra}
        """Settings that are sent with each request."""
        self._read: dict[str, tuple[int, ...]] = {}
        """By key, the ids of the conversation so far, where the server reports them."""

    @property
    def label(self) -> str:
        """The model, and where it is; without user and query, which may be secret."""
        return f"{self.model or 'the model'} at {safe_url(self.url)}"

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Ask the endpoint; `usage` is what it reported."""
        return await self._answer(messages, tools, key=key)

    def unsupported_option(self, options: AnswerOptions) -> str:
        """As in SupportsOptions: all are sent; that the endpoint obeys them is not guaranteed."""
        return ""

    async def complete_with_options(
        self,
        options: AnswerOptions,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        key: str = "",
        on_text: OnText | None = None,
    ) -> Completion:
        """Send the options with the request; the endpoint's refusal of one is a PolicyFailure."""
        return await self._answer(messages, tools, key=key, options=options)

    def release(self, key: str) -> None:
        """Forget the conversation `key`."""
        self._read.pop(key, None)

    async def _answer(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        *,
        key: str,
        options: AnswerOptions | None = None,
    ) -> Completion:
        draw = draw_name(key, messages)
        drawn = sha256(draw.encode()).digest()
        body: dict[str, Any] = {
            **self._body,
            "tools": [tool_to_wire(tool) for tool in tools] or None,
            "seed": int.from_bytes(drawn[:4]) >> 1,
            **self._extra,
        }
        if options is not None:
            body |= options_to_wire(options, most_tokens=body.get("max_tokens"))
        request = _ChatRequest(self, messages, body)
        read = partial(parse_chat_completion, details=options is not None and (options.logprobs or bool(options.stop)))
        done = await self.ask(self.url, request.encode(), draw=draw, read=read, adapt=request.adapt)
        if (tokens := done.tokens) is None:
            return done
        before = self._read.get(key, ())
        goes_on = len(tokens.prompt) > len(before) and tokens.prompt[: len(before)] == before
        if key:
            self._read[key] = (*tokens.prompt, *tokens.completion)
        offset = len(before) if goes_on else 0  # a prompt that extends the turn before is told by its new part alone
        return replace(done, tokens=replace(tokens, prompt=tokens.prompt[offset:], offset=offset))


class _ChatRequest:
    """One request, and what the server's refusals make of it and of those that follow."""

    def __init__(self, endpoint: Endpoint, messages: Sequence[Message], body: Mapping[str, Any]):
        self.endpoint, self.messages, self.body = endpoint, messages, dict(body)
        self.has_reasoning = any(message.reasoning or message.extra for message in messages)
        self.sent: dict[str, Any] = {}

    def encode(self) -> bytes:
        """The body, as the server takes it as far as is known."""
        reasoning = self.endpoint._sends_reasoning
        wire = [message_to_wire(message, reasoning=reasoning) for message in self.messages]
        body = self.body | {"messages": wire}
        if self.endpoint._length_name not in body:
            body[self.endpoint._length_name] = body.pop("max_tokens", None)
        self.sent = {name: value for name, value in body.items() if value is not None}
        try:
            return msgspec.json.encode(self.sent)
        except UnicodeEncodeError:  # half a character, which an escape can carry
            return json.dumps(self.sent).encode()

    def adapt(self, refusal: Refusal) -> bytes | None:
        """The body without what the server refused; None where the refusal names nothing that can be changed."""
        length = next((name for name in LENGTH_NAMES if self.sent.get(name) is not None), "")
        if refusal.context_full:
            if not length or not 0 < refusal.room < self.sent[length]:
                return None
            self.body.pop("max_completion_tokens", None)
            self.body["max_tokens"] = refusal.room
        elif length == "max_tokens" and "max_completion_tokens" in refusal.text:
            self.endpoint._length_name = "max_completion_tokens"
        elif self.has_reasoning and self.endpoint._sends_reasoning and _REASONING_NAME.search(refusal.text):
            self.endpoint._sends_reasoning = False
        else:
            return None
        return self.encode()


LENGTH_NAMES = ("max_tokens", "max_completion_tokens")
"""Names of the bound of an answer; servers of reasoning models take the second one alone."""
_REASONING_NAME = re.compile(r"reasoning_(content|details)|thinking_blocks|extra_content|'reasoning'")


def pause_before(call: int, draw: str, *, retry_after: float | None = None) -> float:
    """Seconds before call number `call` (from 2), a function of `draw`; slightly more than `retry_after` if given."""
    jitter = Random(f"{draw}/{call}").random()
    if retry_after is not None:
        return retry_after * (1 + jitter / 4)
    return FIRST_PAUSE_SECONDS * 2.0 ** (call - 2) * (0.5 + jitter)


@dataclass(frozen=True, slots=True)
class Call(Generic[AnswerT]):
    """A request to a server, and how its answer is read."""

    url: URL
    body: bytes
    read: Callable[[bytes], AnswerT]


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed attempt that may be repeated."""

    what: str
    retry_after: float | None = None
    """Seconds, where the server names them."""
    overload: bool = False
    """Whether fewer calls at once might have helped."""
    transient: bool = True


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    """The body; None when it is longer than MAX_RESPONSE_BYTES."""
    if response.content_length is not None:
        return await response.read() if response.content_length <= MAX_RESPONSE_BYTES else None
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            return None
    return bytes(body)


def parse_endpoint_url(url: str, path: str) -> URL:
    """Append `path` to an endpoint's URL, unless it ends in it already. Raises UsageError for any other URL."""
    try:
        base = URL(url.rstrip("/"))
    except ValueError as error:
        raise UsageError(f"{url!r} is not a URL: {error}") from error
    if base.scheme not in ("http", "https") or not base.host:
        raise UsageError(f"{url!r} is not the URL of an endpoint, like http://127.0.0.1:8000/v1")
    if base.path.endswith(f"/{path}"):
        return base
    return base.joinpath(*path.split("/")).with_query(base.query)
