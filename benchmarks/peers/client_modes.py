"""What the modes of Python clients have in common: how they are registered, the question and the tool."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

Mode = Callable[[str, str], str]
MODES: dict[str, Mode] = {}
ASK = "How is the weather in Rome and Oslo?"
SYSTEM = "You are helpful."
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL = {"type": "function", "function": {"name": "weather", "description": "Weather.", "parameters": SCHEMA}}
RESPONSE_TOOL = {"type": "function", "name": "weather", "description": "Weather.", "parameters": SCHEMA}
CLAUDE_TOOL = {"name": "weather", "description": "Weather.", "input_schema": SCHEMA}


def weather(city: str) -> str:
    """Weather of a city.

    Args:
        city: Its name.
    """
    return f"{city} sunny"


def mode(name: str) -> Callable[[Any], Any]:
    """Register a function of URL and key, which may be asynchronous, under a name."""

    def register(play: Any) -> Any:
        def run(url: str, key: str) -> str:
            out = play(url, key)
            return asyncio.run(out) if asyncio.iscoroutine(out) else out

        MODES[name] = run
        return play

    return register


def root(url: str) -> str:
    return url.removesuffix("/v1")


def answer_model() -> Any:
    import pydantic

    class Answer(pydantic.BaseModel):
        places: list[str]
        weather: str

    return Answer


def chat_results(calls: Any) -> list[dict[str, Any]]:
    return [
        {"role": "tool", "tool_call_id": c.id, "content": weather(**json.loads(c.function.arguments))} for c in calls
    ]


def chat_loop(create: Callable[..., Any], **options: Any) -> str:
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ASK}]
    while True:
        said = create(model="m", messages=messages, tools=[CHAT_TOOL], **options).choices[0].message
        messages.append(said)
        if not said.tool_calls:
            return said.content
        messages += chat_results(said.tool_calls)
