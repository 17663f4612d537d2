"""Any environment behind OpenEnv's WebSocket protocol (0.10): `reset`, `step`, `state`, `close`, a session a socket.

An action is the model's message: `{"text": ...}`, with `"tool_calls": [{"name": ..., "arguments": {...}}]` if it calls
tools, or OpenEnv's own `{"type": "call_tool", "tool_name": ..., "arguments": {...}}` and `{"type": "list_tools"}`. An
observation holds the new `messages`, their `text`, and the `tools` that may be called now. `reset` takes `index` (of
the task, 0), `seed` (0) and `split`. The last step's reward brings the sum to the rubric's score.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from hmac import compare_digest
from typing import Any, Literal, TypeAlias

import msgspec
from aiohttp import WSMsgType, web

from wanderlust.environment import Environment, Step
from wanderlust.errors import UsageError, WanderlustError, one_line
from wanderlust.openai_types import message_to_template, tool_to_wire
from wanderlust.runner.stepper import DrivenSeat
from wanderlust.serving.http import start_app
from wanderlust.types import Message, ToolCall, assistant

MAX_MESSAGE_BYTES = 2**20
"""Bytes of one message."""
IDLE_SECONDS = 600.0
"""Wall-clock seconds without a message after which a session is closed."""
STEP_TIMEOUT_SECONDS = 600.0
"""Wall-clock seconds for one answer of the environment."""
MAX_CALLS_PER_ACTION = 64
"""Tool calls of one action."""
Event: TypeAlias = MutableMapping[str, Any]
"""Of ASGI."""
_TEXT, _LIST = {"type": "string"}, {"type": "array"}
_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "action": {"text": _TEXT, "tool_calls": {**_LIST, "items": {"type": "object", "required": ["name"]}}},
    "observation": {"messages": _LIST, "text": _TEXT, "tools": _LIST, "metadata": {"type": "object"}},
    "state": {"episode_id": _TEXT, "step_count": {"type": "integer"}, "task": _TEXT, "done": {"type": "boolean"}},
}
SCHEMAS = {name: {"type": "object", "properties": fields} for name, fields in _FIELDS.items()}
"""JSON schemas of what goes over the socket."""


class EnvironmentServer:
    """`async with EnvironmentServer(env, token=...).listening(port=8000) as url: ...`

    Listens on this machine alone unless told otherwise; there is no encryption. A client sends the token as
    `Authorization: Bearer`. Each connection is a session, at most `sessions` at once; a session's episode ends with its
    connection.
    """

    def __init__(self, env: Environment, *, token: str, split: str = "train", sessions: int = 64):
        if len(env.seats) > 1:
            raise UsageError(f"{type(env).__name__} has the seats {', '.join(env.seats)}: only one can be served")
        self.env, self.split, self.sessions, self._token, self._open = env, split, sessions, token, 0

    @asynccontextmanager
    async def listening(self, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Answer while inside; yields the base URL. `port` 0 takes a free one. UsageError when it is taken."""
        app = web.Application()
        app.add_routes([web.get("/ws", self._connected), web.get("/{page:health|metadata|schema}", self._describe)])
        listening = await start_app(app, host, port)
        try:
            yield listening.url
        finally:
            await listening.close()

    async def _describe(self, request: web.Request) -> web.Response:
        return web.json_response(self._pages()[request.match_info["page"]])

    def _pages(self) -> dict[str, Any]:
        description = one_line((type(self.env).__doc__ or "").strip())
        return {
            "health": {"status": "healthy"},
            "metadata": {"name": type(self.env).__name__, "description": description},
            "schema": SCHEMAS,
        }

    async def _connected(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if not compare_digest(token.encode(), self._token.encode()):
            return web.Response(status=401, text="the token is missing or wrong: send it as Authorization: Bearer")
        socket = web.WebSocketResponse(max_msg_size=MAX_MESSAGE_BYTES, heartbeat=30.0, receive_timeout=IDLE_SECONDS)
        await socket.prepare(request)

        async def receive() -> str | None:
            incoming = await socket.receive()
            return incoming.data if incoming.type is WSMsgType.TEXT else None

        end = await self._answer_messages(receive, socket.send_str)
        await socket.close(message=b"idle" if end == "idle" else b"")
        return socket

    async def _answer_messages(
        self, receive: Callable[[], Awaitable[str | None]], send: Callable[[str], Awaitable[None]]
    ) -> Literal["", "full", "idle"]:
        """One session, until `receive` gives no text or the client closes it; returns what else ended it."""
        if self._open >= self.sessions:
            await send(_json(_error("CAPACITY_REACHED", f"all {self.sessions} sessions are taken")))
            return "full"
        self._open += 1
        session = _Session(DrivenSeat(self.env, split=self.split))
        try:
            while (text := await receive()) is not None and (reply := await session.answer(text)) is not None:
                await send(_json(reply))
        except TimeoutError:
            return "idle"
        finally:
            self._open -= 1
            await session.driven.close()
        return ""

    async def __call__(
        self, scope: Event, receive: Callable[[], Awaitable[Event]], send: Callable[[Event], Awaitable[None]]
    ) -> None:
        """The same as an ASGI application: `uvicorn module:server`, as images of OpenEnv run it.

        An empty token lets everybody in; messages of more than MAX_MESSAGE_BYTES end their session.
        """
        if scope["type"] == "lifespan":
            while (event := await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": f"{event['type']}.complete"})
        elif scope["type"] == "http":
            page = str(scope["path"]).removeprefix("/")
            body = msgspec.json.encode(self._pages().get(page, {"error": f"there is no page {page!r}"}))
            head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            status = 200 if page in self._pages() else 404
            await send({"type": "http.response.start", "status": status, "headers": head})
            await send({"type": "http.response.body", "body": body})
        else:
            await self._serve_session(scope, receive, send)

    async def _serve_session(
        self, scope: Event, receive: Callable[[], Awaitable[Event]], send: Callable[[Event], Awaitable[None]]
    ) -> None:
        await receive()
        sent = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ").strip()
        if scope["path"] != "/ws" or not compare_digest(sent.encode(), self._token.encode()):
            await send({"type": "websocket.close", "code": 4401})
            return
        await send({"type": "websocket.accept"})

        async def receive_text() -> str | None:
            async with asyncio.timeout(IDLE_SECONDS):
                event = await receive()
            text = event.get("text")
            fits = event["type"] == "websocket.receive" and text is not None and len(text) <= MAX_MESSAGE_BYTES
            return text if fits else None

        end = await self._answer_messages(receive_text, lambda text: send({"type": "websocket.send", "text": text}))
        if end:
            await send({"type": "websocket.close", "code": 1013 if end == "full" else 1001})


class _Session:
    """The episodes of one connection."""

    def __init__(self, driven: DrivenSeat):
        self.driven, self.episode = driven, ""

    async def answer(self, text: str) -> dict[str, Any] | None:
        """The reply to a message; None for `close`. Never raises for the content of the message."""
        try:
            request = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            return _error("INVALID_JSON", one_line(str(error)))
        kind, data = request.get("type"), request.get("data", {})
        if kind == "close":
            return None
        try:
            async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
                return await self._do(kind, data)
        except UsageError as error:
            return _error("VALIDATION_ERROR", str(error))
        except WanderlustError as error:
            return _error("EXECUTION_ERROR", f"{type(error).__name__}: {error}")
        except TimeoutError:
            await self.driven.close()
            return _error("EXECUTION_ERROR", f"the environment took more than {STEP_TIMEOUT_SECONDS:.0f} s: reset it")

    async def _do(self, kind: object, data: object) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise UsageError("data is no object")
        if kind == "reset":
            index, seed, split = data.get("index", 0), data.get("seed", 0), data.get("split", "")
            self.episode = str(data.get("episode_id") or "")[:255]
            if not (_whole(index) and _whole(seed) and isinstance(split, str)):
                raise UsageError("reset takes whole numbers as index and seed, and the name of a split")
            return self._observation(await self.driven.reset(index, seed, split=split))
        if kind == "step" and data.get("type") == "list_tools":
            return self._observation(Step())
        if kind == "step":
            return self._observation(await self.driven.step(_action(data, self.driven.turns)))
        if kind == "state":
            task = self.driven.task
            state = {
                "episode_id": self.episode or (task.id if task is not None else None),
                "step_count": self.driven.turns,
                "task": task.id if task is not None else None,
                "reward": self.driven.reward,
                "done": self.driven.done,
            }
            return {"type": "state", "data": state}
        return _error("UNKNOWN_TYPE", f"unknown message type {one_line(str(kind))!r}: reset, step, state or close")

    def _observation(self, step: Step) -> dict[str, Any]:
        observation = {
            "messages": [message_to_template(m) for m in step.observation],
            "text": "\n".join(m.content for m in step.observation),
            "tools": [tool_to_wire(tool) for tool in self.driven.tools],
            "metadata": step.info,
        }
        return {"type": "observation", "data": {"observation": observation, "reward": step.reward, "done": step.done}}


def _action(data: Mapping[str, Any], turn: int) -> Message:
    """The model's message in an action. Raises UsageError when the action has another shape."""
    text, calls = data.get("text", data.get("content", "")), data.get("tool_calls", [])
    if data.get("type") == "call_tool":
        calls = [{"name": data.get("tool_name"), "arguments": data.get("arguments", {})}]
    elif not {"text", "content", "tool_calls"} & set(data):
        raise UsageError('an action is {"text": ...}, {"tool_calls": [...]} or {"type": "call_tool", ...}')
    if not isinstance(text, str) or not isinstance(calls, list) or len(calls) > MAX_CALLS_PER_ACTION:
        raise UsageError(f"text is a string and tool_calls a list of at most {MAX_CALLS_PER_ACTION}")
    made = []
    for n, call in enumerate(calls):
        name = call.get("name") if isinstance(call, dict) else None
        if not isinstance(name, str):
            raise UsageError('a tool call is {"name": ..., "arguments": {...}}')
        arguments = call.get("arguments", {})
        raw = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        made.append(ToolCall(id=f"call-{turn}-{n}", name=name, arguments=raw))
    return assistant(text, *made)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _error(code: str, message: str) -> dict[str, Any]:
    return {"type": "error", "data": {"message": message, "code": code}}


def _json(reply: Mapping[str, Any]) -> str:
    return msgspec.json.encode(reply, enc_hook=str).decode()
