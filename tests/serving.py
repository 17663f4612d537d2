"""A served model for tests: a tiny one, and one that says what it is told to."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import openai

import templates
from templates import Says, tokenizer_with
from wanderlust.policies.base import SamplingOptions
from wanderlust.policies.chat_template import Renderer
from wanderlust.serving.http import AgentServer
from wanderlust.serving.local_models import make_served_model
from wanderlust.serving.model_api import ModelAPI, ServedModel
from wanderlust.training.tiny_model import ModelShape, fresh_model

TOKENIZER = tokenizer_with(templates.HERMES)
SHAPE = ModelShape(width=32, layers=2, inner=48, positions=1024)
MODEL = fresh_model(TOKENIZER, SHAPE, seed=3)
ASK = [{"role": "user", "content": "hello"}]


def models(**more) -> ModelAPI:
    return ModelAPI(make_served_model("tiny", MODEL, TOKENIZER), SamplingOptions(max_tokens=12), **more)


def saying(*texts: str, template: str = templates.HERMES, **more) -> tuple[ModelAPI, Says]:
    tokenizer = tokenizer_with(template)
    says = Says(*texts, tokenizer=tokenizer)
    model = ServedModel(
        name="tiny", sampler=says, renderer=Renderer(tokenizer), max_positions=4096, vocabulary_size=len(tokenizer)
    )
    return ModelAPI(model, **more), says


def asked(front, program):
    """What `await program(client, url, key)` returns while the models are served."""

    async def go():
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(AgentServer())
            key = await stack.enter_async_context(server.serving(front))
            client = openai.AsyncOpenAI(base_url=server.url, api_key=key, max_retries=0)
            return await program(await stack.enter_async_context(client), server.url, key)

    return asyncio.run(go())


LOOK = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}
CALL = '<tool_call>\n{"name": "look", "arguments": {"n": 1}}\n</tool_call>'
