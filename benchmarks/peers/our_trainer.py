"""Our trainer on the two tasks, a step at a time: see `steps`."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from transformers.utils import get_json_schema

from benchmarks.peers import steps
from benchmarks.peers.steps import ASK, GROUPS, GUESSES, HIGHEST, LR, SIBLINGS, TOKENS, Gate
from wanderlust.environment import Environment, Episode
from wanderlust.rubrics.rubric import Rubric, metric
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.train import run_training
from wanderlust.types import Message, Task, Trajectory, tool_message, user


def paid(rewards: Mapping[str, float]) -> float:
    """What the environment paid."""
    return sum(rewards.values())


def sampled(trajectory: Trajectory) -> float:
    """Tokens, wherever they were sampled."""
    return float(sum(len(turn.tokens.completion) for turn in trajectory.turns if turn.tokens is not None))


class Counting(Environment):
    """Say digits."""

    rubric = Rubric(paid, metric(sampled))

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act(*episode.task.prompt)
        episode.reward("digits", steps.digits(said.content))

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """Endless to train on, none to evaluate."""
        numbers = count() if split == "train" else ()
        return (Task(id=str(n), prompt=(user(steps.count_from(n)),)) for n in numbers)


@dataclass(frozen=True, slots=True)
class Shown:
    """The tool as the prompt describes it."""

    name: str
    description: str
    schema: dict[str, Any]

    @classmethod
    def guess(cls) -> Shown:
        known = get_json_schema(steps.guess)["function"]
        return cls(known["name"], known["description"], known["parameters"])

    async def __call__(self, **_: Any) -> str:
        raise NotImplementedError("the environment reads the call itself")


class Guessing(Environment):
    """Guess a number by a tool, as the other side's environment lets one."""

    tool = Shown.guess()
    rubric = Rubric(paid, metric(sampled))

    async def run(self, episode: Episode) -> None:
        seen: Sequence[Message] = episode.task.prompt
        guesses, last = 0, ""
        for _ in range(GUESSES + 1):
            answer = await episode.agent.act(*seen, tools=[self.tool])
            n = _called(answer)
            if n is None:
                break
            told = "game over"
            if last != "correct" and guesses < GUESSES:
                guesses, last = guesses + 1, steps.hint(episode.task.info["secret"], n)
                told = last
            seen = [tool_message(told, answer.tool_calls[0])]
        episode.reward("won", steps.won(guesses, last))

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """Endless to train on, none to evaluate."""
        numbers = count() if split == "train" else ()
        return (Task(id=str(n), prompt=(user(ASK),), info={"secret": 1 + n % HIGHEST}) for n in numbers)


def _called(answer: Message) -> int | None:
    try:
        return int(json.loads(answer.tool_calls[0].arguments)["n"]) if answer.tool_calls else None
    except (ValueError, KeyError, TypeError):
        return None


class Watch:
    """Tells the cost of a step when it has ended, and opens the gate to the next."""

    def __init__(self, gate: Gate):
        self.gate = gate

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        """A step has ended."""
        if stage != "rl":
            return
        self.gate.passed(reward=metrics["reward"], sampled=round(metrics["metric/sampled"] * metrics["rollouts"]))
        if step < of and not self.gate.open():
            sys.exit()


def main() -> None:
    task, folder, number, workers = steps.arguments()
    gate = Gate()
    config = TrainConfig(
        env=f"benchmarks.peers.our_trainer:{'Counting' if task == 'count' else 'Guessing'}",
        policy=folder,
        algorithm="grpo",
        steps=number,
        tasks_per_step=GROUPS,
        group_size=SIBLINGS,
        lr=LR[task],
        max_tokens=TOKENS[task],
    )
    with tempfile.TemporaryDirectory() as scratch:
        run = Run.begin(Path(scratch) / "run", config)
        gate.open()
        run_training(config, run, logger=Watch(gate), workers=workers)
        run.store.close()


if __name__ == "__main__":
    main()
