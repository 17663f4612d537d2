"""One seat under a program over HTTP: calls at once, two conversations in turns, the first byte of a slow answer.

The program is the client of OpenAI's SDK, against the real server. Two policies take a fixed time and do no work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from benchmarks.bar import Bar
from wanderlust.agent import Agent
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.serving.agent_api import AgentAPI
from wanderlust.serving.http import AgentServer
from wanderlust.training.batch.samples import to_samples
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.types import Completion, Message, OnText, Policy, Tool, assistant

CALLS, CALL_SECONDS = 8, 0.5
ANSWER_SECONDS, WORDS = 3.0, 30
CONVERSATIONS, TURNS = 2, 3


class Takes:
    """Answers after a fixed time; streamed, a word at a time."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The last message again."""
        await asyncio.sleep(self.seconds)
        return Completion(message=assistant(messages[-1].content))

    async def complete_streaming(
        self, on_text: OnText, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = ""
    ) -> Completion:
        """Words over the whole time, the first one at its beginning."""
        words = [f"word{n} " for n in range(WORDS)]
        for word in words:
            on_text(word)
            await asyncio.sleep(self.seconds / WORDS)
        return Completion(message=assistant("".join(words)))


@asynccontextmanager
async def seat(policy: Policy) -> AsyncIterator[tuple[AsyncOpenAI, Agent]]:
    """A client whose model is a recorded seat."""
    agent = Agent(policy, key="t/0/0/agent")
    async with (
        AgentServer() as server,
        server.serving(AgentAPI({"agent": agent})) as key,
        AsyncOpenAI(base_url=server.url, api_key=key, max_retries=0) as client,
    ):
        yield client, agent


def asking(text: str) -> list[ChatCompletionMessageParam]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


async def at_once() -> float:
    """Seconds for several requests of one seat."""
    async with seat(Takes(CALL_SECONDS)) as (client, agent):
        await client.models.list()  # imports and the connection
        started = time.monotonic()
        calls = (client.chat.completions.create(model="m", messages=asking(f"part {n}")) for n in range(CALLS))
        await asyncio.gather(*calls)
        seconds = time.monotonic() - started
        if len(agent.trajectory.turns) != CALLS:
            raise ValueError(f"{len(agent.trajectory.turns)} turns are recorded")
        return seconds


async def interleaved() -> int:
    """Training sequences of conversations held in turns with a token-level policy."""
    tokenizer = fresh_tokenizer(["one two three", "four five six"] * 20)
    model = fresh_model(tokenizer, ModelShape(positions=512), seed=0)
    async with seat(LocalPolicy.of(model, tokenizer, SamplingOptions(max_tokens=8))) as (client, agent):
        talks = [asking(f"talk {n}") for n in range(CONVERSATIONS)]
        for _ in range(TURNS):
            for talk in talks:
                done = await client.chat.completions.create(model="m", messages=talk)
                talk.append({"role": "assistant", "content": done.choices[0].message.content})
                talk.append({"role": "user", "content": "more"})
        samples = to_samples(agent.trajectory)
        sampled = sum(len(turn.tokens.completion) for turn in agent.trajectory.turns if turn.tokens is not None)
        if sum(sum(sample.mask) for sample in samples) != sampled:
            raise ValueError("not every sampled token is trained on once")
        return len(samples)


async def first_text() -> tuple[float, float]:
    """Seconds until the first text of a streamed answer, and until its end."""
    async with seat(Takes(ANSWER_SECONDS)) as (client, _):
        await client.models.list()
        started, first = time.monotonic(), 0.0
        stream = await client.chat.completions.create(model="m", messages=asking("go"), stream=True)
        async for chunk in stream:
            if not first and chunk.choices and chunk.choices[0].delta.content:
                first = time.monotonic() - started
        return first, time.monotonic() - started


def bars() -> Iterator[Bar]:
    """Calls at once, sequences, first text."""
    what = f"{CALLS} calls of {CALL_SECONDS:g} s at once in one seat"
    yield Bar(
        name=what, figure=asyncio.run(at_once()), bar=0.8, aim=0.6, unit="s", note="one after the other they take 4 s"
    )
    what = f"{CONVERSATIONS} conversations of {TURNS} turns held in turns: training sequences"
    yield Bar(
        name=what,
        figure=asyncio.run(interleaved()),
        bar=CONVERSATIONS,
        aim=CONVERSATIONS,
        unit="",
        note="each token trained once",
    )
    first, whole = asyncio.run(first_text())
    what = f"first text of a streamed answer of {ANSWER_SECONDS:g} s"
    yield Bar(name=what, figure=first, bar=0.2, aim=0.1, unit="s", note=f"its end after {whole:.2f} s")
