"""OpenAI's API over the seats of one episode: every request of a program is a recorded, bounded turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from wanderlust.environment import Agent
from wanderlust.errors import StopEpisode, UsageError, WanderlustError, one_line
from wanderlust.openai_types import decode_arguments
from wanderlust.serving.chat_api import SeatRequest, parse_seat_request, render_chat_completion
from wanderlust.serving.http_response import HttpResponse, ResponseStream, error_response
from wanderlust.serving.responses_api import (
    parse_responses_request,
    previous_response_id,
    render_response,
)
from wanderlust.serving.seat_stream import ChatEvents, OnPiece, ResponseEvents, TurnStream, failure_response
from wanderlust.types import Message, ToolCall

MAX_WAITING_SEAT_REQUESTS = 64
"""Concurrent requests of one episode; they are answered one after the other."""


class AgentAPI:
    """The seats of one episode as models of an API, by the seat's name; with one seat, any name will do.

    A program may keep its own conversation: messages that it appends are a turn's observation, and a turn whose
    request rewrites the past (compaction) resets the context. Parallel conversations in one seat are recorded turn by
    turn, each such turn with its whole context; for trajectories of their own, sub-agents need seats of their own.
    """

    def __init__(self, agents: Mapping[str, Agent], *, ignored_options: Collection[str] = ()):
        """Requests with an option that a seat cannot honour are refused, but for the `ignored_options`."""
        self.agents, self.ignored_options = agents, frozenset(ignored_options)
        self.episode_over = asyncio.Event()
        """Set when a limit or a failure has ended the episode; from then on every request is refused."""
        self._has_instructions: dict[str, bool] = {}
        self._waiting = 0

    async def chat(self, body: Mapping[str, Any], on_piece: OnPiece | None = None) -> dict[str, Any]:
        """Take a turn as a chat completion. Raises UsageError for the request, StopEpisode and failures of the seat.

        `on_piece` gets the text as the policy writes it, where it can.
        """
        request = parse_seat_request(body, self.ignored_options)
        agent = self._seat(request.model)

        def id_of(turn: int) -> str:
            return f"{agent.key}/{turn + 1}"

        turn = await self._turn(agent, request, id_of=id_of, on_piece=on_piece)
        return render_chat_completion(agent.trajectory.turns[turn], id=id_of(turn), model=request.model)

    async def respond(self, body: Mapping[str, Any], on_piece: OnPiece | None = None) -> dict[str, Any]:
        """Take a turn as a response. Raises as `chat` does."""
        named, before = previous_response_id(body), list[Message]()
        if named is not None:
            if named not in self._has_instructions:
                raise UsageError(f"there is no response {one_line(named)!r} in this episode")
            _, number, seat = named.split("_", 2)
            trajectory = self.agents[seat].trajectory
            until = replace(trajectory, turns=trajectory.turns[: int(number) + 1])
            before = until.messages[self._has_instructions[named] :]  # without the instructions of that request
        request = parse_responses_request(body, before, ignored=self.ignored_options)
        agent = self._seat(request.model)

        def id_of(turn: int) -> str:
            return f"resp_{turn}_{agent.trajectory.seat}"

        turn = await self._turn(agent, request, id_of=id_of, on_piece=on_piece)
        self._has_instructions[id_of(turn)] = request.has_instructions
        return render_response(agent.trajectory.turns[turn], id=id_of(turn), model=request.model, request=body)

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

    async def _turn(
        self, agent: Agent, request: SeatRequest, *, id_of: Callable[[int], str], on_piece: OnPiece | None
    ) -> int:
        """Take a turn; returns its index in the trajectory, of which `id_of` makes the answer's id."""
        if self.episode_over.is_set():
            await asyncio.sleep(0)  # a program that repeats the request for ever must not block the event loop
            reasons = (str(a.interruption) for a in self.agents.values() if a.interruption is not None)
            raise StopEpisode(next(reasons, "ended"))
        on_text = None if on_piece is None else lambda text: on_piece(id_of(len(agent.trajectory.turns)), text)
        try:
            await agent.act_with_context(
                restore_recorded_messages(request.messages, agent),
                request.tools,
                response_format=request.response_format,
                on_text=on_text,
            )
        except WanderlustError:
            self.episode_over.set()
            raise
        return len(agent.trajectory.turns) - 1  # nothing was awaited since the turn was recorded

    def _seat(self, model: str) -> Agent:
        if model in self.agents:
            return self.agents[model]
        if len(self.agents) > 1:
            raise UsageError(f"there is no model {one_line(model)!r}; there are {', '.join(self.agents)}")
        return next(iter(self.agents.values()))


def restore_recorded_messages(messages: Sequence[Message], agent: Agent) -> list[Message]:
    """Replace answers that the program repeats inexactly by the seat's recorded ones.

    Reasoning is not part of the API, and programs often write arguments anew.
    """
    context = list(messages)
    for index, (now, before) in enumerate(zip(messages, agent.messages, strict=False)):
        same_text = now.role == before.role == "assistant" and now.content.strip() == before.content.strip()
        if same_text and _calls(now.tool_calls) == _calls(before.tool_calls):
            context[index] = before
    return context


def _calls(calls: Iterable[ToolCall]) -> list[tuple[str, str, Any]]:
    return [(call.id, call.name, decode_arguments(call.arguments)) for call in calls]


def parse_json_body(body: bytes) -> dict[str, Any]:
    """Parse a request's body. Raises UsageError where it is no JSON object."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UsageError(f"the request's body is no JSON object: {one_line(str(error))}") from error
