"""Our trainer on the counting task, in one process: prints the processor and wall seconds of each step as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

from benchmarks.peers.counting import GROUPS, LR, SIBLINGS, TOKENS, prompt, share
from wanderlust.core.contracts import Environment, Episode
from wanderlust.core.messages import user
from wanderlust.core.types import Task
from wanderlust.recipes.run import Run
from wanderlust.recipes.train import TrainConfig, train


class Counting(Environment):
    """Say digits."""

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act(*episode.task.prompt)
        episode.reward("digits", share(said.content))

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """Endless to train on, none to evaluate."""
        numbers = count() if split == "train" else ()
        return (Task(id=str(n), prompt=(user(prompt(n)),)) for n in numbers)


class Clock:
    """Looks at the clocks when a step has ended."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []
        self.rewards: list[float] = []

    def show(self, stage: str, step: int, *, of: int, figures: Mapping[str, float]) -> None:
        """A step has ended."""
        if stage == "reinforce":
            self.seen.append((time.process_time(), time.perf_counter()))
            self.rewards.append(figures["reward"])


def main(folder: str, steps: int) -> None:
    clock = Clock()
    config = TrainConfig(
        env="benchmarks.peers.ours_single:Counting",
        policy=folder,
        algorithm="grpo",
        steps=steps,
        groups=GROUPS,
        group_size=SIBLINGS,
        lr=LR,
        max_tokens=TOKENS,
    )
    with tempfile.TemporaryDirectory() as scratch:
        run = Run.begin(Path(scratch) / "run", config)
        train(config, run, watch=clock, workers=1)
        run.store.close()
    print(json.dumps({"seen": clock.seen, "rewards": clock.rewards}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
