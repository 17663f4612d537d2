"""Distillation: SmolLM2-135M after six examples teaches a new model of 0.14 million weights, which reads no examples.

The task is `benchmarks/tickets.py`: the thing that a customer's complaint is about. The teacher's right answers to 400
messages are imitated, then the student goes on by reinforcement. Both answer the same 300 held-out messages greedily.
Costs are processor time of this machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.tickets import EVAL, Prompted, smollm2

from wanderlust.evals.comparison import rewards_by_task
from wanderlust.evals.statistics import Estimate, difference_over_seeds
from wanderlust_data import DistilConfig, Distillation, Teacher, distil

SEEDS = (0, 1, 2)
SFT = {"epochs": 20, "batch_tokens": 2048, "fresh_positions": 128, "optimizer": "muon", "lr": 0.005}
RL = {"steps": 200, "lr": 2e-3, "tasks_per_step": 64, "max_tokens": 4, "eval_every": 200, "eval_tasks": 1}


def distilled(folder: Path, seed: int) -> Distillation:
    """One seed, from nothing."""
    config = DistilConfig(questions=400, exam=EVAL, sft=SFT, rl=RL, seed=seed)
    teacher = Teacher(name="smollm2", policy=Prompted(smollm2()), samples=4)
    place = folder / f"seed{seed}"
    return distil("benchmarks.tickets:Tickets", teacher, config=config, out=place, workers=1, progress=False)


def over_teacher(reports: Sequence[Distillation], stage: str) -> Estimate:
    """The student's reward over the teacher's; the interval covers the choice of messages and of seeds."""
    rewards = [
        [{task: fmean(own) for task, own in rewards_by_task(one.path / "exams" / name).items()} for one in reports]
        for name in (stage, "exam-teacher")
    ]
    return difference_over_seeds(rewards[0], rewards[1], [*rewards[0][0]])


def told(reports: Sequence[Distillation], name: str) -> str:
    """Rewards of a side by seed."""
    return ", ".join("unknown" if (own := one[name].reward) is None else f"{own.value:.3f}" for one in reports)


def bars() -> Iterator[Bar]:
    """The student's gain over its teacher, and what both cost."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reports = [distilled(folder, seed) for seed in SEEDS]
        imitated, gain = over_teacher(reports, "exam-student-after-SFT"), over_teacher(reports, "exam-student")
    rewards = f"teacher {told(reports, 'teacher')}; student after SFT {told(reports, 'student after SFT')}, after RL "
    yield Bar(
        name="student over its teacher: mean of three seeds",
        figure=100 * gain.value,
        bar=5,
        aim=20,
        unit="pt",
        better="higher",
        note=f"{rewards}{told(reports, 'student')}; {EVAL} held-out messages, greedy; after SFT alone {imitated}",
    )
    low = gain.value if gain.low is None else gain.low
    yield Bar(
        name="the same: lower end", figure=100 * low, bar=0.01, aim=10, unit="pt", better="higher", note=f"{gain}"
    )
    yield from costs(reports)


def costs(reports: Sequence[Distillation]) -> Iterator[Bar]:
    """What a task costs the teacher for each dollar of the student, in the worst seed, and the break-even."""
    ratios = [1 / one.cost_ratio if one.cost_ratio else 0.0 for one in reports]
    sides = [(one["teacher"], one["student"]) for one in reports]
    spent = "; ".join(
        f"{1000 * (theirs.processor_seconds or 0):.1f} and {1000 * (ours.processor_seconds or 0):.2f} ms"
        for theirs, ours in sides
    )
    waits = "; ".join(f"{theirs.latency or 0:.3f} and {ours.latency or 0:.4f} s" for theirs, ours in sides)
    theirs, ours = sides[0]
    yield Bar(
        name="cost of the teacher over that of the student, worst seed",
        figure=min(ratios),
        bar=20,
        aim=50,
        unit="x",
        better="higher",
        note=f"processor time of a task: {spent}; latency alone: {waits}; tokens {theirs.tokens_in:.0f} +"
        f" {theirs.tokens_out:.0f} and {ours.tokens_in:.0f} + {ours.tokens_out:.0f}",
    )
    even = [one.break_even or float("inf") for one in reports]
    making = ", ".join(f"${one.making_dollars or 0:.4f}" for one in reports)
    yield Bar(
        name="tasks until the student has paid for its making, worst seed",
        figure=max(even),
        bar=10_000,
        aim=1000,
        note=f"making it: {making}, the teacher's answers included, at $0.04 an hour of a core",
    )
