"""Traits of reasoning as a picture of four panels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from wanderlust.evals.scaling_picture import COLORS
from wanderlust.evals.traits import TokenPoint, TraitsReport


def draw_traits(report: TraitsReport, path: Path) -> None:
    """Write accuracy against tokens, tokens against difficulty, parallel against serial, and confidence, as a PNG."""
    figure = Figure(figsize=(9.6, 7.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    lengths, difficulty, parallel, confidence = figure.subplots(2, 2).flat
    _curve(lengths, report.by_tokens, color=COLORS[0], label="samples by length")
    _curve(lengths, report.by_share, color=COLORS[1], label=f"thinking cut ({report.cut_by})")
    lengths.set(title="accuracy against tokens", xlabel="completion tokens", ylabel="accuracy")
    difficulty.scatter(*zip(*report.difficulty_points, strict=True), s=9, color=COLORS[0], alpha=0.5) if (
        report.difficulty_points
    ) else None
    told = "" if report.difficulty is None else f", rank correlation {report.difficulty.value:.2f}"
    difficulty.set(title=f"tokens against difficulty{told}", xlabel="failure rate of the task", ylabel="tokens")
    _curve(parallel, [one.parallel for one in report.parallel], color=COLORS[2], label="parallel: majority of k short")
    _curve(parallel, [one.serial for one in report.parallel], color=COLORS[3], label="serial: one in full")
    for one in report.parallel:
        parallel.annotate(f"k={one.k}", (one.parallel.tokens, one.parallel.accuracy.value))
    parallel.set(title="parallel against serial", xlabel="completion tokens per task", ylabel="accuracy")
    confidence.plot([0, 1], [0, 1], color=COLORS[4], linewidth=0.8, linestyle="--")
    if report.confidence.bins:
        stated, right, counts = zip(*report.confidence.bins, strict=True)
        most = max(counts)
        confidence.scatter(stated, right, s=[12 + 100 * count / most for count in counts], color=COLORS[0])
    confidence.set(
        title="stated confidence" if report.confidence.bins else "no confidence was stated",
        xlabel="confidence",
        ylabel="accuracy",
    )
    for axes in figure.axes:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize=8, frameon=False)
    figure.savefig(path)


def _curve(axes: Any, points: Sequence[TokenPoint], *, color: str, label: str) -> None:
    """Points with their intervals."""
    points = sorted(points, key=lambda one: one.tokens)
    if not points:
        return
    at = [one.tokens for one in points]
    axes.plot(at, [one.accuracy.value for one in points], color=color, marker="o", markersize=3, label=label)
    known = [(t, one.accuracy.low, one.accuracy.high) for t, one in zip(at, points, strict=True)]
    known = [(t, low, high) for t, low, high in known if low is not None]
    if len(known) > 1:
        axes.fill_between(*zip(*known, strict=True), color=color, alpha=0.12, linewidth=0)
