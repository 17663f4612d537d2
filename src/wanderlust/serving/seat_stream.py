"""A seat's turns as server-sent events: text as the policy writes it, and signs of life in between."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from wanderlust.errors import StopEpisode, UsageError, WanderlustError
from wanderlust.serving.dialect import Events, OnPiece, Style
from wanderlust.serving.http import HttpResponse, ResponseStream, Send, error_response
from wanderlust.types import Turn

FIRST_EVENT_SECONDS = 0.1
"""How long a turn may take whose failure still has a status of its own; then the stream begins."""
KEEP_ALIVE_SECONDS = 1.0
"""Between two signs of life while nothing is written: less than a client's shortest usual time-out."""


def describe_failure(error: BaseException) -> tuple[int, str, str]:
    """Status, text and code of a turn that did not happen. Other errors than this library's are raised."""
    if isinstance(error, UsageError):
        return 400, str(error), "invalid_request_error"
    if isinstance(error, StopEpisode):
        return 403, f"the episode is over: {error}", "episode_over"
    if isinstance(error, WanderlustError):
        return 502, f"{type(error).__name__}: {error}", "policy_failure"
    raise error


def failure_response(error: BaseException, style: Style = "openai") -> HttpResponse:
    """Make the answer to a turn that did not happen."""
    status, text, code = describe_failure(error)
    return error_response(status, text, code=code, style=style)


class TurnStream:
    """Turns that are taken while their answer is written.

    Text goes out as the policy writes it, where it can, else in one piece. A turn that fails within
    FIRST_EVENT_SECONDS has the status of its failure; a later failure is an error event, and the last one. Where the
    client goes away, the turn is dropped.
    """

    def __init__(self, take: Callable[[OnPiece], Awaitable[Sequence[Turn]]], events: Events, style: Style = "openai"):
        self._take, self._events, self._style = take, events, style
        self._fresh = asyncio.Event()
        self._pieces = deque[tuple[int, str]]()
        self._started = set[int]()

    async def begin(self) -> HttpResponse | ResponseStream:
        """Begin the turn, and answer as soon as it is known that the request is a good one."""
        turns = asyncio.ensure_future(self._take(self._read))
        turns.add_done_callback(lambda _: self._fresh.set())
        try:
            await self._changed(FIRST_EVENT_SECONDS)
        except asyncio.CancelledError:
            turns.cancel()
            raise
        if turns.done() and (error := turns.exception()) is not None:
            return failure_response(error, self._style)
        return ResponseStream(partial(self._write, turns), turns.cancel)

    def _read(self, index: int, text: str) -> None:
        if self._pieces and self._pieces[-1][0] == index:
            text = self._pieces.pop()[1] + text
        self._pieces.append((index, text))
        self._fresh.set()

    async def _changed(self, seconds: float) -> bool:
        """Wait until there is more text or the turn has ended, for so many seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._fresh.wait()
                return True
        return False

    async def _write(self, turns: asyncio.Future[Sequence[Turn]], send: Send) -> None:
        await self._send(send, b"".join(map(self._events.encode, self._events.opening())))
        if not turns.done() and not self._pieces:
            await send(self._events.keep_alive)
        while True:
            self._fresh.clear()
            await self._send(send, b"".join(self._new_text()))
            if turns.done():
                break
            if not await self._changed(KEEP_ALIVE_SECONDS):
                await send(self._events.keep_alive)
        error = turns.exception()
        last = self._events.rest(turns.result()) if error is None else self._events.failure(*describe_failure(error))
        for event in last:
            await send(self._events.encode(event))
        if error is None:
            await self._send(send, self._events.ending)

    def _new_text(self) -> list[bytes]:
        """The events of the text that is new; an answer of calls alone may begin with spaces, which are no text."""
        out, held = list[bytes](), deque[tuple[int, str]]()
        while self._pieces:
            index, text = self._pieces.popleft()
            if index not in self._started and not text.strip():
                held.append((index, text))
                continue
            self._started.add(index)
            out += map(self._events.encode, self._events.piece(index, text))
        self._pieces = held
        return out

    async def _send(self, send: Send, data: bytes) -> None:
        if data:
            await send(data)
