"""Charts as PNG files, all in one look (needs the extra `train`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from wanderlust.evals.statistics import Estimate

COLORS = ("#0b7285", "#d9480f", "#5f3dc4", "#2b8a3e", "#495057")
GREY = "#adb5bd"
"""Of what stands in the background."""


@contextmanager
def chart(
    path: Path, *, size: tuple[float, float], panels: int = 1, rows: int = 1, dpi: int = 110, **options: Any
) -> Iterator[list[Any]]:
    """The axes of a picture, row by row, to draw into; afterwards it is written as a PNG of `size` inches.

    Every panel gets a grid, and a legend where something in it has a label. `options` are those of matplotlib's
    `subplots`.
    """
    figure = Figure(figsize=size, dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    axes = [*figure.subplots(rows, panels // rows, squeeze=False, **options).flat]
    yield axes
    for one in axes:
        one.grid(alpha=0.25)
        one.spines[["top", "right"]].set_visible(False)
        if one.get_legend() is None and one.get_legend_handles_labels()[1]:
            one.legend(fontsize=8, frameon=False)
    figure.savefig(path)


def draw_line(
    axes: Any, points: Iterable[tuple[Any, float]], *, color: str, label: str, marker: str = "", linestyle: str = "-"
) -> None:
    """A line through points in their order, or the points alone; nothing where there are none."""
    if points := list(points):
        style = {"marker": marker, "markersize": 3, "linestyle": linestyle, "linewidth": 1}
        axes.plot(*zip(*points, strict=True), color=color, label=label, **style)


def draw_estimates(axes: Any, points: Iterable[tuple[float, Estimate]], *, color: str, label: str) -> None:
    """A line through estimates, with a band of their intervals where these are known."""
    points = sorted(points, key=lambda point: point[0])
    if not points:
        return
    ats, values = [at for at, _ in points], [one.value for _, one in points]
    axes.plot(ats, values, color=color, marker="o", markersize=3, label=label)
    known = [(at, one.low, one.high) for at, one in points if one.low is not None]
    if len(known) > 1:
        axes.fill_between(*zip(*known, strict=True), color=color, alpha=0.12, linewidth=0)


def count_steps(axes: Any, *, xlabel: str) -> None:
    """Whole numbers along the horizontal axis."""
    axes.set(xlabel=xlabel)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
