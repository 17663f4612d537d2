"""inspect_ai: one question, one answer, with its log; no display."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from inspect_ai import Task, eval_async
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, system_message

from benchmarks.peers.rounds import ANSWER, SYSTEM, Side, question, serve


@asynccontextmanager
async def opened(url: str, turns: int, concurrency: int) -> AsyncIterator[Side]:
    """Several turns by a user's program are not what it is made for: they are refused."""
    if turns != 1:
        raise ValueError("only single turns")
    os.environ.setdefault("MOCK_API_KEY", "none")
    os.environ["INSPECT_DISPLAY"] = "none"
    settings = GenerateConfig(max_connections=concurrency)
    model = get_model("openai-api/mock/mock", base_url=url, config=settings)

    async def play(count: int) -> int:
        samples = [Sample(input=question(number), target=ANSWER) for number in range(count)]
        task = Task(MemoryDataset(samples), solver=[system_message(SYSTEM), generate()], scorer=includes())
        with tempfile.TemporaryDirectory() as folder:
            (log,) = await eval_async(task, model=model, log_dir=folder, log_level="error", max_samples=concurrency)
            scores = [sample.scores for sample in log.samples or ()]  # read from the folder
        return sum(score is not None and score["includes"].value == "C" for score in scores)

    yield play


if __name__ == "__main__":
    serve(opened)
