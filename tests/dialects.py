"""A seat asked by hand in each dialect of its API."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import asynccontextmanager

import aiohttp

from wanderlust.environment import Agent
from wanderlust.serving.agent_api import AgentAPI
from wanderlust.serving.http import AgentServer
from wanderlust.types import AnswerOptions, Completion, assistant

PIXEL = "iVBORw0KGgo="
URL = f"data:image/png;base64,{PIXEL}"
PATHS = {
    "openai": "/chat/completions",
    "responses": "/responses",
    "anthropic": "/messages",
    "google": "/models/m:generateContent",
}


def bodies(text="hello", image=None):
    """The same question in each dialect."""
    parts = [{"type": "text", "text": text}]
    blocks, items, google = [*parts], [{"type": "input_text", "text": text}], [{"text": text}]
    if image:
        parts.append({"type": "image_url", "image_url": {"url": URL}})
        blocks.append({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}})
        items.append({"type": "input_image", "image_url": URL})
        google.append({"inlineData": {"mimeType": "image/png", "data": PIXEL}})
    return {
        "openai": {"model": "m", "messages": [{"role": "user", "content": parts}]},
        "responses": {"model": "m", "input": [{"role": "user", "content": items}]},
        "anthropic": {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": blocks}]},
        "google": {"contents": [{"role": "user", "parts": google}]},
    }


class Options:
    """Says which options reached it, and honours them all."""

    accepts_images = True

    def __init__(self):
        self.asked, self.messages = [], []

    def unsupported_option(self, options):
        return ""

    async def complete(self, messages, tools=(), *, key=""):
        return await self.complete_with_options(AnswerOptions(), messages, tools, key=key)

    async def complete_with_options(self, options, messages, tools=(), *, key="", on_text=None):
        self.asked.append(options)
        self.messages.append(list(messages))
        return Completion(message=assistant("fine"))


@asynccontextmanager
async def seat(policy, **options):
    """The agent, and a function that posts to its seat and gives the status and the JSON."""
    agent = Agent(policy, key="k", limits=options.pop("limits", None))
    api = AgentAPI({"agent": agent}, **options)
    async with AgentServer() as server, server.serving(api) as key, aiohttp.ClientSession() as session:

        async def ask(path, body=None, *, method="POST", headers=None):
            data = None if body is None else io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
            url = server.url.removesuffix("/v1") + path
            given = {"Authorization": f"Bearer {key}"} if headers is None else headers
            async with session.request(method, url, data=data, headers=given) as response:
                return response.status, await response.read()

        ask.url, ask.key = server.url, key
        yield agent, ask


def run(policy, program, **options):
    async def go():
        async with seat(policy, **options) as (agent, ask):
            return await program(ask), agent

    return asyncio.run(go())


def told(reply):
    """Status and message of an error, which must be one line in the form of an API."""
    status, body = reply
    data = json.loads(body)
    message = data["error"]["message"]
    assert "\n" not in message
    return status, message
