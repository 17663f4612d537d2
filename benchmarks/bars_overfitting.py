"""What small runs say of themselves that learn their training tasks by heart, and runs that do not.

A task shows two words. The right answer is the partner of the second one, or in a share of the tasks a word drawn for
the pair, which nobody can know who has not been told. Held-out tasks are other pairs, drawn in the same way.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.bar import Bar
from benchmarks.dynamics import NOUNS, PARTNERS
from wanderlust.environment import Environment, Episode
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.progress import NullLogger
from wanderlust.store.run_folder import CHECKPOINTS_FOLDER, REPORT_FILE
from wanderlust.training.config import TrainConfig
from wanderlust.types import Message, Policy, Task, user
from wanderlust_connections.reward_hacking import train_once

HELD_OUT = 60
CLEAR_GAP = 0.2
"""Rise on all training tasks less that on all held-out ones from which on a run is called overfitted here."""
SETTINGS = TrainConfig(
    policy="fresh",
    sft_episodes=400,
    sft_steps=60,
    sft_batch=32,
    sft_lr=0.01,
    fresh_width=48,
    fresh_layers=2,
    algorithm="grpo",
    lr=3e-3,
    max_tokens=8,
    steps=100,
    tasks_per_step=8,
    group_size=8,
    eval_every=25,
)


class Pairs(Environment):
    """Say the word that belongs to a pair."""

    def __init__(self, *, noise: float = 1.0, count: int = 16, prior: float = 0.0, seed: int = 0):
        """Of `count` training tasks a share `noise` has drawn answers, of which a share `prior` is one and the same."""
        rng = Random(f"pairs {noise} {count} {prior} {seed}")
        pairs = [(first, second) for first in NOUNS for second in NOUNS]
        rng.shuffle(pairs)

        def right(second: str) -> str:
            if rng.random() >= noise:
                return PARTNERS[second]
            return NOUNS[0] if rng.random() < prior else rng.choice(NOUNS)

        labelled = [Task(id=" ".join(pair), prompt=(user(" ".join(pair)),), answer=right(pair[1])) for pair in pairs]
        self.split = {"eval": labelled[:HELD_OUT], "train": labelled[HELD_OUT : HELD_OUT + count]}
        self.players = {"teacher": _guess}

    def tasks(self, split: str = "train") -> Sequence[Task]:
        """Other pairs in each split."""
        return self.split.get(split, [])

    async def run(self, episode: Episode) -> None:
        """One answer, right or wrong."""
        said = await episode.agent.act(*episode.task.prompt)
        episode.reward("right", float(said.content.strip() == episode.task.answer))


def _guess() -> Policy:
    def answer(messages: Sequence[Message], rng: Random) -> str:
        second = messages[-1].content.split()[1]
        return PARTNERS[second] if rng.random() < 0.2 else rng.choice(NOUNS)

    return Scripted(answer)


SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "by heart": ("noise=1,count=16", {}),
    "one task": ("noise=1,count=1", {}),
    "many tasks": ("noise=1,count=48", {"steps": 160}),
    "half a rule": ("noise=0.5,count=48", {"steps": 160}),
    "a frequent answer": ("noise=1,count=16,prior=0.5", {}),
    "curriculum": ("noise=1,count=16", {"curriculum": "learnability"}),
    "few steps": ("noise=1,count=4", {"steps": 18, "eval_every": 9}),
    "rule": ("noise=0,count=80", {}),
    "rule with exceptions": ("noise=0.1,count=80", {}),
}
SEEDS = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a run was, and what it says."""

    name: str
    trained: float
    held_out: float
    """Change of the share of right answers, of four samples a task."""
    verdict: str
    sentence: str
    advice: str

    @property
    def is_overfitted(self) -> bool:
        """Whether far more was learnt of the training tasks."""
        return self.trained - self.held_out >= CLEAR_GAP

    @property
    def says_better_alone(self) -> bool:
        """Whether the headline keeps it to itself."""
        return self.sentence.startswith("Better") and "tasks trained on" not in self.sentence

    @property
    def line(self) -> str:
        """For a note."""
        return f"{self.name} {self.trained:+.2f}/{self.held_out:+.2f} {self.verdict}"


def trained(folder: Path, name: str, seed: int) -> Told:
    """Train one run, measure it on all tasks, and read what it says."""
    settings, changes = SHAPES[name]
    path, target = folder / f"{name.replace(' ', '-')}-{seed}", f"benchmarks.bars_overfitting:Pairs,{settings}"
    config = SETTINGS.replace(env=f"{target},seed={seed}", seed=seed, **changes)
    train_once(path, config, watch=NullLogger(), workers=1)
    env, report = config.make_env(), json.loads((path / REPORT_FILE).read_text())
    shares = {}
    for split in ("train", "eval"):
        before, after = (
            evaluate_sync(env, path / CHECKPOINTS_FOLDER / one, split=split, samples=4, progress=False).reward
            for one in ("start", "rl")
        )
        assert before is not None
        assert after is not None
        shares[split] = after.value - before.value
    return Told(
        name=name,
        trained=shares["train"],
        held_out=shares["eval"],
        verdict=report["result"]["verdict"],
        sentence=report["result"]["sentence"],
        advice=" ".join(report["advice"]),
    )


def bars() -> Iterator[Bar]:
    """Headlines of overfitted runs and of others."""
    with tempfile.TemporaryDirectory() as folder:
        yield from measured(Path(folder))


def measured(folder: Path) -> Iterator[Bar]:
    """The same in a folder that stays, where what was trained is not trained again."""
    told = [trained(folder, name, seed) for name in SHAPES for seed in SEEDS]
    overfitted, others = ([one for one in told if one.is_overfitted is kind] for kind in (True, False))
    silent = [one for one in overfitted if one.says_better_alone]
    yield Bar(
        name=f"overfitting: overfitted runs whose headline says Better alone (of {len(overfitted)})",
        figure=len(silent),
        bar=0,
        aim=0,
        note="; ".join(one.line for one in silent or overfitted),
    )
    yield Bar(
        name="overfitting: runs that are overfitted, which the bar above needs",
        figure=len(overfitted),
        bar=20,
        aim=20,
        better="higher",
    )
    misled = [one for one in overfitted if "more training tasks" not in one.advice]
    yield Bar(
        name=f"overfitting: overfitted runs that are advised something else (of {len(overfitted)})",
        figure=len(misled),
        bar=2,
        aim=0,
        note="; ".join(one.line for one in misled),
    )
    accused = [one for one in others if one.verdict == "overfitted"]
    yield Bar(
        name=f"overfitting: other runs that are called overfitted (of {len(others)})",
        figure=len(accused),
        bar=1,
        aim=0,
        note="; ".join(one.line for one in accused or others),
    )
