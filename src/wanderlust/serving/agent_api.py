"""OpenAI's API over the seats of one episode: every request of a program is a recorded, bounded turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from wanderlust.environment import Agent
from wanderlust.errors import StopEpisode, UsageError, WanderlustError, one_line
from wanderlust.openai_types import decode_arguments
from wanderlust.serving.chat_api import SeatRequest, parse_seat_request, render_chat_chunks, render_chat_completion
from wanderlust.serving.responses_api import (
    parse_responses_request,
    previous_response_id,
    render_response,
    render_response_events,
)
from wanderlust.types import Message, ToolCall

MAX_WAITING_SEAT_REQUESTS = 64
"""Concurrent requests of one episode; they are answered one after the other."""


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
        """Headers of the answer; OpenAI's SDKs read `x-should-retry`."""
        return {"Content-Type": self.content_type, "x-should-retry": "true" if self.retryable else "false"}


Send = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ResponseStream:
    """An HTTP answer that is written while it is sampled, as server-sent events."""

    write: Callable[[Send], Awaitable[None]]


def error_response(status: int, message: str, *, code: str, retryable: bool = False) -> HttpResponse:
    """Render an error in the shape that SDKs parse."""
    error = {"message": message, "type": code, "param": None, "code": code}
    return HttpResponse(status, msgspec.json.encode({"error": error}), retryable=retryable)


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

    async def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Take a turn as a chat completion. Raises UsageError for the request, StopEpisode and failures of the seat."""
        request = parse_seat_request(body, self.ignored_options)
        agent = self._seat(request.model)
        turn = await self._turn(agent, request)
        return render_chat_completion(agent.trajectory.turns[turn], id=f"{agent.key}/{turn + 1}", model=request.model)

    async def respond(self, body: Mapping[str, Any]) -> dict[str, Any]:
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
        turn = await self._turn(agent, request)
        id = f"resp_{turn}_{agent.trajectory.seat}"
        self._has_instructions[id] = request.has_instructions
        return render_response(agent.trajectory.turns[turn], id=id, model=request.model, request=body)

    async def answer(self, method: str, path: str, body: bytes, *, prefer: str = "") -> HttpResponse:
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
        self._waiting += 1
        try:
            return await self._answer(path, body)
        finally:
            self._waiting -= 1

    async def _answer(self, path: str, body: bytes) -> HttpResponse:
        chatting = path == "/chat/completions"
        try:
            data = parse_json_body(body)
            answer = await (self.chat(data) if chatting else self.respond(data))
        except UsageError as error:
            return error_response(400, str(error), code="invalid_request_error")
        except StopEpisode as stop:
            return error_response(403, f"the episode is over: {stop}", code="episode_over")
        except WanderlustError as failure:
            return error_response(502, f"{type(failure).__name__}: {failure}", code="policy_failure")
        if not data.get("stream"):
            return HttpResponse(200, msgspec.json.encode(answer))
        stream = b""
        if chatting:
            wanted = data.get("stream_options")
            usage = isinstance(wanted, dict) and bool(wanted.get("include_usage"))
            for chunk in render_chat_chunks(answer, usage=usage):
                stream += b"data: " + msgspec.json.encode(chunk) + b"\n\n"
            stream += b"data: [DONE]\n\n"
        else:
            for event in render_response_events(answer):
                stream += b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event))
        return HttpResponse(200, stream, "text/event-stream")

    async def _turn(self, agent: Agent, request: SeatRequest) -> int:
        """Take a turn; returns its index in the trajectory."""
        if self.episode_over.is_set():
            await asyncio.sleep(0)  # a program that repeats the request for ever must not block the event loop
            reasons = (str(a.interruption) for a in self.agents.values() if a.interruption is not None)
            raise StopEpisode(next(reasons, "ended"))
        try:
            await agent.act_with_context(
                restore_recorded_messages(request.messages, agent),
                request.tools,
                response_format=request.response_format,
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
