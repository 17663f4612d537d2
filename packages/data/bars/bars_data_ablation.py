"""An ablation of six recipes, three students each: are the planted truths found, and do students pass their teacher?

The recipes are those of `data_recipe`. A seed finds the truths when three things hold: its student without the poisoned
source is better than the plan's; its student of the worked teacher is better than that of the terse one, which scores
higher; and the leaked exam questions are named.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import fmean

from benchmarks.bar import Bar

from data_recipe import EXAM_QUESTIONS, LEAKED, SETTINGS, recipe, write_sources
from wanderlust import Scripted, evaluate_sync
from wanderlust.evals.comparison import rewards_by_task
from wanderlust.evals.statistics import difference_over_seeds
from wanderlust_data import RecipeComparison, ablate_data
from wanderlust_data.ablation import BASE
from wanderlust_reasoning.environment import ReasoningGym, pupil

SEEDS = (0, 1, 2)
LEAK_SHARE = 0.95


def finds_truths(report: RecipeComparison, seed: int) -> bool:
    """Whether this seed's students, and the report, point at the three planted faults."""
    worked, terse = report["only worked"], report["only terse"]
    poisoned = report["without poisoned"].by_seed[seed] > report[BASE].by_seed[seed]
    scores_higher = (terse.teacher_reward or 0.0) > (worked.teacher_reward or 0.0)
    taught = scores_higher and worked.by_seed[seed] > terse.by_seed[seed]
    return poisoned and taught and named_leaks(report) >= LEAK_SHARE


def named_leaks(report: RecipeComparison) -> float:
    """Share of the leaked exam questions that are named."""
    env = ReasoningGym("chain_sum", size=EXAM_QUESTIONS, **SETTINGS)
    planted = {task.id for task in islice(env.tasks("eval"), LEAKED)}
    return len(planted & {*report[BASE].leaked}) / len(planted)


def student_over_teacher(folder: Path, report: RecipeComparison) -> tuple[float, float, float, float]:
    """Student's and teacher's mean on the exam, and the interval of the difference."""
    env = ReasoningGym("chain_sum", size=EXAM_QUESTIONS, **SETTINGS)
    evaluate_sync(env, Scripted(pupil), samples=8, out=folder / "teacher", progress=False)
    teacher = {task: fmean(rewards) for task, rewards in rewards_by_task(folder / "teacher").items()}
    exams = sorted((folder / "out/exams").glob("only-worked-*-seed*"))
    students = [{task: fmean(own) for task, own in rewards_by_task(exam).items()} for exam in exams]
    difference = difference_over_seeds(students, [teacher] * len(students), [*teacher])
    low = difference.value if difference.low is None else difference.low
    return fmean(fmean(own.values()) for own in students), fmean(teacher.values()), difference.value, low


def bars() -> Iterator[Bar]:
    """Seeds that find the truths, the cost, and the students' gain over their teacher."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sources(folder / "sources")
        began = time.process_time()
        report = ablate_data(recipe(folder / "sources", seeds=SEEDS), folder / "out", progress=False)
        minutes = (time.process_time() - began) / 60
        found = [seed for seed in SEEDS if finds_truths(report, seed)]
        told = "; ".join(f"{one.name} {one.reward.value:.3f}" for one in report.recipes)
        yield Bar(
            name="planted truths: seeds that find all", figure=len(found), bar=3, aim=3, better="higher", note=told
        )
        over = report["without poisoned"].over_plan
        yield Bar(
            name="without the poisoned source, over the plan: lower end",
            figure=None if over is None else over.low,
            bar=0.0,
            aim=0.05,
            better="higher",
            note=f"{over}",
        )
        worked, terse = report["only worked"], report["only terse"]
        yield Bar(
            name="students of the teacher that scores lower, over those of the other",
            figure=worked.reward.value - terse.reward.value,
            bar=0.05,
            aim=0.3,
            better="higher",
            note=f"teachers {worked.teacher_reward:.3f} and {terse.teacher_reward:.3f}; students {worked.reward} and"
            f" {terse.reward}",
        )
        yield Bar(name="leaked exam questions named", figure=named_leaks(report), bar=0.95, aim=1, better="higher")
        yield Bar(name="six recipes, three seeds: processor time", figure=minutes, bar=60, aim=20, unit="min")
        student, teacher, gain, low = student_over_teacher(folder, report)
        note = f"{student:.3f} against {teacher:.3f}, {EXAM_QUESTIONS} held-out questions, {len(SEEDS)} seeds"
        yield Bar(
            name="student over its teacher", figure=100 * gain, bar=5, aim=20, unit="pt", better="higher", note=note
        )
        yield Bar(
            name="student over its teacher: lower end", figure=100 * low, bar=0.01, aim=10, unit="pt", better="higher"
        )
