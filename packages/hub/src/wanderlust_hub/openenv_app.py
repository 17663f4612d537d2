"""Environments of OpenEnv folders (0.10), played without a server: their ASGI application runs in this process.

A session is a WebSocket of the application, without a socket. An answer is one action: text where an action needs
a single text alone, else a JSON object. Not covered: environments that offer MCP tools alone.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from itertools import count
from typing import Any, TypeAlias

from wanderlust.adapters.openenv import Event
from wanderlust.environment import Environment, Episode, Limits
from wanderlust.errors import EnvironmentFailure, UsageError, one_line
from wanderlust.types import Message, Task, system, user

MAX_OBSERVATION_CHARS = 20_000
MAX_SCHEMA_CHARS = 4_000
RULES = "You act in the environment {name}, one action an answer. {form}"
Application: TypeAlias = Callable[
    [Event, Callable[[], Awaitable[Event]], Callable[[Event], Awaitable[None]]], Awaitable[None]
]
VERSION = {"version": "3.0", "spec_version": "2.3"}


class OpenEnvApp(Environment):
    """The environment of an OpenEnv folder.

    Endless tasks, told apart by the seed of their reset. The reward `return` is the sum of the rewards of the steps.
    An answer that is no action moves nothing; the state counts them as `invalid`.
    """

    def __init__(self, folder: str, *, app: str = "server.app:app", name: str = "", turns: int = 50):
        """`app` is `module:name` within the folder; `turns` are answers at most. Raises UsageError where it is not."""
        if folder not in sys.path:
            sys.path.insert(0, folder)
        module, _, attribute = app.partition(":")
        self.app: Application | None = getattr(import_module(module), attribute or "app", None)
        if self.app is None:
            raise UsageError(f"{module} has no application {attribute!r}")
        self.name, self.limits = name or "openenv", Limits(max_turns=turns)

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """Endless, of different seeds in each split."""
        return (Task(id=f"{self.name}-{split}-{n}", info={"seed": 2 * n + (split == "eval")}) for n in count())

    async def run(self, episode: Episode) -> None:
        """One session, until it is done."""
        episode.state["invalid"] = 0
        seed = episode.rng(episode.task.info["seed"]).randrange(2**31)
        async with connected(self.app) as ask:  # type: ignore[arg-type]
            action = await action_schema(self.app)  # type: ignore[arg-type]
            field, form = _form(action)
            head: tuple[Message, ...] = (system(RULES.format(name=self.name, form=form)),)
            seen, news = await ask({"type": "reset", "data": {"seed": seed}}), ""
            while True:
                episode.reward("return", float(seen.get("reward") or 0.0))
                if seen.get("done"):
                    return
                text = json.dumps(seen.get("observation"), ensure_ascii=False)[:MAX_OBSERVATION_CHARS]
                data = None
                while data is None:
                    answer = (await episode.agent.act(*head, user(f"{news}{text}"))).content
                    head, data = (), _action(answer, field)
                    news = "" if data is not None else f"That is no action. {form}\n"
                    episode.state["invalid"] += data is None
                seen = await ask({"type": "step", "data": data})


def _form(schema: Mapping[str, Any]) -> tuple[str, str]:
    """The text field of an action, where nothing else has to be given; and how an answer is to be written."""
    fields = {name: one for name, one in schema.get("properties", {}).items() if name != "metadata"}
    texts = [name for name, one in fields.items() if one.get("type") == "string"]
    if len(texts) == 1 and set(schema.get("required", [])) <= set(texts):
        return texts[0], f"Your whole answer is its {texts[0]}."
    shown = json.dumps({"properties": fields, "required": schema.get("required", [])})[:MAX_SCHEMA_CHARS]
    return "", f"Answer with a JSON object of this schema: {shown}"


def _action(answer: str, field: str) -> dict[str, Any] | None:
    if field:
        return {field: answer}
    try:
        found = json.loads(answer[answer.index("{") : answer.rindex("}") + 1])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


async def action_schema(app: Application) -> Mapping[str, Any]:
    """The JSON schema of an action, as `GET /schema` tells it; empty where it does not."""
    parts: list[bytes] = []

    async def receive() -> Event:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: Event) -> None:
        parts.append(event.get("body", b""))

    await app({**_scope("http", "/schema"), "method": "GET"}, receive, send)
    try:
        schema = json.loads(b"".join(parts)).get("action", {})
    except (ValueError, AttributeError):
        return {}
    return schema if isinstance(schema, dict) else {}


@asynccontextmanager
async def connected(app: Application) -> AsyncIterator[Callable[[Event], Awaitable[Mapping[str, Any]]]]:
    """A session: what is yielded sends a message, and returns the data of the answer. Raises EnvironmentFailure."""
    there, here = asyncio.Queue[Event](), asyncio.Queue[Event]()
    there.put_nowait({"type": "websocket.connect"})
    running = asyncio.ensure_future(app(_scope("websocket", "/ws"), there.get, here.put))
    running.add_done_callback(lambda _: here.put_nowait({"type": "websocket.close"}))

    async def ask(message: Event) -> Mapping[str, Any]:
        there.put_nowait({"type": "websocket.receive", "text": json.dumps(message)})
        if (event := await here.get())["type"] != "websocket.send":
            raise EnvironmentFailure("the application ended its session")
        text = event.get("text")
        if text is None:
            text = bytes(event.get("bytes") or b"").decode("utf-8", "replace")
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            told = None
        data = told.get("data") if isinstance(told, dict) else None
        if not isinstance(data, dict) or told.get("type") == "error":
            raise EnvironmentFailure(f"the application answered with {one_line(text, 200)}")
        return data

    try:
        if (first := await here.get())["type"] != "websocket.accept":
            raise EnvironmentFailure(f"the application refused a session: {one_line(str(first), 120)}")
        yield ask
        there.put_nowait({"type": "websocket.receive", "text": json.dumps({"type": "close"})})
        there.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await asyncio.wait([running], timeout=5)
    finally:
        running.cancel()
        await asyncio.wait([running], timeout=5)


def _scope(kind: str, path: str) -> Event:
    return {
        "type": kind,
        "asgi": VERSION,
        "http_version": "1.1",
        "scheme": "ws" if kind == "websocket" else "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"environment.invalid")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "subprotocols": [],
    }
