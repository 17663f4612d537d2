"""Foreign clients as agents: how many of their modes play an episode, and how soon a slow answer's first byte comes.

The modes are those of `benchmarks/clients.py`: unmodified clients of OpenAI, Anthropic and Google and frameworks over
them, in Python and node. `make peers` installs them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Any

import aiohttp

from benchmarks.bar import Bar
from benchmarks.clients import client_modes, play_all
from benchmarks.peer import NotMeasured
from wanderlust.environment import Agent
from wanderlust.serving.agent_api import AgentAPI
from wanderlust.serving.http import AgentServer
from wanderlust.types import Completion, Message, Tool, assistant

SLOW_SECONDS = 3.0
ASK = [{"role": "user", "content": "x"}]
STREAMS: Mapping[str, Mapping[str, Any]] = {
    "/chat/completions": {"model": "m", "messages": ASK, "stream": True},
    "/responses": {"model": "m", "input": "x", "stream": True},
    "/messages": {"model": "m", "messages": ASK, "max_tokens": 9, "stream": True},
    "/models/m:streamGenerateContent?alt=sse": {"contents": [{"parts": [{"text": "x"}]}]},
}
"""A streamed request of each dialect."""


class Slow:
    """Answers after a while, and says nothing meanwhile."""

    async def complete(self, messages: list[Message], tools: list[Tool] = (), *, key: str = "") -> Completion:  # type: ignore[assignment]
        """As `Policy`."""
        await asyncio.sleep(SLOW_SECONDS)
        return Completion(message=assistant("at last"))


async def first_bytes() -> dict[str, float]:
    """Seconds until the first byte of the body of each dialect's stream."""
    taken = {}
    async with AgentServer() as server, aiohttp.ClientSession() as session:
        for path, body in STREAMS.items():
            async with server.serving(AgentAPI({"agent": Agent(Slow())})) as key:
                began = time.perf_counter()
                headers = {"Authorization": f"Bearer {key}"}
                async with session.post(server.url + path, json=body, headers=headers) as response:
                    await response.content.readany()
                    taken[path] = time.perf_counter() - began
                    await response.read()
    return taken


async def _faults() -> dict[str, str]:
    return {mode.name: fault async for mode, fault in play_all(client_modes())}


def bars() -> Iterator[Bar]:
    """Modes that play, and the slowest dialect's first byte."""
    modes, name = client_modes(), "modes of foreign clients that play"
    try:
        faults = {name: fault for name, fault in asyncio.run(_faults()).items() if fault}
    except NotMeasured as why:
        yield Bar(name=name, figure=None, bar=len(modes), aim=len(modes), better="higher", note=str(why))
    else:
        note = f"all of {len(modes)}" if not faults else f"of {len(modes)}; not: {', '.join(faults)}"
        figure = len(modes) - len(faults)
        yield Bar(name=name, figure=figure, bar=len(modes), aim=len(modes), better="higher", note=note)
    taken = asyncio.run(first_bytes())
    what = f"first byte of a streamed answer that takes {SLOW_SECONDS:g} s"
    yield Bar(name=what, figure=max(taken.values()), bar=0.2, aim=0.15, unit="s", note=f"slowest of {len(taken)} forms")
