"""What servers of reasoning models want: their reasoning sent back, another name of `max_tokens`, further fields."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from wanderlust.policies.endpoint import Endpoint
from wanderlust.runner.engine import rollout
from wanderlust.store.store import RunStore
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Group, Message, Task, user

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
DETAILS = [{"type": "reasoning.encrypted", "data": "gAAA", "id": "r1", "format": "x-v1", "index": 0}]
THINKING = {
    "deepseek": {"content": "", "reasoning_content": "hmm", "tool_calls": [CALL]},
    "vllm": {"content": None, "reasoning": "hmm", "tool_calls": [CALL]},
    "openrouter": {"content": "", "reasoning": "hmm", "reasoning_details": DETAILS, "tool_calls": [CALL]},
    "gemini": {"content": "", "tool_calls": [{**CALL, "extra_content": {"google": {"thought_signature": "c2ln"}}}]},
    "litellm": {
        "content": "",
        "reasoning_content": "hmm",
        "thinking_blocks": [{"type": "thinking", "thinking": "hmm", "signature": "s"}],
        "tool_calls": [CALL],
    },
}


def look() -> str:
    """Look around."""
    return "a door"


ENV = ToolEnvironment([Task(id="t", prompt=(user("Where?"),))], tools=[look])


def reply(message: dict[str, Any], **usage: Any) -> web.Response:
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"message": {"role": "assistant", **message}, "finish_reason": finish}
    return web.json_response({"choices": [choice], "usage": usage})


def played(handle: Any, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The rollout, and the requests of it."""
    bodies: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        return handle(bodies[-1])

    async def go() -> Any:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        async with TestServer(app) as server:
            policy = Endpoint(str(server.make_url("/v1")), "m", **options)
            return await rollout(ENV, next(iter(ENV.tasks())), policy)

    return asyncio.run(go()), bodies


@pytest.mark.parametrize("server", THINKING)
def test_what_a_server_thought_is_sent_back_as_it_was_said(server: str, tmp_path: Path) -> None:
    said = THINKING[server]

    def handle(body: dict[str, Any]) -> web.Response:
        return reply(said if len(body["messages"]) == 1 else {"content": "There is a door."})

    done, bodies = played(handle)
    assert done.status == "done"
    assert bodies[1]["messages"][1] == {"role": "assistant", **said, "content": ""}
    with RunStore.create(tmp_path / "rollouts.db") as store:
        store.sink(stage="eval", step=0, env="e")([Group(task=done.task, rollouts=[done])])
        (again,) = [one for group in store.groups("eval", 0) for one in group.rollouts]
    assert again.trajectory.messages == done.trajectory.messages


def test_a_server_that_refuses_reasoning_gets_none() -> None:
    def handle(body: dict[str, Any]) -> web.Response:
        if len(body["messages"]) == 1:
            return reply(THINKING["deepseek"])
        if "reasoning_content" in body["messages"][1]:
            text = "The reasoning_content field is not allowed in input messages."
            return web.json_response({"error": {"message": text}}, status=400)
        return reply({"content": "A door."})

    done, bodies = played(handle)
    assert (done.status, len(bodies)) == ("done", 3)
    assert done.trajectory.messages[1] == Message(
        "assistant", "", done.trajectory.messages[1].tool_calls, reasoning="hmm"
    )


def test_max_tokens_is_named_as_the_server_asks() -> None:
    def handle(body: dict[str, Any]) -> web.Response:
        if "max_tokens" in body:
            text = (
                "Unsupported parameter: 'max_tokens' is not supported with this model. "
                "Use 'max_completion_tokens' instead."
            )
            error = {"message": text, "type": "invalid_request_error", "param": "max_tokens"}
            return web.json_response({"error": error}, status=400)
        return reply({"tool_calls": [CALL]} if len(body["messages"]) == 1 else {"content": "A door."})

    done, bodies = played(handle, max_tokens=77)
    assert done.status == "done"
    assert [body.get("max_tokens") for body in bodies] == [77, None, None]
    assert [body.get("max_completion_tokens") for body in bodies] == [None, 77, 77]


def test_further_fields_are_sent_and_details_of_the_usage_are_kept() -> None:
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 90,
        "prompt_tokens_details": {"cached_tokens": 900},
        "completion_tokens_details": {"reasoning_tokens": 80},
    }
    done, bodies = played(
        lambda body: reply({"content": "A door."}, **usage), extra_body={"reasoning_effort": "low", "seed": None}
    )
    assert bodies[0]["reasoning_effort"] == "low"
    assert "seed" not in bodies[0]
    assert dict(done.trajectory.turns[0].usage) == {
        "prompt_tokens": 1000,
        "completion_tokens": 90,
        "cached_tokens": 900,
        "reasoning_tokens": 80,
    }
    done, _ = played(lambda body: reply({"content": "A door."}, prompt_tokens=10, prompt_cache_hit_tokens=8))
    assert done.trajectory.turns[0].usage["cached_tokens"] == 8
