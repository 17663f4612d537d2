"""A served model for tests: a tiny one, and one that says what it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import openai

import templates
from templates import tokenizer_with
from wanderlust.policies.models import Models, Served
from wanderlust.policies.render import Renderer
from wanderlust.policies.sampling import Heard, Sampled, Sampling
from wanderlust.policies.server import Server
from wanderlust.studio.serving_models import served
from wanderlust.train.fresh import Shape, fresh_model

TOKENIZER = tokenizer_with(templates.HERMES)
SHAPE = Shape(width=32, layers=2, inner=48, positions=1024)
MODEL = fresh_model(TOKENIZER, SHAPE, seed=3)
ASK = [{"role": "user", "content": "hello"}]


def models(**more) -> Models:
    return Models(served("tiny", MODEL, TOKENIZER), Sampling(max_tokens=12), **more)


class Says:
    """A sampler that says given texts, one id at a time."""

    def __init__(self, *texts: str, tokenizer=TOKENIZER):
        self.texts, self.tokenizer, self.prompts, self.released = list(texts), tokenizer, [], []

    async def sample(
        self, prompt: Sequence[int], sampling: Sampling, *, key: int, session: str = "", heard: Heard | None = None
    ) -> Sampled:
        self.prompts.append((tuple(prompt), session))
        ids = (*self.tokenizer.encode(self.texts.pop(0), add_special_tokens=False), self.tokenizer.eos_token_id)
        logprobs = tuple(-n / 8 for n in range(len(ids)))
        for end in range(1, len(ids) + 1):
            if heard is not None:
                heard(ids[:end], logprobs[:end])
                await asyncio.sleep(0)
        return Sampled(ids=ids, logprobs=logprobs, finish="stop")

    def release(self, session: str) -> None:
        self.released.append(session)


def saying(*texts: str, template: str = templates.HERMES, **more) -> tuple[Models, Says]:
    tokenizer = tokenizer_with(template)
    says = Says(*texts, tokenizer=tokenizer)
    model = Served(name="tiny", sampler=says, renderer=Renderer(tokenizer), positions=4096, vocabulary=len(tokenizer))
    return Models(model, **more), says


def asked(front, program):
    """What `await program(client, url, key)` returns while the models are served."""

    async def go():
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(Server())
            key = await stack.enter_async_context(server.serving(front))
            client = openai.AsyncOpenAI(base_url=server.url, api_key=key, max_retries=0)
            return await program(await stack.enter_async_context(client), server.url, key)

    return asyncio.run(go())


LOOK = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}
CALL = '<tool_call>\n{"name": "look", "arguments": {"n": 1}}\n</tool_call>'
