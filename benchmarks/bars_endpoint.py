"""What a rollout over HTTP costs besides the model: ours with its store, against a bare aiohttp loop.

The model is a process of its own that answers at once. Both sides hold the same conversations, 1,024 at a time, in
turns: ours, theirs, after one round of each that is not counted. Time is the
processor's, this process's alone: other work on the machine hardly matters, its clock speed and caches do, and that
is what the ratio is for.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median

import aiohttp

from benchmarks.bar import Bar
from wanderlust.environment import Environment, Episode
from wanderlust.evals.evaluation import play_jobs
from wanderlust.policies.endpoint import Endpoint
from wanderlust.runner.engine import RolloutSettings, rollout_jobs
from wanderlust.store.store import RunStore
from wanderlust.types import Group, Task, system, user

CONCURRENCY, ROLLOUTS, PAIRS = 1024, 2048, 3
SYSTEM = "You are a test."
ROOT = Path(__file__).parent.parent
Side = Callable[[int], Awaitable[int]]
"""Plays as many rollouts and returns how many were right."""


class Asked(Environment):
    """The same question again and again."""

    def __init__(self, turns: int):
        self.turns = turns

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act(system(SYSTEM), user(f"Task {episode.task.id}: what is the answer?"))
        for turn in range(1, self.turns):
            said = await episode.agent.act(user(f"Turn {turn}: again, please."))
        episode.reward("right", float("42" in said.content))


@contextmanager
def model(latency: float = 0.0) -> Iterator[str]:
    """The URL of a model in a process of its own that takes `latency` seconds for an answer."""
    command = [sys.executable, "-m", "benchmarks.model_server", str(latency)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        process.communicate()


@asynccontextmanager
async def ours(url: str, turns: int) -> AsyncIterator[Side]:
    """Rollouts through the engine, every one of them stored."""
    with tempfile.TemporaryDirectory() as folder, RunStore.create(Path(folder) / "run.db") as store:
        rounds = iter(range(10**6))
        async with Endpoint(url, "mock", concurrency=CONCURRENCY) as policy:

            async def play(count: int) -> int:
                keep, right = store.sink(stage="eval", step=next(rounds)), 0

                def mark(groups: Sequence[Group]) -> None:
                    nonlocal right
                    right += sum(group.rewards == [1.0] for group in groups)

                env = Asked(turns)
                todo = rollout_jobs(Task(id=str(n)) for n in range(count))
                await play_jobs(
                    RolloutSettings(env=env, policy=policy), todo, observers=[keep, mark], concurrency=CONCURRENCY
                )
                return right

            yield play


@asynccontextmanager
async def bare(url: str, turns: int) -> AsyncIterator[Side]:
    """The loop that one writes without any framework."""
    patience = aiohttp.ClientTimeout(total=None)  # on a busy machine 1,024 connections can take minutes
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=patience) as session:
        slots = asyncio.Semaphore(CONCURRENCY)

        async def talk(number: int) -> int:
            messages = [{"role": "system", "content": SYSTEM}]
            messages.append({"role": "user", "content": f"Task {number}: what is the answer?"})
            text = ""
            async with slots:
                for turn in range(1, turns + 1):
                    body = {"model": "mock", "messages": messages}
                    async with session.post(f"{url}/chat/completions", json=body) as response:
                        text = (await response.json())["choices"][0]["message"]["content"]
                    messages.append({"role": "assistant", "content": text})
                    messages.append({"role": "user", "content": f"Turn {turn}: again, please."})
            return "42" in text

        async def play(count: int) -> int:
            return sum(await asyncio.gather(*(talk(n) for n in range(count))))

        yield play


async def cost(play: Side) -> float:
    """Milliseconds of processor time per rollout; ValueError unless every rollout is right."""
    started = time.process_time()
    right = await play(ROLLOUTS)
    taken = time.process_time() - started
    if right != ROLLOUTS:
        raise ValueError(f"only {right} of {ROLLOUTS} rollouts were right")
    return 1000 * taken / ROLLOUTS


async def pairs(url: str, turns: int) -> list[tuple[float, float]]:
    """Costs of ours and of the bare loop, in turns."""
    async with ours(url, turns) as mine, bare(url, turns) as theirs:
        return [(await cost(mine), await cost(theirs)) for _ in range(1 + PAIRS)][1:]


def bars() -> Iterator[Bar]:
    """Processor time per rollout of one turn and of five, and as a multiple of the bare loop's."""
    with model() as url:
        for turns, bar in ((1, 1.0), (5, 3.5)):
            measured = asyncio.run(pairs(url, turns))
            mine, theirs = (median(side) for side in zip(*measured, strict=True))
            ratio = median(a / b for a, b in measured)
            what = f"{turns} turn{'s' * (turns > 1)} over HTTP, {CONCURRENCY} at once, stored"
            note = f"bare aiohttp loop {theirs:.2f} ms; ours is {ratio:.2f} times that"
            yield Bar(name=what, figure=mine, bar=bar, aim=min(bar, 2 * theirs), unit="ms", note=note)
