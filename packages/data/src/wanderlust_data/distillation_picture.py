"""Quality against cost of teacher and student, as a picture."""

from __future__ import annotations

from pathlib import Path

from wanderlust.evals.charts import chart
from wanderlust_data.distillation_report import Distillation

COLORS = ("#d9480f", "#868e96", "#0b7285")


def draw_distillation(report: Distillation, path: Path) -> None:
    """Write a PNG: reward with its interval against dollars per 1,000 tasks, or against latency where a price lacks."""
    with chart(path, size=(6, 3.6)) as (axes,):
        priced = all(side.dollars for side in report.sides)
        for side, color in zip(report.sides, COLORS, strict=True):
            at, reward = side.dollars if priced else side.latency, side.reward
            if not at or reward is None:
                continue
            low, high = (reward.value if end is None else end for end in (reward.low, reward.high))
            axes.plot([at, at], [low, high], color=color, linewidth=1.4)
            axes.plot([at], [reward.value], color=color, marker="o", label=side.name)
        xlabel = "dollars per 1,000 tasks" if priced else "seconds of a task played alone"
        axes.set(xscale="log", xlabel=xlabel, ylabel="reward", title=f"{report.tasks} held-out tasks")
        axes.margins(x=0.2)
