"""The recipe `reasoner` with SmolLM2-135M: ten sets that it never saw, before and after, seeds 0 to 2.

The ten are drawn by `draw_held_out` before anything is trained: from the sets of reasoning-gym whose questions and
answers fit, whose own answers their scorer accepts, and that the base does not always answer right; families in turn.
All seeds have the same ten. Runs stay in RUNS and go on where they stopped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from shutil import copy, copytree, ignore_patterns
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import SEEDS

from wanderlust.evals.comparison import rewards_by_task
from wanderlust.evals.statistics import Difference, corrected, difference_over_seeds
from wanderlust.store.run_folder import begin_with_settings
from wanderlust_reasoning.reasoner import SETTINGS_FILE, train_reasoner
from wanderlust_reasoning.reasoner_config import ReasonerConfig
from wanderlust_reasoning.reasoner_report import AFTER_RL, AFTER_SFT, BASE, EXAMS, WORSE, ReasonerReport

RUNS = Path("runs/benchmarks")
CONFIG = ReasonerConfig(
    policy="smollm2",
    max_question_chars=500,
    questions=8,
    difficulty_samples=2,
    exam=100,
    continual_steps=2,
    continual_exam=24,
    rl={"steps": 10, "tasks_per_step": 6, "group_size": 8},
)


def made(seed: int) -> ReasonerReport:
    """The run of a seed. What the base itself answers is the same for all seeds, and is taken from the first one."""
    config = replace(CONFIG, seed=seed)
    folder, first = (RUNS / f"reasoner-seed{one}" for one in (seed, SEEDS[0]))
    begin_with_settings(folder / SETTINGS_FILE, json.loads(json.dumps(asdict(config))), what="run")
    for part in ("sets.json", "exams/base-rates", f"exams/exam-{BASE}"):
        ready, place = first / part, folder / part
        if not place.exists() and ready.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            copytree(ready, place, ignore=ignore_patterns("*.sock")) if ready.is_dir() else copy(ready, place)
    return train_reasoner(config, out=folder, workers=1, progress=False)


def right(run: ReasonerReport, exam: str, name: str) -> dict[str, float]:
    """0 or 1 of each question of a held-out set."""
    rewards = rewards_by_task(run.path / "exams" / f"exam-{exam.replace(' ', '-')}")
    return {task: float(own[0] >= 1) for task, own in rewards.items() if task.partition("/")[0] == name}


def gains(runs: Sequence[ReasonerReport], before: str) -> dict[str, Difference]:
    """Right answers after RL less those before, by set; over questions and seeds, corrected for the number of sets."""
    found = {}
    for name in (one.name for one in runs[0].held_out):
        ours, theirs = ([right(run, exam, name) for run in runs] for exam in (AFTER_RL, before))
        found[name] = difference_over_seeds(ours, theirs, [*ours[0]])
    return corrected(found)


def above(found: dict[str, Difference]) -> list[str]:
    """The sets that are clearly better."""
    return [name for name, gain in found.items() if gain.clear and gain.value > 0]


def told(found: dict[str, Difference]) -> str:
    """Every set's gain in points."""
    return ", ".join(f"{name} {100 * gain.value:+.0f}" for name, gain in found.items())


def bars() -> Iterator[Bar]:
    """Sets that are better and worse than the base, what RL adds to SFT, form and skill, and forgetting."""
    runs = []
    for seeds in (SEEDS[:1], SEEDS[1:]):  # in processes that give their memory back: a run takes up to 8 GB
        with ProcessPoolExecutor(min(len(seeds), os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
            runs += pool.map(made, seeds)
    over_base, over_sft = gains(runs, BASE), gains(runs, AFTER_SFT)
    questions = min(one.exams[BASE].right.count for one in runs[0].held_out)
    what = f"SmolLM2-135M, {len(over_base)} held-out sets"
    yield Bar(
        name=f"{what}: clearly better than the base",
        figure=len(above(over_base)),
        bar=6,
        aim=8,
        better="higher",
        note=f"points, mean of {len(runs)} seeds, from {questions} questions a set, greedy: {told(over_base)}",
    )
    worse = [name for name, gain in over_base.items() if gain.value < WORSE]
    note = ", ".join(worse) or "none"
    yield Bar(name=f"{what}: worse than the base by more than 2 points", figure=len(worse), bar=0, aim=0, note=note)
    yield Bar(
        name=f"{what}: RL clearly better than SFT alone",
        figure=len(above(over_sft)),
        bar=0,
        aim=1,
        better="higher",
        note=f"no bar: for comparison; points: {told(over_sft)}",
    )
    yield skill(runs, what)
    yield forgetting(runs)


def skill(runs: Sequence[ReasonerReport], what: str) -> Bar:
    """How many sets are answered better than by the most frequent answer, and form and skill of all exams."""
    sides = []
    for name in EXAMS:
        exams = [one.exams[name] for run in runs for one in run.held_out]
        answered, correct = fmean(one.answered for one in exams), fmean(one.right.value for one in exams)
        sides.append(f"{name} {answered:.0%} and {correct / answered if answered else 0:.0%}")
    better = [sum(one.exams[AFTER_RL].right.value > one.constant for one in run.held_out) for run in runs]
    return Bar(
        name=f"{what}: right more often than the most frequent answer would be, worst seed",
        figure=min(better),
        bar=0,
        aim=5,
        better="higher",
        note=f"no bar: for comparison; answers in the form, and right ones among these: {'; '.join(sides)}",
    )


def forgetting(runs: Sequence[ReasonerReport]) -> Bar:
    """What training on B costs on A."""
    lost = [-100 * one.forgetting.value for one in runs if one.forgetting is not None]
    rows = "; ".join(
        ", ".join(f"{row.phase} {row.first.value:.2f} {row.second.value:.2f}" for row in one.continual) for one in runs
    )
    stable = sum(one.stable for one in runs)
    return Bar(
        name="SmolLM2-135M, continual training: points lost on A by training on B, mean of three seeds",
        figure=fmean(lost),
        bar=5,
        aim=0,
        note=f"right on A and on B, by seed: {rows}; RL was stable in {stable} of {len(runs)} runs",
    )
