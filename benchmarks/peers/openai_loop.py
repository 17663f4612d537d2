"""The loop that one writes with the `openai` package alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from benchmarks.peers.rounds import ANSWER, PATIENCE, SYSTEM, Side, again, question, serve


@asynccontextmanager
async def opened(url: str, turns: int, concurrency: int) -> AsyncIterator[Side]:
    """One client whose pool of connections is not bounded; a semaphore is what bounds them."""
    pool = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    http = DefaultAsyncHttpxClient(limits=pool, timeout=PATIENCE)
    async with AsyncOpenAI(base_url=url, api_key="none", http_client=http) as client:
        slots = asyncio.Semaphore(concurrency)

        async def talk(number: int) -> bool:
            said, conversation = "", [{"role": "system", "content": SYSTEM}]
            async with slots:
                for turn in range(turns):
                    heard = again(turn) if turn else question(number)
                    conversation.append({"role": "user", "content": heard})
                    answer = await client.chat.completions.create(model="mock", messages=conversation)
                    said = answer.choices[0].message.content or ""
                    conversation.append({"role": "assistant", "content": said})
            return ANSWER in said

        async def play(count: int) -> int:
            return sum(await asyncio.gather(*map(talk, range(count))))

        yield play


if __name__ == "__main__":
    serve(opened)
