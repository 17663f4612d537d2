"""A tiny model learns six families of a life in few words: a careless teacher first, then the verifier's verdicts.

The preset itself, three seeds one after the other. Success is measured on held-out scenarios, whose people and places
were nobody's in training: sampled, as in training, before and after RL, the same 100 tasks of each family for both.
What it does at the next level and in families that it never met is measured as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import ClassVar

from benchmarks.bar import Bar
from benchmarks.courses import SEEDS, interval, reward, sampled

from wanderlust.runner.progress import NullLogger
from wanderlust.training.checkpoint import Run
from wanderlust.training.train import run_training
from wanderlust.types import Task
from wanderlust_life.assistant_life import AssistantLife
from wanderlust_life.brief_life import BRIEF_FAMILIES, BRIEF_VERBS, BriefLife
from wanderlust_life.brief_worlds import BriefWorlds, Verb
from wanderlust_life.preset import LIFE

TASKS = 100
NEVER_MET = ("two-of-a-name", "wrong-day", "thank-them")


class OtherFamilies(BriefWorlds, AssistantLife):
    """Families without a teacher, by the same verbs."""

    verbs: ClassVar[Mapping[str, Verb]] = BRIEF_VERBS
    long: ClassVar[str] = BriefLife.long


def by_family(checkpoint: Path, env: BriefWorlds, tasks: list[Task]) -> dict[str, float]:
    """The share of accepted episodes of each family."""
    found = defaultdict(list)
    for rollout in sampled(checkpoint, env, tasks, max_tokens=LIFE.max_tokens):
        found[str(rollout.task.info["family"])].append(reward(rollout))
    return {family: fmean(values) for family, values in found.items()}


def others() -> tuple[OtherFamilies, list[Task]]:
    """The families that it never met, and tasks of them without the long prompt."""
    env = OtherFamilies(NEVER_MET, levels=1)
    return env, [Task(id=task.id, info=task.info) for task in env.tasks_of_seeds("eval", range(TASKS // 2))]


def bars() -> Iterator[Bar]:
    """Each family before and after, families with an interval above 0, harder and other ones, and the cost."""
    env, harder = BriefLife(evaluated=TASKS), BriefLife(level=2, evaluated=TASKS // 2)
    runs, walls = [], []
    for seed in SEEDS:
        with TemporaryDirectory() as folder:
            course = replace(LIFE, seed=seed)
            run = Run.begin(Path(folder) / "run", course)
            walls.append(float(run_training(course, run, logger=NullLogger())["wall_s"]))
            run.store.close()
            start, end = (run.path / "checkpoints" / name for name in ("start", "rl"))
            own, level2, other = [*env.tasks("eval")], [*harder.tasks("eval")], others()
            runs.append([
                *(by_family(one, env, own) for one in (start, end)),
                *(by_family(one, harder, level2) for one in (start, end)),
                *(by_family(one, *other) for one in (start, end)),
            ])  # fmt: skip
    yield from judge(runs, walls)


def judge(runs: list[list[dict[str, float]]], walls: list[float]) -> Iterator[Bar]:
    """The bars of three seeds' figures: before and after for families, level 2 and families never met."""
    gains = {
        family: interval([after[family] - before[family] for before, after, *_ in runs]) for family in BRIEF_FAMILIES
    }
    rows = "; ".join(
        f"{family} {fmean(run[0][family] for run in runs):.2f} to {fmean(run[1][family] for run in runs):.2f} "
        f"({mean - half:+.2f} to {mean + half:+.2f})"
        for family, (mean, half) in gains.items()
    )
    learnt = sum(mean - half > 0 for mean, half in gains.values())
    what = "a life in few words, 0.15M parameters"
    name = f"{what}: families learnt by RL, interval above 0"
    yield Bar(name=name, figure=learnt, bar=5, aim=6, better="higher", note=f"of {len(gains)}, mean of 3 seeds: {rows}")
    worst = min(fmean(run[1].values()) for run in runs)
    yield Bar(name=f"{what}: success on all of them, worst seed", figure=worst, bar=0.6, aim=0.8, better="higher")
    for at, name in ((2, "the same families at level 2"), (4, f"families never met ({', '.join(NEVER_MET)})")):
        before, after = ([fmean(run[at + later].values()) for run in runs] for later in (0, 1))
        mean, half = interval([b - a for a, b in zip(before, after, strict=True)])
        ends = f"{mean - half:+.2f} to {mean + half:+.2f}"
        note = f"no bar: transfer, {fmean(before):.2f} to {fmean(after):.2f}, interval {ends}"
        yield Bar(name=f"{what}: gained in {name}", figure=mean, bar=-1, aim=0, better="higher", note=note)
    yield Bar(name=f"{what}: wall time of a run", figure=max(walls), bar=900, aim=400, unit="s")
