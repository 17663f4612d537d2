"""OpenAI's API in front of the seats of one episode: whatever a program asks is a recorded, bounded turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from wanderlust.environment import Agent
from wanderlust.errors import Stop, UsageError, WanderlustError, one_line
from wanderlust.serving.chat_api import Request, chat_answer, chat_chunks, chat_request
from wanderlust.serving.responses_api import previous_response, response_events, responses_answer, responses_request
from wanderlust.types import Message, ToolCall

WAITING = 64
"""Requests of one episode that may be under way at once; they are answered one after the other."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    status: int
    body: bytes
    kind: str = "application/json"
    again: bool = False
    """Whether the same request may succeed a little later."""

    @property
    def headers(self) -> dict[str, str]:
        """What OpenAI's SDKs and others need to know before they try again."""
        return {"Content-Type": self.kind, "x-should-retry": "true" if self.again else "false"}


Send = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Flow:
    """An HTTP answer that is written while it comes to be, as server-sent events."""

    write: Callable[[Send], Awaitable[None]]


def refusal(status: int, message: str, *, code: str, again: bool = False) -> Reply:
    """An error in the shape that SDKs read."""
    told = {"message": message, "type": code, "param": None, "code": code}
    return Reply(status, msgspec.json.encode({"error": told}), again=again)


class Front:
    """The seats of one episode as models of an API; the model's name is the seat's, and free when there is one.

    A program may keep its own conversation: what it appends is a turn's observation, and when it rewrites the past
    (compaction) the turn says so. Conversations that run side by side in one seat are taken turn by turn, each such
    turn with its whole context; for trajectories of their own, sub-agents need seats of their own.
    """

    def __init__(self, agents: Mapping[str, Agent]):
        self.agents = agents
        self.over = asyncio.Event()
        """Set when a limit or a failure has ended the episode; from then on every request is refused."""
        self._instructed: dict[str, bool] = {}
        self._waiting = 0

    async def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """One turn asked for as a chat completion. Raises UsageError for the request, Stop and Failure for the seat."""
        request = chat_request(body)
        agent = self._seat(request.model)
        turn = await self._turn(agent, request)
        return chat_answer(agent.trajectory.turns[turn], id=f"{agent.key}/{turn + 1}", model=request.model)

    async def respond(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """One turn asked for as a response. Raises as `chat` does."""
        named = previous_response(body)
        request = responses_request(body, () if named is None else self._before(named))
        agent = self._seat(request.model)
        turn = await self._turn(agent, request)
        id = f"resp_{turn}_{agent.trajectory.seat}"
        self._instructed[id] = request.instructed
        return responses_answer(agent.trajectory.turns[turn], id=id, model=request.model, asked=body)

    async def answer(self, method: str, path: str, body: bytes, *, prefer: str = "") -> Reply:
        """Answer an HTTP request below `/v1`; never raises for what the request says. Nothing is to be preferred."""
        if method == "GET" and path == "/models":
            models = [{"id": seat, "object": "model", "created": 0, "owned_by": "wanderlust"} for seat in self.agents]
            return Reply(200, msgspec.json.encode({"object": "list", "data": models}))
        if method != "POST" or path not in ("/chat/completions", "/responses"):
            return refusal(404, f"there is no {method} {one_line(path)} here", code="not_found")
        if self._waiting >= WAITING:
            return refusal(429, f"more than {WAITING} requests of one episode at once", code="busy", again=True)
        self._waiting += 1
        try:
            return await self._answer(path, body)
        finally:
            self._waiting -= 1

    async def _answer(self, path: str, body: bytes) -> Reply:
        chatting = path == "/chat/completions"
        try:
            asked = object_of(body)
            answer = await (self.chat(asked) if chatting else self.respond(asked))
        except UsageError as error:
            return refusal(400, str(error), code="invalid_request_error")
        except Stop as stop:
            return refusal(403, f"the episode is over: {stop}", code="episode_over")
        except WanderlustError as failure:
            return refusal(502, f"{type(failure).__name__}: {failure}", code="policy_failure")
        if not asked.get("stream"):
            return Reply(200, msgspec.json.encode(answer))
        wanted = asked.get("stream_options")
        usage = isinstance(wanted, dict) and bool(wanted.get("include_usage"))
        events = _chat_stream(chat_chunks(answer, usage=usage)) if chatting else _event_stream(response_events(answer))
        return Reply(200, events, "text/event-stream")

    async def _turn(self, agent: Agent, request: Request) -> int:
        """Take a turn; returns its place in the trajectory."""
        if self.over.is_set():
            await asyncio.sleep(0)  # a program that swallows this and asks for ever lets others live, and time run out
            raise Stop(next((str(a.cut) for a in self.agents.values() if a.cut is not None), "ended"))
        try:
            await agent.act_on(remembered(request.messages, agent), request.tools, form=request.form)
        except WanderlustError:
            self.over.set()
            raise
        return len(agent.trajectory.turns) - 1  # nothing was awaited since the turn was recorded

    def _seat(self, model: str) -> Agent:
        if model in self.agents:
            return self.agents[model]
        if len(self.agents) > 1:
            raise UsageError(f"there is no model {one_line(model)!r}; there are {', '.join(self.agents)}")
        return next(iter(self.agents.values()))

    def _before(self, response: str) -> list[Message]:
        """The conversation after a response, without the instructions that its own request gave."""
        if response not in self._instructed:
            raise UsageError(f"there is no response {one_line(response)!r} in this episode")
        _, number, seat = response.split("_", 2)
        trajectory = self.agents[seat].trajectory
        until = replace(trajectory, turns=trajectory.turns[: int(number) + 1])
        return until.messages[self._instructed[response] :]


def remembered(messages: Sequence[Message], agent: Agent) -> list[Message]:
    """`messages` with those replaced that the seat knows as something the program could not repeat exactly."""
    known = agent.messages
    context = list(messages)
    context[: len(known)] = [_remember(now, before) for now, before in zip(context, known, strict=False)]
    return context


def _remember(now: Message, before: Message) -> Message:
    """`before` when the program repeats it: reasoning never travels, and arguments are often written anew."""
    if now.role != "assistant" or before.role != "assistant" or now.content.strip() != before.content.strip():
        return now
    return before if _calls(now.tool_calls) == _calls(before.tool_calls) else now


def _calls(calls: Iterable[ToolCall]) -> list[tuple[str, str, Any]]:
    return [(call.id, call.name, _value(call.arguments)) for call in calls]


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def object_of(body: bytes) -> dict[str, Any]:
    """A request's body. Raises UsageError where it is no JSON object."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UsageError(f"the request's body is no JSON object: {one_line(str(error))}") from error


def _chat_stream(chunks: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def _event_stream(events: Iterable[Mapping[str, Any]]) -> bytes:
    lines = (b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event)) for event in events)
    return b"".join(lines)
