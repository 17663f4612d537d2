"""The curves of test-time scaling: points with their intervals, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wanderlust._lazy import needs_extra
from wanderlust.evals.statistics import Estimate
from wanderlust.runner.terminal import Table

PICTURE_FILE = "scaling.png"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPoint:
    """One point of a curve."""

    strategy: str
    """`pass`, `best of n by NAME`, `majority`, `revision`, or the name of an estimator."""
    k: int
    """Samples, or answers one after the other."""
    reward: Estimate
    over_one: Estimate
    """The difference from one sample, paired by task."""
    tokens: float
    """Completion tokens per task, on average."""
    cost: float
    """Dollars per task; 0 without prices."""
    difficulty: str = ""
    """Empty for all tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingReport:
    """All curves of one policy in one environment."""

    env: str
    policy: str
    tasks: int
    """Tasks whose samples were all scored: those that the curves are of."""
    left_out: int
    """Tasks with failed rollouts, or without a verdict of the judge on one."""
    revision_left_out: int
    """Tasks that are left out of the curve of revisions alone, because one of those failed."""
    samples: int
    points: tuple[ScalingPoint, ...]
    estimates_left_out: Mapping[str, int] = field(default_factory=dict)
    """By estimator, the tasks that are left out of its curve alone, because an estimate failed."""
    first_failure: str = ""
    """Of the estimates."""

    def curve(self, strategy: str, difficulty: str = "") -> list[ScalingPoint]:
        """The points of one curve, by k."""
        return [one for one in self.points if (one.strategy, one.difficulty) == (strategy, difficulty)]

    @property
    def strategies(self) -> list[str]:
        """The names of the curves, in order."""
        return [*dict.fromkeys(one.strategy for one in self.points)]

    def table(self) -> Table:
        """For the terminal."""
        title = f"{self.policy} in {self.env}, {self.tasks} tasks, {self.samples} samples each"
        table = Table(title=title)
        for name in ("tasks", "strategy", "k", "reward", "over one sample", "tokens", "cost"):
            table.add_column(name, justify="left" if name in ("tasks", "strategy") else "right", no_wrap=name == "k")
        before, most = ("", ""), {(one.difficulty, one.strategy): one.k for one in self.points}
        shown_points = [one for one in self.points if not one.difficulty or one.k == most[one.difficulty, one.strategy]]
        for point in shown_points:
            shown = (point.difficulty or "all", point.strategy)
            names = [new if (new, shown[0]) != (old, before[0]) else "" for new, old in zip(shown, before, strict=True)]
            cost = f"${point.cost:.4f}" if point.cost else ""
            over = "" if point.k == 1 else str(point.over_one)
            table.add_row(*names, str(point.k), str(point.reward), over, f"{point.tokens:.0f}", cost)
            before = shown
        return table

    def draw(self, path: Path) -> None:
        """Write the curves as a PNG: all tasks at the left, then one panel per difficulty (needs the extra `train`)."""
        with needs_extra("train"):
            from matplotlib.ticker import LogFormatter

            from wanderlust.evals.charts import COLORS, chart, draw_estimates
        difficulties = [*dict.fromkeys(point.difficulty for point in self.points)]
        counted = all(point.tokens > 0 for point in self.points)
        colors = dict(zip(self.strategies, COLORS * len(self.strategies), strict=False))
        with chart(path, size=(4.2 * len(difficulties), 4), panels=len(difficulties), sharey=True) as panels:
            for axes, difficulty in zip(panels, difficulties, strict=True):
                for name in self.strategies:
                    points = [(one.tokens if counted else one.k, one.reward) for one in self.curve(name, difficulty)]
                    draw_estimates(axes, points, color=colors[name], label=name)
                xlabel = "completion tokens per task" if counted else "samples"
                axes.set(xscale="log", xlabel=xlabel, title=difficulty or f"{self.tasks} tasks")
                for labels in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
                    labels(LogFormatter(minor_thresholds=(2, 0.5)))
            panels[0].set_ylabel("reward")
