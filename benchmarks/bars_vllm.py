"""What real vLLM samples, token by token: against the trainer, and against the weights that each label names.

Two runs send whole weights at every step, and every version of them is kept: one in turn, one with two servers whose
rollouts may be two versions old. The log-probability of each token in the store is computed again by the weights that
its label names, or by newer ones: a request that waits while weights change is sampled by those, with the older label.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from transformers import LlamaForCausalLM

from benchmarks.bar import Bar
from benchmarks.bars_engines import MAX_GAP, LetterAmongDigits, figures, gap_bar, server_command, start
from benchmarks.peer import NotMeasured
from wanderlust.runner.progress import NullLogger
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import STORE_FILE
from wanderlust.training import losses
from wanderlust.training.batch.samples import to_samples
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.gradient import GradientComputer
from wanderlust.training.train import run_training
from wanderlust.training.trainers.base import WEIGHTS_FOLDER
from wanderlust.types import Trajectory

STEPS, SEED, STALE = 40, 0, 2
FIRST_VERSION = 2
"""Version of the weights that step 0 plays with: they are published twice before it."""


def bars() -> Iterator[Bar]:
    """Gap and labels."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            checked = {lag: check_tokens(Path(folder), max_staleness=lag) for lag in (0, STALE)}
    except NotMeasured as why:
        yield gap_bar("whole weights", None, str(why))
        return
    yield from judge_tokens(checked)


class Keeper(NullLogger):
    """Keeps the weights that each step publishes."""

    def __init__(self, published: Path, kept: Path):
        self.published, self.kept = published, kept

    def log_step(self, stage: str, step: int, *, of: int, metrics: object) -> None:
        """The newest export is that of the step which is over."""
        if stage == "rl":
            shutil.copytree(max(self.published.iterdir()), self.kept / f"{step + FIRST_VERSION}")


@dataclass(slots=True, kw_only=True)
class Tokens:
    """The tokens of a run, and what is wrong with them."""

    gap: float = 0.0
    """Largest in the run's own metrics."""
    count: int = 0
    stale: int = 0
    """Labelled with older weights than those that learnt from them."""
    told_apart: int = 0
    """Of these, whose log-probability by the newest weights is another one."""
    mislabelled: list[str] = field(default_factory=list)
    """Sampled by older weights than the label's, or by none that the run has had, in words."""


def check_tokens(folder: Path, *, max_staleness: int) -> Tokens:
    """A run that sends whole weights to real vLLM, and every token of it computed again."""
    place, out, kept = start(folder, SEED), folder / f"whole-{max_staleness}", folder / f"kept-{max_staleness}"
    config = TrainConfig(
        env=LetterAmongDigits(),
        policy=str(place),
        engine="vllm",
        server_command=server_command(),
        servers=2 if max_staleness else 1,
        steps=STEPS,
        eval_every=STEPS,
        tasks_per_step=8,
        max_tokens=1,
        algorithm="grpo-tis" if max_staleness else "grpo",
        lr=3e-3,
        concurrency=64,
        result_samples=0,
        max_staleness=max_staleness,
    )
    kept.mkdir()
    begun = Run.begin(out, config)
    run_training(config, begun, logger=Keeper(out / WEIGHTS_FOLDER / "published", kept))
    begun.store.close()

    @lru_cache(maxsize=max_staleness + 2)
    def computer(version: int) -> GradientComputer:
        model = LlamaForCausalLM.from_pretrained(kept / f"{version}" if version > FIRST_VERSION else place)
        return GradientComputer(model.eval(), loss=losses.GRPO_LOSS)

    found = Tokens(gap=max(figures(out, "sampler_logprob_diff_max")))
    with RunReader(out / STORE_FILE) as store:
        for step in range(STEPS):
            played = [t for g in store.groups("rl", step) for r in g.rollouts for t in r.trajectories]
            newest = step + FIRST_VERSION
            check_step(found, played, computer, newest=newest, oldest=newest - max_staleness)
    return found


def check_step(found: Tokens, played: Sequence[Trajectory], computer: Any, *, newest: int, oldest: int) -> None:
    """Compare each token with the weights from its label's version on; a request on its way may get newer ones."""
    samples = [sample for trajectory in played for sample in to_samples(trajectory)]
    labels = [[turn.tokens.version for turn in t.turns if turn.tokens for _ in turn.tokens.completion] for t in played]
    rows = {v: computer(v).compute_logprobs(samples) for v in range(max(oldest, FIRST_VERSION), newest + 1)}
    for number, sample in enumerate(samples):
        places = [place for place, on in enumerate(sample.mask) if on]
        for place, label in zip(places, labels[number], strict=True):
            near = [v for v, row in rows.items() if abs(row[number][place] - sample.logprobs[place]) <= MAX_GAP]
            found.count += 1
            found.stale += label < newest
            found.told_apart += label < newest and newest not in near
            if not (oldest <= label <= newest and any(v >= label for v in near)):
                found.mislabelled.append(f"step {newest - FIRST_VERSION}: label {label}, weights {near}")


def judge_tokens(checked: Mapping[int, Tokens]) -> Iterator[Bar]:
    """Gap and labels of a run in turn and of one that plays ahead."""
    exact, ahead = checked[0], checked[STALE]
    yield gap_bar("whole weights", exact.gap, f"{STEPS} steps, {exact.count} tokens")
    for what, found in (
        (f"{STEPS} steps in turn", exact),
        (f"{STEPS} steps, rollouts up to {STALE} old", ahead),
    ):
        note = f"of {found.count} tokens, {found.stale} with older labels than the trainer's"
        if found.stale:
            note += f"; of these {found.told_apart} have another log-probability by the newest weights"
        name = f"vLLM, {what}: tokens sampled by older weights than their label says"
        yield Bar(
            name=name,
            figure=float(len(found.mislabelled)),
            bar=0,
            aim=0,
            note="; ".join([note, *found.mislabelled[:3]]),
        )
