"""Repairs of small functions that a small model never saw: how many pass all tests, before and after reinforcement.

It imitates a programmer who looks at one failing test; the reward is the tests alone. The bars are about held-out
functions, one answer each at temperature 1. Then test-time scaling of the first seed's model before reinforcement: the
shown tests choose among its answers. The picture of that is docs/images/scaling.png.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import gained, learnt, reward, sampled, told, walls

from wanderlust.evals.scaling import scale
from wanderlust.evals.scaling_report import ScalingReport
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust_proofs.presets import REPAIRS
from wanderlust_proofs.repairs import Repairs

TASKS, SCALED_TASKS, SAMPLES = 400, 200, 16
PICTURE = Path(__file__).parents[3] / "docs/images/scaling.png"


def scaling(checkpoint: Path) -> ScalingReport:
    """Curves of a checkpoint at temperature 1."""
    policy = LocalPolicy.of(*load_pretrained(checkpoint), SamplingOptions(max_tokens=REPAIRS.max_tokens), seed=1)
    return asyncio.run(scale(Repairs(), policy, n=SCALED_TASKS, samples=SAMPLES, progress=False))


def bars() -> Iterator[Bar]:
    """Repairs gained by reinforcement, the longest run, and what choosing by the shown tests gains."""
    env, curves = Repairs(eval_size=TASKS), list[ScalingReport]()
    tasks = env.tasks("eval")

    def figure(checkpoint: Path) -> float:
        if not curves:
            curves.append(scaling(checkpoint))
        return fmean(map(reward, sampled(checkpoint, env, tasks, max_tokens=REPAIRS.max_tokens)))

    runs = learnt(REPAIRS, figure)
    what = f"repairs, {len(tasks)} of held-out functions"
    worst = min(run.after for run in runs)
    yield Bar(name=f"{what}: pass, worst seed", figure=worst, bar=0.8, aim=0.95, better="higher", note=told(runs))
    yield from gained(what, runs, bar=0.15, aim=0.3)
    yield from walls(f"{what}: wall time of a run", runs, bar=900, aim=300)
    (report,) = curves
    report.draw(PICTURE)
    best = report.curve("best of n by tests_passed/shown")[-1]
    note = f"{best.reward} against {report.curve('pass')[0].reward}; pass@{best.k} {report.curve('pass')[-1].reward}"
    low = best.over_one.low
    yield Bar(
        name=f"best of {best.k} by shown tests over one answer: lower end of the interval",
        figure=low,
        bar=0.01,
        aim=0.1,
        better="higher",
        note=f"{note}; gain {best.over_one}; {SCALED_TASKS} tasks",
    )
