"""The curves of test-time scaling as a picture: reward against completion tokens, or samples where none are counted."""

from __future__ import annotations

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from wanderlust.evals.scaling import ScalingReport

COLORS = ("#0b7285", "#d9480f", "#5f3dc4", "#2b8a3e", "#495057")


def draw_scaling(report: ScalingReport, path: Path) -> None:
    """Write the curves as a PNG: all tasks at the left, then one panel per difficulty."""
    difficulties = [*dict.fromkeys(point.difficulty for point in report.points)]
    figure = Figure(figsize=(4.2 * len(difficulties), 4), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    counted = all(point.tokens > 0 for point in report.points)
    colors = dict(zip(report.strategies, COLORS * len(report.strategies), strict=False))
    for axes, difficulty in zip(
        figure.subplots(1, len(difficulties), squeeze=False, sharey=True)[0], difficulties, strict=True
    ):
        for strategy in report.strategies:
            points = report.curve(strategy, difficulty)
            if points:
                spent, rewards = (
                    [one.tokens if counted else one.k for one in points],
                    [one.reward.value for one in points],
                )
                ends = [(one.reward.low, one.reward.high) for one in points]
                axes.plot(spent, rewards, color=colors[strategy], marker="o", markersize=3, label=strategy)
                known = [(at, low, high) for at, (low, high) in zip(spent, ends, strict=True) if low is not None]
                if known:
                    axes.fill_between(*zip(*known, strict=True), color=colors[strategy], alpha=0.12, linewidth=0)
        axes.set(
            xscale="log",
            xlabel="completion tokens per task" if counted else "samples",
            title=difficulty or f"{report.tasks} tasks",
        )
        for labels in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
            labels(LogFormatter(minor_thresholds=(2, 0.5)))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    first = figure.axes[0]
    first.set_ylabel("reward")
    first.legend(fontsize=8, frameon=False)
    figure.savefig(path)
