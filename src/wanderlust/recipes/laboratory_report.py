"""What the laboratory shows in the end: a table, and a picture of what was paid and what it was worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

PAID, TRUTH, GAMED, HEARD = "#e8590c", "#0b7285", "#868e96", "#c2255c"
HEAD = ("", "reward", "truth", "truth, interval", "hacked answers", "first hacked batch", "reward doubled", "monitors")


def rows(body: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """One line a phase: greedy answers on the eval split in the end, and when what was seen in training."""
    for name, found in body["phases"].items():
        end = found["examined"][-1]
        heard = ", ".join(f"{monitor} at {step}" for monitor, step in sorted(found["found"].items(), key=_later))
        yield (
            name,
            f"{end['paid']:.3f}",
            f"{found['examined'][0]['truth']:.3f} to {end['truth']:.3f}",
            f"{end['low']:.3f} to {end['high']:.3f}",
            f"{found['gamed'][0]:.0%} to {found['gamed'][-1]:.0%}",
            _step(found["hacked"]),
            _step(found["doubled"]),
            heard or "silent",
        )


def _later(item: tuple[str, int]) -> int:
    return item[1]


def _step(step: int | None) -> str:
    return "never" if step is None else str(step)


def draw(body: Mapping[str, Any], path: Path) -> None:
    """A panel a phase: reward, truth and share of hacked answers of each training batch, and who spoke when."""
    phases = body["phases"]
    figure = Figure(figsize=(4 * len(phases), 3.6), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(phases), sharey=True, squeeze=False)[0]
    for axes, (name, found) in zip(panels, phases.items(), strict=True):
        for key, colour, label in (("paid", PAID, "reward"), ("truth", TRUTH, "truth"), ("gamed", GAMED, "hacked")):
            axes.plot(found[key], color=colour, label=label, linewidth=1.6, linestyle=":" if key == "gamed" else "-")
        heard: dict[int, list[str]] = {}
        for monitor, step in found["found"].items():
            heard.setdefault(step, []).append(monitor)
        for step, monitors in heard.items():
            axes.axvline(step, color=HEARD, linewidth=0.8, alpha=0.6)
            axes.annotate(", ".join(monitors), (step, 1.0), fontsize=6, rotation=90, va="top", ha="right", color=HEARD)
        axes.set(title=f"{body['lab']}: {name}", xlabel="training step", ylim=(-0.02, 1.04))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(fontsize=8, frameon=False, loc="center left")
    figure.savefig(path)
