"""A reward model from few preferences: right on unseen prompts, worth training on for a while, and then overdone.

Three seeds of benchmarks/praise.py. A fresh model imitates random sentences. Preferences among its own sentences, by
the reader's score, train a reward model; the same policy is then trained on that alone. The reader's score stands
beside it and is never trained on. The best steps are found on even steps, and their figure is that of the odd ones
among them, so that the choice does not flatter them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.bar import Bar
from benchmarks.courses import SEEDS, interval
from benchmarks.praise import Praise
from wanderlust import evaluate_sync, train
from wanderlust.algorithms import finetune
from wanderlust.environments.learned_reward import LearnedReward
from wanderlust.policies.base import Hardware
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.policies.local.reward_model import RewardScorer
from wanderlust.rubrics.reward_model import RewardModel
from wanderlust.runner.progress import NullLogger
from wanderlust.training.config import TrainConfig
from wanderlust.training.conversations import data_rows
from wanderlust.training.preferences import calibration_error, preference_pairs
from wanderlust.training.warmup import initial_model

SAMPLES = 12
"""Sentences of each prompt that are compared."""
WARM_UP = TrainConfig(
    env="benchmarks.praise:Praise",
    policy="fresh",
    sft_episodes=1500,
    sft_steps=200,
    sft_batch=32,
    sft_lr=0.01,
    sft_context_weight=0,
    fresh_width=48,
    max_tokens=24,
)
RL = TrainConfig(
    steps=120, tasks_per_step=16, lr=1e-3, max_tokens=24, eval_every=50, result_samples=0, kl=1e-6
)  # so small a weight changes nothing: it is there to measure the divergence
WINDOW = 10
"""Steps whose mean is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """One seed, from preferences to the end of training."""

    rows: dict[str, int]
    """Counts of the preferences."""
    accuracy: float
    """Share of the pairs of unseen prompts that the reward model gets right."""
    pairs: int
    """Number of those pairs."""
    error: float
    """Calibration error on them."""
    start: float
    """The reader's score before training."""
    curve: dict[str, Any]
    """Over-optimisation, as a run reports it."""
    seconds: float
    """Wall-clock seconds of the training run."""

    @property
    def best_window(self) -> range:
        """Places of the steps that are best on even steps."""
        truths = [point["truth"] for point in self.curve["points"]]
        starts = range(0, len(truths) - WINDOW + 1)
        best = max(starts, key=lambda at: fmean(truths[at + at % 2 : at + WINDOW : 2]))
        return range(best, best + WINDOW)

    @property
    def best(self) -> float:
        """The reader's score of the odd steps among them."""
        return fmean(self.curve["points"][at]["truth"] for at in self.best_window if at % 2)

    @property
    def end(self) -> float:
        """The reader's score of the last steps."""
        return fmean(point["truth"] for point in self.curve["points"][-WINDOW:])


def policy_of(folder: Path, seed: int) -> LocalPolicy:
    """The model in a folder, sampled as in training."""
    return LocalPolicy.of(*load_pretrained(folder), SamplingOptions(max_tokens=RL.max_tokens), seed=seed)


def run_seed(seed: int, folder: Path) -> Seed:
    """Warm up, prefer, fit, train."""
    start, played, unseen = folder / "start", folder / "played", folder / "unseen"
    save_pretrained(start, *initial_model(WARM_UP.replace(seed=seed), NullLogger()))
    reports = {
        place: evaluate_sync(
            Praise(), policy_of(start, seed), split=split, samples=SAMPLES, out=place, seed=seed, progress=False
        )
        for place, split in ((played, "train"), (unseen, "eval"))
    }
    fitted = finetune(
        played,
        start,
        "reward",
        out=folder / "model",
        epochs=16,
        batch_tokens=1000,
        lr=1e-3,
        eval_share=0.2,
        seed=seed,
        progress=False,
    )
    model = RewardModel(fitted.path)
    scorer = RewardScorer.load(Path(model.model), Hardware())
    pairs = preference_pairs(data_rows(unseen), {})
    odds = [
        fsum(s * scorer.log_odds(one.messages) for s, one in zip((1, -1), p.conversations, strict=True)) for p in pairs
    ]
    env = LearnedReward(Praise(), model=str(fitted.path))
    trained = train(env, start, config=RL.replace(seed=seed), out=folder / "rl", workers=1, progress=False)
    before = reports[played].reward
    assert before is not None
    return Seed(
        rows=fitted.report["rows"],
        accuracy=fmean(float(one > 0) for one in odds),
        pairs=len(odds),
        error=calibration_error(odds),
        start=before.value,
        curve=trained.report["overoptimisation"],
        seconds=trained.report["wall_s"],
    )


def bars() -> Iterator[Bar]:
    """All three seeds, one after the other."""
    seeds = []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            seeds.append(run_seed(seed, Path(folder)))
    yield from preferred(seeds)
    yield from trained_on(seeds)


def preferred(seeds: Sequence[Seed]) -> Iterator[Bar]:
    """What the reward models are worth on prompts that they have not seen."""
    trained = ", ".join(str(one.rows["trained"]) for one in seeds)
    told = ", ".join(f"{100 * one.accuracy:.0f}% of {one.pairs}" for one in seeds)
    yield Bar(
        name="reward model: accuracy on pairs of unseen prompts, worst seed",
        figure=100 * min(one.accuracy for one in seeds),
        bar=75,
        aim=85,
        unit="%",
        better="higher",
        note=f"seeds: {told}; trained on {trained} pairs",
    )
    yield Bar(
        name="reward model: calibration error on them, worst seed",
        figure=max(one.error for one in seeds),
        bar=0.15,
        aim=0.05,
        promised=False,
        note=f"stated, not promised; seeds: {', '.join(f'{one.error:.3f}' for one in seeds)}",
    )


def trained_on(seeds: Sequence[Seed]) -> Iterator[Bar]:
    """What became of the reader's score."""
    mean, half = interval([one.best - one.start for one in seeds])
    told = ", ".join(f"{one.start:.2f} to {one.best:.2f} to {one.end:.2f}" for one in seeds)
    yield Bar(
        name="gold score gained before over-optimising, lower end",
        figure=mean - half,
        bar=0.0,
        aim=0.1,
        better="higher",
        note=f"mean {mean:.3f}, 95% interval {mean - half:.3f} to {mean + half:.3f}; before, best, end: {told}",
    )
    flags = [one.curve["flagged_step"] for one in seeds]
    told = ", ".join(f"{one.seconds:.0f}" for one in seeds)
    bests = ", ".join(f"{one.best_window[0]}-{one.best_window[-1]}" for one in seeds)
    yield Bar(
        name="runs whose turning point is flagged",
        figure=100 * fmean(flag is not None for flag in flags),
        bar=100,
        aim=100,
        unit="%",
        better="higher",
        note=f"best steps {bests} of {RL.steps}; flagged at {', '.join(map(str, flags))}; {told} s of one core",
    )
