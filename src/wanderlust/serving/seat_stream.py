"""A seat's turn as server-sent events: text as the policy writes it, and comments that keep the connection open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Protocol

import msgspec

from wanderlust.errors import StopEpisode, UsageError, WanderlustError
from wanderlust.serving.chat_api import render_chat_chunks
from wanderlust.serving.http_response import HttpResponse, ResponseStream, Send, error_response
from wanderlust.serving.responses_api import render_response_events, render_response_piece

OnPiece = Callable[[str, str], None]
"""Receives an answer's id and a further piece of its text."""

FIRST_EVENT_SECONDS = 0.5
"""How long a turn may take whose failure still has a status of its own; then the stream begins."""
KEEP_ALIVE_SECONDS = 1.0
"""Between two comments while nothing is written: less than a client's shortest usual time-out."""
KEEP_ALIVE_COMMENT = b": the policy is at work\n\n"


class EventFormat(Protocol):
    """Renders a turn in one of OpenAI's APIs."""

    def piece(self, id: str, text: str) -> Iterator[bytes]:
        """Yield the events of a piece of text, after those that open the answer `id`."""
        ...

    def rest(self, answer: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the events that complete the answer."""
        ...

    def failure(self, message: str, code: str) -> Iterator[bytes]:
        """Yield the event of an error."""
        ...


class ChatEvents:
    """Chunks of a chat completion."""

    def __init__(self, body: Mapping[str, Any]):
        options = body.get("stream_options")
        self._usage = isinstance(options, Mapping) and bool(options.get("include_usage"))
        self._model, self._sent = str(body.get("model", "")), ""

    def piece(self, id: str, text: str) -> Iterator[bytes]:
        """As `EventFormat`."""
        shared = {"id": id, "created": 0, "model": self._model, "object": "chat.completion.chunk"}
        role = {} if self._sent else {"role": "assistant"}
        self._sent += text
        choice = {"index": 0, "delta": {**role, "content": text}, "finish_reason": None}
        yield _event(shared | {"choices": [choice]})

    def rest(self, answer: Mapping[str, Any]) -> Iterator[bytes]:
        """As `EventFormat`."""
        yield from map(_event, render_chat_chunks(answer, usage=self._usage, sent=self._sent))
        yield b"data: [DONE]\n\n"

    def failure(self, message: str, code: str) -> Iterator[bytes]:
        """As `EventFormat`."""
        yield _event({"error": {"message": message, "type": code, "param": None, "code": code}})


class ResponseEvents:
    """Events of a response."""

    def __init__(self, body: Mapping[str, Any]):
        self._body, self._sent, self._numbers = body, "", count()

    def piece(self, id: str, text: str) -> Iterator[bytes]:
        """As `EventFormat`."""
        opened = bool(self._sent)
        self._sent += text
        yield from map(self._numbered, render_response_piece(id, text, request=self._body, opened=opened))

    def rest(self, answer: Mapping[str, Any]) -> Iterator[bytes]:
        """As `EventFormat`."""
        yield from map(self._numbered, render_response_events(answer, sent=self._sent))

    def failure(self, message: str, code: str) -> Iterator[bytes]:
        """As `EventFormat`."""
        error = {"message": message, "type": code, "param": None, "code": code}
        yield self._numbered({"type": "error", "code": code, "message": message, "param": None, "error": error})

    def _numbered(self, event: Mapping[str, Any]) -> bytes:
        return b"event: %s\n" % event["type"].encode() + _event({**event, "sequence_number": next(self._numbers)})


def _event(data: Any) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def describe_failure(error: BaseException) -> tuple[int, str, str]:
    """Status, text and code of a turn that did not happen. Other errors than this library's are raised."""
    if isinstance(error, UsageError):
        return 400, str(error), "invalid_request_error"
    if isinstance(error, StopEpisode):
        return 403, f"the episode is over: {error}", "episode_over"
    if isinstance(error, WanderlustError):
        return 502, f"{type(error).__name__}: {error}", "policy_failure"
    raise error


def failure_response(error: BaseException) -> HttpResponse:
    """Make the answer to a turn that did not happen."""
    status, text, code = describe_failure(error)
    return error_response(status, text, code=code)


class TurnStream:
    """A turn that is taken while its answer is written.

    Its text goes out as the policy writes it, where it can, else in one piece. A turn that fails within
    FIRST_EVENT_SECONDS has the status of its failure; a later failure is an error event, and the last one. Where the
    client goes away, the turn is dropped.
    """

    def __init__(self, take: Callable[[OnPiece], Awaitable[Mapping[str, Any]]], events: EventFormat):
        self._take, self._events = take, events
        self._fresh = asyncio.Event()
        self._id, self._text = "", ""

    async def begin(self) -> HttpResponse | ResponseStream:
        """Begin the turn, and answer as soon as it is known that the request is a good one."""
        turn = asyncio.ensure_future(self._take(self._read))
        turn.add_done_callback(lambda _: self._fresh.set())
        try:
            await self._changed(FIRST_EVENT_SECONDS)
        except asyncio.CancelledError:
            turn.cancel()
            raise
        if turn.done() and (error := turn.exception()) is not None:
            return failure_response(error)
        return ResponseStream(partial(self._write, turn), turn.cancel)

    def _read(self, id: str, text: str) -> None:
        self._id, self._text = id, self._text + text
        self._fresh.set()

    async def _changed(self, seconds: float) -> bool:
        """Wait until there is more text or the turn has ended, for so many seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._fresh.wait()
                return True
        return False

    async def _write(self, turn: asyncio.Future[Mapping[str, Any]], send: Send) -> None:
        while True:
            self._fresh.clear()
            if self._text.strip():  # an answer of calls alone may begin with spaces, which are no text
                text, self._text = self._text, ""
                for event in self._events.piece(self._id, text):
                    await send(event)
            if turn.done():
                break
            if not await self._changed(KEEP_ALIVE_SECONDS):
                await send(KEEP_ALIVE_COMMENT)
        error = turn.exception()
        if error is not None:
            _, message, code = describe_failure(error)
        for event in self._events.rest(turn.result()) if error is None else self._events.failure(message, code):
            await send(event)
