"""verifiers' classic environments, evaluated in their own process without a display and without saving."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import verifiers
from datasets import Dataset
from verifiers.types import ClientConfig, UserMessage

from benchmarks.peers.rounds import ANSWER, SYSTEM, Side, again, question, serve

KEY = "PEERS_KEY"


def right(completion: Any, answer: str) -> float:
    """The reward."""
    last = completion[-1]
    said = last["content"] if isinstance(last, dict) else last.content
    return float(answer in (said or ""))


class Asking(verifiers.MultiTurnEnv):
    """The question again and again."""

    async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
        return [UserMessage(content=again(len(state["trajectory"])))]


def environment(turns: int, count: int) -> verifiers.Environment:
    """With as many tasks."""
    tasks = Dataset.from_list([{"question": question(number), "answer": ANSWER} for number in range(count)])
    judged: dict[str, Any] = {"eval_dataset": tasks, "system_prompt": SYSTEM, "rubric": verifiers.Rubric(funcs=[right])}
    return verifiers.SingleTurnEnv(**judged) if turns == 1 else Asking(max_turns=turns, **judged)


@asynccontextmanager
async def opened(url: str, turns: int, concurrency: int) -> AsyncIterator[Side]:
    """Environments are made anew for each round, and their making is counted, as a run would."""
    os.environ.setdefault(KEY, "none")
    verifiers.setup_logging("ERROR")
    client = ClientConfig(api_base_url=url, api_key_var=KEY)

    async def play(count: int) -> int:
        done = await environment(turns, count).evaluate(
            client=client,
            model="mock",
            num_examples=count,
            rollouts_per_example=1,
            max_concurrent=concurrency,
            on_start=lambda *_: None,
            on_progress=lambda *_: None,
        )
        return sum(output["reward"] == 1.0 for output in done["outputs"])

    yield play


if __name__ == "__main__":
    serve(opened)
