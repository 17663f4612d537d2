"""OpenAI's API over the seats of one episode: every request of a program is a recorded, bounded turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from itertools import count
from typing import Any

import msgspec

from wanderlust.agent import Agent
from wanderlust.errors import StopEpisode, UsageError, WanderlustError, one_line
from wanderlust.serving.chat_api import SeatRequest, parse_seat_request, render_chat_completion
from wanderlust.serving.http_response import HttpResponse, ResponseStream, error_response
from wanderlust.serving.responses_api import (
    parse_responses_request,
    previous_response_id,
    render_response,
)
from wanderlust.serving.seat_stream import ChatEvents, OnPiece, ResponseEvents, TurnStream, failure_response
from wanderlust.types import Message, Turn

MAX_WAITING_SEAT_REQUESTS = 64
"""Concurrent requests of one episode."""


class AgentAPI:
    """The seats of one episode as models of an API, by the seat's name; with one seat, any name will do.

    A program may keep several conversations at once, and requests are answered at once. Each is recorded as a turn that
    continues the conversation whose messages it repeats; one that repeats none (compaction, a sub-agent) begins its
    own. Rewards are the seat's: a sub-agent with a score of its own needs a seat of its own.
    """

    def __init__(self, agents: Mapping[str, Agent], *, ignored_options: Collection[str] = ()):
        """Requests with an option that a seat cannot honour are refused, but for the `ignored_options`."""
        self.agents, self.ignored_options = agents, frozenset(ignored_options)
        self.episode_over = asyncio.Event()
        """Set when a limit or a failure has ended the episode; from then on every request is refused."""
        self._has_instructions: dict[str, bool] = {}
        self._turns: dict[str, int] = {}
        """Index of the turn by the id of its answer."""
        self._requests = count(1)
        self._waiting = 0

    async def chat(self, body: Mapping[str, Any], on_piece: OnPiece | None = None) -> dict[str, Any]:
        """Take a turn as a chat completion. Raises UsageError for the request, StopEpisode and failures of the seat.

        `on_piece` gets the text as the policy writes it, where it can.
        """
        request = parse_seat_request(body, self.ignored_options)
        agent = self._seat(request.model)
        id = f"{agent.key}/{next(self._requests)}"
        turn = await self._turn(agent, request, id=id, on_piece=on_piece)
        return render_chat_completion(turn, id=id, model=request.model)

    async def respond(self, body: Mapping[str, Any], on_piece: OnPiece | None = None) -> dict[str, Any]:
        """Take a turn as a response. Raises as `chat` does."""
        named, before = previous_response_id(body), list[Message]()
        if named is not None:
            if named not in self._has_instructions:
                raise UsageError(f"there is no response {one_line(named)!r} in this episode")
            trajectory = self.agents[named.split("_", 2)[2]].trajectory
            # without the instructions of that request
            before = trajectory.conversation(self._turns[named])[self._has_instructions[named] :]
        request = parse_responses_request(body, before, ignored=self.ignored_options)
        agent = self._seat(request.model)
        id = f"resp_{next(self._requests)}_{agent.trajectory.seat}"
        turn = await self._turn(agent, request, id=id, on_piece=on_piece)
        self._has_instructions[id] = request.has_instructions
        return render_response(turn, id=id, model=request.model, request=body)

    async def answer(self, method: str, path: str, body: bytes, *, prefer: str = "") -> HttpResponse | ResponseStream:
        """Answer an HTTP request below `/v1`; never raises for a bad request. `prefer` is ignored."""
        if method == "GET" and path == "/models":
            models = [{"id": seat, "object": "model", "created": 0, "owned_by": "wanderlust"} for seat in self.agents]
            return HttpResponse(200, msgspec.json.encode({"object": "list", "data": models}))
        if method != "POST" or path not in ("/chat/completions", "/responses"):
            return error_response(404, f"there is no {method} {one_line(path)} here", code="not_found")
        if self._waiting >= MAX_WAITING_SEAT_REQUESTS:
            return error_response(
                429,
                f"more than {MAX_WAITING_SEAT_REQUESTS} requests of one episode at once",
                code="busy",
                retryable=True,
            )
        try:
            return await self._answer(parse_json_body(body), chatting=path == "/chat/completions")
        except WanderlustError as error:
            return failure_response(error)

    async def _answer(self, data: Mapping[str, Any], *, chatting: bool) -> HttpResponse | ResponseStream:
        take = partial(self._counted, self.chat if chatting else self.respond, data)
        if data.get("stream"):
            return await TurnStream(take, ChatEvents(data) if chatting else ResponseEvents(data)).begin()
        return HttpResponse(200, msgspec.json.encode(await take(None)))

    async def _counted(
        self, take: Callable[..., Awaitable[dict[str, Any]]], data: Mapping[str, Any], on_piece: OnPiece | None
    ) -> dict[str, Any]:
        self._waiting += 1
        try:
            return await take(data, on_piece)
        finally:
            self._waiting -= 1

    async def _turn(self, agent: Agent, request: SeatRequest, *, id: str, on_piece: OnPiece | None) -> Turn:
        """Take a turn, whose answer has this id."""
        if self.episode_over.is_set():
            await asyncio.sleep(0)  # a program that repeats the request for ever must not block the event loop
            reasons = (str(a.interruption) for a in self.agents.values() if a.interruption is not None)
            raise StopEpisode(next(reasons, "ended"))
        on_text = None if on_piece is None else partial(on_piece, id)
        try:
            await agent.act_with_context(
                request.messages, request.tools, response_format=request.response_format, on_text=on_text
            )
        except WanderlustError:
            self.episode_over.set()
            raise
        self._turns[id] = len(agent.trajectory.turns) - 1  # nothing was awaited since the turn was recorded
        return agent.trajectory.turns[-1]

    def _seat(self, model: str) -> Agent:
        if model in self.agents:
            return self.agents[model]
        if len(self.agents) > 1:
            raise UsageError(f"there is no model {one_line(model)!r}; there are {', '.join(self.agents)}")
        return next(iter(self.agents.values()))


def parse_json_body(body: bytes) -> dict[str, Any]:
    """Parse a request's body. Raises UsageError where it is no JSON object."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UsageError(f"the request's body is no JSON object: {one_line(str(error))}") from error
