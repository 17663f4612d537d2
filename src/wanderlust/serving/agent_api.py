"""The APIs of OpenAI, Anthropic and Google over the seats of one episode: each request is a recorded, bounded turn."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from wanderlust.agent import Agent
from wanderlust.errors import PolicyFailure, StopEpisode, UsageError, WanderlustError, boundary, one_line
from wanderlust.serving.anthropic_api import MessagesDialect
from wanderlust.serving.chat_api import ChatDialect
from wanderlust.serving.dialect import Dialect, JsonObject, OnPiece, SeatRequest, Style, render_model, render_models
from wanderlust.serving.gemini_api import GenerateDialect
from wanderlust.serving.http import HttpResponse, ResponseStream, error_response
from wanderlust.serving.responses_api import ResponsesDialect, StoredResponse
from wanderlust.serving.seat_stream import TurnStream, failure_response
from wanderlust.types import OnText, Turn

MAX_WAITING_SEAT_REQUESTS = 64
"""Concurrent requests of one episode."""
_GENERATE = re.compile(r"/models/([^:]+):(generateContent|streamGenerateContent|countTokens)")


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
        self._chat, self._responses = ChatDialect(self.ignored_options), ResponsesDialect(self.ignored_options)
        self._messages, self._generate = MessagesDialect(self.ignored_options), GenerateDialect(self.ignored_options)
        self._waiting = self._requests = 0

    async def chat(self, body: Mapping[str, Any]) -> JsonObject:
        """Take a turn as a chat completion. Raises UsageError for the request, StopEpisode and failures of the seat."""
        return await self._whole(self._chat, body)

    async def respond(self, body: Mapping[str, Any]) -> JsonObject:
        """Take a turn as a response. Raises as `chat` does."""
        return await self._whole(self._responses, body)

    async def chat_events(self, body: Mapping[str, Any]) -> list[JsonObject]:
        """Take a turn as a chat completion, and render the chunks of a stream."""
        return await self._all_events(self._chat, body)

    async def respond_events(self, body: Mapping[str, Any]) -> list[JsonObject]:
        """Take a turn as a response, and render the events of a stream."""
        return await self._all_events(self._responses, body)

    async def answer(
        self, method: str, path: str, body: bytes, *, prefer: str = "", style: Style = "openai"
    ) -> HttpResponse | ResponseStream:
        """Answer an HTTP request to a path below the API's version; never raises for a bad request.

        The path may have a query. `prefer` is ignored. `style` is the form of lists and of errors in paths that several
        APIs have.
        """
        try:
            if method == "POST":
                return await self._post(path, body, style)
            path = path.partition("?")[0]
            if (found := self._stored_or_listed(method, path, style)) is not None:
                return HttpResponse(200, msgspec.json.encode(found))
        except WanderlustError as error:
            return failure_response(error, style)
        return error_response(404, f"there is no {method} {one_line(path)} here", code="not_found", style=style)

    async def _post(self, target: str, body: bytes, style: Style) -> HttpResponse | ResponseStream:
        path, _, query = target.partition("?")
        dialects: Mapping[str, tuple[Dialect, Style]] = {
            "/chat/completions": (self._chat, "openai"),
            "/responses": (self._responses, "openai"),
            "/messages": (self._messages, "anthropic"),
            "/messages/count_tokens": (self._messages, "anthropic"),
        }
        generate, fields = _GENERATE.fullmatch(path), {}
        dialect: Dialect
        if generate is not None:
            dialect, style = self._generate, "google"
            fields = {"model": unquote(generate[1]), "stream": generate[2] == "streamGenerateContent"}
        elif path in dialects:
            dialect, style = dialects[path]
        elif path == "/completions":
            raise UsageError("a recorded seat holds conversations: use /chat/completions, not /completions")
        else:
            return error_response(404, f"there is no POST {one_line(path)} here", code="not_found", style=style)
        if self._waiting >= MAX_WAITING_SEAT_REQUESTS:
            why = f"more than {MAX_WAITING_SEAT_REQUESTS} requests of one episode at once"
            return error_response(429, why, code="busy", retryable=True, style=style)
        try:
            data = parse_json_body(body) | fields
            if path.endswith(("/count_tokens", ":countTokens")):
                return HttpResponse(200, msgspec.json.encode(self._count(dialect, data)))
            if not data.get("stream"):
                return HttpResponse(200, msgspec.json.encode(await self._whole(dialect, data)))
            id, request, agent = self._read(dialect, data)
            if generate is not None and parse_qs(query).get("alt") != ["sse"]:
                raise UsageError("streamGenerateContent answers as server-sent events: add ?alt=sse to the path")
            take = partial(self._take, agent, request)
            return await TurnStream(take, dialect.events(id, request), style).begin()
        except WanderlustError as error:
            return failure_response(error, style)

    async def _whole(self, dialect: Dialect, body: Mapping[str, Any]) -> JsonObject:
        id, request, agent = self._read(dialect, body)
        return dialect.whole(id, request, await self._take(agent, request, None))

    async def _all_events(self, dialect: Dialect, body: Mapping[str, Any]) -> list[JsonObject]:
        id, request, agent = self._read(dialect, body)
        turns, events = await self._take(agent, request, None), dialect.events(id, request)
        return [*events.opening(), *events.rest(turns)]

    def _read(self, dialect: Dialect, body: Mapping[str, Any]) -> tuple[str, SeatRequest, Agent]:
        """The request, its answer's id and the seat that it is for."""
        request = dialect.parse(body)
        agent = self._seat(request.model)
        self._requests += 1
        seat = f"{self._requests - 1}_{agent.trajectory.seat}"
        id = f"{dialect.id_prefix}{seat}" if dialect.id_prefix else f"{agent.key}/{self._requests}"
        return id, request.fit(agent.policy, self.ignored_options), agent

    def _count(self, dialect: Dialect, body: Mapping[str, Any]) -> JsonObject:
        """Tokens of a request's context. UsageError where the policy cannot tell."""
        inner = body.get("generateContentRequest")
        request = dialect.parse(inner if isinstance(inner, Mapping) else body)
        count = getattr(self._seat(request.model).policy, "count_tokens", None)
        if count is None:
            raise UsageError("the policy of this seat cannot count tokens")
        with boundary(PolicyFailure):
            tokens = count(request.messages, request.tools)
        return {"totalTokens": tokens} if dialect is self._generate else {"input_tokens": tokens}

    def _stored_or_listed(self, method: str, path: str, style: Style) -> JsonObject | None:
        """What a GET or DELETE of a path gives; None where there is nothing."""
        kind, _, rest = path.removeprefix("/").partition("/")
        if kind == "models" and method == "GET":
            return render_model(unquote(rest), [*self.agents], style) if rest else render_models([*self.agents], style)
        if kind != "responses":
            return None
        id, _, part = unquote(rest).partition("/")
        stored = self._responses.get(id)
        if stored is None or part not in ("", "input_items"):
            return None
        if method == "DELETE" and not part:
            self._responses.delete(id)
            return {"id": id, "object": "response", "deleted": True}
        if method != "GET":
            return None
        return _input_items(stored) if part else stored.answer

    async def _take(self, agent: Agent, request: SeatRequest, on_piece: OnPiece | None) -> list[Turn]:
        """Take the turns of a request, one for each answer that it wants, all at once."""
        self._waiting += 1
        said = [None if on_piece is None else partial(on_piece, number) for number in range(request.answers)]
        try:
            turns = (self._turn(agent, request, on_text=on_text) for on_text in said)
            ended = await asyncio.gather(*turns, return_exceptions=True)
            if failures := [one for one in ended if isinstance(one, BaseException)]:
                raise failures[0]
            return [one for one in ended if isinstance(one, Turn)]
        finally:
            self._waiting -= 1

    async def _turn(self, agent: Agent, request: SeatRequest, *, on_text: OnText | None) -> Turn:
        if self.episode_over.is_set():
            await asyncio.sleep(0)  # a program that repeats the request for ever must not block the event loop
            reasons = (str(a.interruption) for a in self.agents.values() if a.interruption is not None)
            raise StopEpisode(next(reasons, "ended"))
        try:
            await agent.act_with_context(
                request.messages,
                request.tools,
                options=request.options if request.options.changed else None,
                on_text=on_text,
            )
        except WanderlustError:
            self.episode_over.set()
            raise
        return agent.trajectory.turns[-1]  # nothing was awaited since the turn was recorded

    def _seat(self, model: str) -> Agent:
        if model in self.agents:
            return self.agents[model]
        if len(self.agents) > 1:
            raise UsageError(f"there is no model {one_line(model)!r}; there are {', '.join(self.agents)}")
        return next(iter(self.agents.values()))


def _input_items(stored: StoredResponse) -> JsonObject:
    items = stored.input_items[::-1]  # the latest first, as this route orders them by default
    ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]} if items else {"first_id": None, "last_id": None}
    return {"object": "list", "data": items, "has_more": False, **ends}


def parse_json_body(body: bytes) -> dict[str, Any]:
    """Parse a request's body. Raises UsageError where it is no JSON object."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UsageError(f"the request's body is no JSON object: {one_line(str(error))}") from error
