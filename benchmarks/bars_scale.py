"""What a step costs besides the GPUs' work, and whether the cost model of docs/scale.md gives published step times.

Episodes of five turns are played by a small model, and their sizes counted where they leave a process.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import scale
from benchmarks.bar import Bar
from wanderlust.environment import Environment, Episode
from wanderlust.policies.base import SamplingOptions
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.runner.engine import play_groups
from wanderlust.store.store import RunStore
from wanderlust.training.batch.samples import build_samples
from wanderlust.training.losses import CISPO_LOSS
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.types import Task, Turn, user

TURNS, GROUPS, GROUP_SIZE, ROUNDS = 5, 16, 8, 5
TEXT = "the tool says that there are four more pages to read before the answer can be given"


class FiveTurns(Environment):
    """Reads a tool's result in each turn; any answer is worth something."""

    async def run(self, episode: Episode) -> None:
        for turn in range(TURNS):
            await episode.agent.act(user(f"{TEXT} {turn}"))
        episode.reward("turns", episode.rng("reward").random())

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=str(n)) for n in range(GROUPS)]


def bars() -> Iterator[Bar]:
    """Sizes and times of ours, then the model against others' runs."""
    tokenizer = fresh_tokenizer([TEXT, "0 1 2 3 4"] * 20)
    model = fresh_model(tokenizer, ModelShape(width=32, layers=1, heads=2, inner=64, positions=1024), seed=0)
    policy = LocalPolicy.of(model, tokenizer, SamplingOptions(max_tokens=16), seed=0)
    tasks = FiveTurns().tasks()
    groups = asyncio.run(play_groups(FiveTurns(), tasks, policy, group_size=GROUP_SIZE))
    tokens = sum(
        len(turn.tokens.prompt) + len(turn.tokens.completion)
        for group in groups
        for rollout in group.rollouts
        for turn in rollout.trajectory.turns
        if turn.tokens is not None
    )
    yield _size("bytes per token of groups sent between processes", pickle.dumps(groups, protocol=5), tokens)
    for group in groups:
        for rollout in group.rollouts:
            rollout.trajectory.advantage = 1.0
    samples = build_samples(groups, CISPO_LOSS)
    yield _size("bytes per token of samples sent to a trainer", pickle.dumps(samples, protocol=5), tokens)
    sent = sum(
        len(json.dumps(list(range(1000, 1000 + place))))
        for group in groups
        for rollout in group.rollouts
        for place in _contexts(rollout.trajectory.turns)
    )
    yield Bar(
        name="bytes per token of requests to a server",
        figure=sent / tokens,
        bar=32,
        aim=16,
        unit="bytes",
        note=f"{TURNS} turns: each request carries the whole conversation as ids",
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rollouts.db"
        with RunStore.create(path) as store:
            store.add(groups, stage="rl", step=0, env="five-turns")
        yield _size("bytes per token in the store", path.read_bytes(), tokens)
    tested = [run for run in scale.PUBLISHED if run is not scale.CALIBRATION]
    errors = [scale.predicted(run).seconds / run.seconds - 1 for run in tested]
    yield Bar(
        name="cost model against published runs, worst of three",
        figure=100 * max(map(abs, errors)),
        bar=30,
        aim=15,
        unit="%",
        note="; ".join(f"{run.name} {error:+.0%}" for run, error in zip(tested, errors, strict=True)),
    )


def _size(name: str, data: bytes, tokens: int) -> Bar:
    return Bar(name=name, figure=len(data) / tokens, bar=64, aim=32, unit="bytes", note=f"{tokens:,} tokens")


def _contexts(turns: Sequence[Turn]) -> Iterator[int]:
    """Tokens of the conversation at each request."""
    read = 0
    for turn in turns:
        assert turn.tokens is not None
        read += len(turn.tokens.prompt)
        yield read
        read += len(turn.tokens.completion)
