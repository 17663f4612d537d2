"""How the APIs of providers say the same things, and a server that says them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from wanderlust.errors import StopEpisode
from wanderlust.policies.anthropic_messages import AnthropicMessages
from wanderlust.policies.endpoint import Endpoint
from wanderlust.policies.gemini_content import GeminiContent
from wanderlust.tools.function import toolset
from wanderlust.types import Task, user

NO = "I cannot help with that."
TIME_IS_UP = "the time is up"
LIVE: list[Any] = []
"""The episode under way."""
CHAT_USAGE = {"prompt_tokens": 10, "completion_tokens": 5}
CLAUDE_USAGE = {"input_tokens": 10, "output_tokens": 5}
GEMINI_USAGE = {"promptTokenCount": 10, "candidatesTokenCount": 5}


def chat(message: Any, finish: str = "stop") -> Any:
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": CHAT_USAGE}


def claude(*content: Any, reason: str = "end_turn", **more: Any) -> Any:
    return {"content": [*content], "stop_reason": reason, "usage": CLAUDE_USAGE, **more}


def gemini(*parts: Any, reason: str = "STOP") -> Any:
    return {"candidates": [{"content": {"parts": [*parts]}, "finishReason": reason}], "usageMetadata": GEMINI_USAGE}


def error(status: int, /, **fields: Any) -> Any:
    return status, {"error": fields}


@dataclass(frozen=True)
class Api:
    """How one API says the same things."""

    policy: Callable[..., Any]
    text: Callable[[str], Any]
    call: Any
    refusals: tuple[Any, ...]
    blocks: tuple[Any, ...]
    too_long: Any


APIS = {
    "chat": Api(
        policy=Endpoint,
        text=lambda text: chat({"content": text}),
        call=chat({"content": "", "tool_calls": [{"id": "c", "function": {"name": "add"}}]}, "tool_calls"),
        refusals=(
            chat({"content": None, "refusal": NO}),
            chat({"content": "", "refusal": NO}, "length"),
            chat({"content": [{"type": "refusal", "refusal": NO}]}),
        ),
        blocks=(
            chat({"content": ""}, "content_filter"),
            chat({"content": "The first step is"}, "content_filter"),
            error(400, message="the prompt was filtered", code="content_filter"),
        ),
        too_long=error(400, message="too long", code="context_length_exceeded"),
    ),
    "anthropic": Api(
        policy=AnthropicMessages,
        text=lambda text: claude({"type": "text", "text": text}),
        call=claude({"type": "tool_use", "id": "c", "name": "add", "input": {}}, reason="tool_use"),
        refusals=(
            claude({"type": "text", "text": NO}, reason="refusal"),
            claude(reason="refusal", stop_details={"type": "refusal", "explanation": NO}),
        ),
        blocks=(),
        too_long=error(400, message="prompt is too long: 9 tokens > 8 maximum", type="invalid_request_error"),
    ),
    "google": Api(
        policy=GeminiContent,
        text=lambda text: gemini({"text": text}),
        call=gemini({"functionCall": {"name": "add", "args": {}}}),
        refusals=(gemini({"text": NO}),),
        blocks=(
            gemini(reason="SAFETY"),
            gemini({"text": "The first step is"}, reason="PROHIBITED_CONTENT"),
            {"promptFeedback": {"blockReason": "SAFETY"}},
        ),
        too_long=error(400, message="The input token count (9) exceeds the maximum number of tokens allowed (8)."),
    ),
}
REFUSALS = [(name, reply) for name, api in APIS.items() for reply in api.refusals]
BLOCKS = [(name, reply) for name, api in APIS.items() for reply in api.blocks]


def served(api: Api, reply: Callable[[str, int], Any], ask: Callable[[Any], Any]) -> tuple[Any, int]:
    """What `ask(policy)` returns, and how often the server was asked; `reply` of the request's text and its number."""
    asked = list[str]()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(await request.text())
        made = reply(asked[-1], len(asked))
        status, body = made if isinstance(made, tuple) else (200, made)
        if body == TIME_IS_UP:
            LIVE[0].play.end(StopEpisode("timeout"))
            await asyncio.Event().wait()
        return web.json_response(body, status=status)

    async def go() -> Any:
        app = web.Application()
        app.router.add_post("/{path:.*}", answer)
        async with (
            TestServer(app, handler_cancellation=True) as server,
            api.policy(str(server.make_url("")), "m") as policy,
        ):
            return await ask(policy)

    return asyncio.run(go()), len(asked)


def says_right(completion: str) -> float:
    """1 for the right answer."""
    return float(completion == "right")


TASKS = [Task(id=f"t{n}", prompt=(user(f"{word} {n}"),)) for n in range(6) for word in [("hard", "easy")[n % 2]]]


@toolset
async def basket(episode: Any) -> Any:
    LIVE[:], made = [episode], 0

    def add() -> str:
        """Add something."""
        nonlocal made
        made += 1
        return "added"

    yield [add]
    episode.state["made"] = made


def filled(state: Any) -> float:
    """One point for each call."""
    return float(state["made"])
