"""Report of the demo: a table, a picture, a page, a JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from wanderlust.runner.terminal import Table

POLICY_LABELS = {
    "teacher": "teacher (scripted)",
    "untrained": "untrained model",
    "sft": "after SFT",
    "rl": "after RL",
}
REPORT_OPPONENTS = ("random", "optimal", "greedy")
OUTCOME_NAMES = ("win", "draw", "loss", "invalid", "format")

PUBLISHED_SHARES: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "teacher": {"random": (0.90, 0.09, 0.01, 0.0, 1.0), "optimal": (0.0, 0.76, 0.24, 0.0, 1.0)},
    "untrained": {"random": (0.40, 0.11, 0.49, 0.40, 0.278), "optimal": (0.0, 0.11, 0.89, 0.43, 0.247)},
    "sft": {"random": (0.74, 0.13, 0.13, 0.11, 0.998), "optimal": (0.0, 0.52, 0.48, 0.14, 0.99)},
    "rl": {"random": (0.90, 0.10, 0.0, 0.0, 1.0), "optimal": (0.0, 0.97, 0.03, 0.0, 0.998)},
}
"""The published experiment's rows, 100 games each: gpt-5-mini, LFM2-2.6B, the same after SFT and after two RL runs."""

OPTIMAL_SHARES: Mapping[str, tuple[float, ...]] = {"random": (0.956, 0.044, 0.0), "optimal": (0.0, 1.0, 0.0)}
"""Win, draw, loss of the best policy that never loses, by dynamic programming; X opens half of the games."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The finished demo; shares are from 0 to 1."""

    seed: int
    wall_s: float
    checkpoint: str
    rows: tuple[Mapping[str, Any], ...]
    curve: tuple[Mapping[str, Any], ...]
    """Exact figures during training: step, seconds, rows."""
    sampled: tuple[Mapping[str, Any], ...] = ()
    """Rows of sampled games, with the 95% interval of each share."""
    findings: tuple[str, ...] = ()
    """Findings of the opponent lint."""

    def as_dict(self) -> dict[str, Any]:
        """JSON data."""
        return {
            "wall_s": round(self.wall_s, 1),
            "seed": self.seed,
            "checkpoint": self.checkpoint,
            "rows": [dict(row) for row in self.rows],
            "sampled": [dict(row) for row in self.sampled],
            "curve": [dict(point) for point in self.curve],
            "findings": list(self.findings),
            "published": {
                p: {o: dict(zip(OUTCOME_NAMES, v, strict=True)) for o, v in by.items()}
                for p, by in PUBLISHED_SHARES.items()
            },
            "ceiling": {o: dict(zip(OUTCOME_NAMES, v, strict=False)) for o, v in OPTIMAL_SHARES.items()},
        }

    def table(self) -> Table:
        """For the terminal: exact shares in %, the published row in brackets."""
        table = Table(title="Tic-tac-toe: exact shares of the greedy policy in % [published]", title_justify="left")
        table.add_column("policy")
        table.add_column("against")
        for share in OUTCOME_NAMES:
            table.add_column("invalid moves" if share == "invalid" else share, justify="right")
        for cells in self._lines():
            if cells:
                table.add_row(*cells)
            else:
                table.add_section()
        return table

    def markdown(self) -> str:
        """A page that can be read by itself."""
        head = ["policy", "against", *OUTCOME_NAMES]
        lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        lines += ["| " + " | ".join(cells) + " |" for cells in self._lines() if cells]
        sampled = [f"- {_sampled(row)}" for row in self.sampled]
        return "\n".join(
            [
                f"# Tic-tac-toe, seed {self.seed}",
                "",
                f"{self.wall_s:.0f} seconds of wall time. All shares in % and exact: the greedy policy was asked in "
                "every conversation that it can be led into. In brackets the published experiment (2.6 billion "
                "parameters, 100 sampled games a row). X opens half of the games. The warm-up saw the teacher's "
                "games in all eight views of the board.",
                "",
                *lines,
                "",
                "![learning curve](curve.png)",
                "",
                *(["## Sampled games, temperature as in training", "", *sampled, ""] if sampled else []),
                "## Opponent lint",
                "",
                *(self.findings or ("No warnings: training saw most of what the opponents can produce.",)),
                "",
                f"Checkpoint: `{self.checkpoint}`, a standard Hugging Face folder.",
                "",
            ]
        )

    def _lines(self) -> list[tuple[str, ...]]:
        lines: list[tuple[str, ...]] = []
        for policy, label in POLICY_LABELS.items():
            for opponent in REPORT_OPPONENTS:
                row = next((r for r in self.rows if (r["policy"], r["opponent"]) == (policy, opponent)), None)
                if row is not None:
                    published = PUBLISHED_SHARES[policy].get(opponent, ())
                    lines.append((label, opponent, *_cells([row[share] for share in OUTCOME_NAMES], published)))
            lines.append(())
        best = [("ceiling (never loses)", o, *_cells(v, ()), "", "") for o, v in OPTIMAL_SHARES.items()]
        return [*lines, *best]


def write_report(folder: Path, facts: Mapping[str, Any], *, seed: int) -> DemoReport:
    """Write report.json, report.md and curve.png into the run's folder; returns what was written."""
    report = DemoReport(
        seed=seed,
        wall_s=facts["seconds"],
        checkpoint=str(folder / "checkpoints" / "rl"),
        rows=tuple(facts["rows"]),
        curve=tuple(facts["curve"]),
        sampled=tuple(facts["sampled"]),
        findings=tuple(facts["warnings"]),
    )
    draw_curve(report.curve, folder / "curve.png")
    (folder / "report.md").write_text(report.markdown())
    (folder / "report.json").write_text(json.dumps(report.as_dict(), indent=2) + "\n")
    return report


def draw_curve(curve: Sequence[Mapping[str, Any]], path: Path) -> None:
    """The learning curve as a picture: shares against the random and the optimal opponent, by training step."""
    figure = Figure(figsize=(8, 4.2), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    steps = [point["step"] for point in curve]
    for opponent, share, colour, label in (
        ("optimal", "draw", "#0b7285", "draws against perfect play"),
        ("random", "win", "#e8590c", "wins against random moves"),
        ("greedy", "loss", "#868e96", "losses against an opponent never met"),
        ("random", "invalid", "#c2255c", "games with an invalid move (random)"),
    ):
        values = [
            100 * float(next(row[share] for row in point["rows"] if row["opponent"] == opponent)) for point in curve
        ]
        axes.plot(steps, values, color=colour, label=label, marker="o", markersize=3, linewidth=1.8)
    for height, colour, label in ((76, "#0b7285", "teacher's\ndraws"), (95.6, "#e8590c", "ceiling\nof wins")):
        axes.axhline(height, color=colour, linestyle=":", linewidth=1)
        edge: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "xytext": (4, 0)}
        axes.annotate(label, (1, height), va="center", fontsize=8, color=colour, annotation_clip=False, **edge)
    axes.set(xlabel="steps of reinforcement learning (0 = after SFT)", ylabel="% of games, exact", ylim=(-2, 104))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(fontsize=8, loc="outside upper center", ncols=2, frameon=False)
    figure.savefig(path)


def _cells(values: Sequence[float], published: Sequence[float]) -> list[str]:
    references = [f" [{100 * v:.0f}]" for v in published] or [""] * len(values)
    return [f"{100 * value:.1f}{note}" for value, note in zip(values, references, strict=True)]


def _sampled(row: Mapping[str, Any]) -> str:
    shares = ", ".join(
        f"{share} {100 * row[share]:.1f} ({100 * row[f'{share}_low']:.1f} to {100 * row[f'{share}_high']:.1f})"
        for share in ("win", "draw", "loss", "invalid")
    )
    label = POLICY_LABELS.get(row["policy"], row["policy"])
    return f"{label} against {row['opponent']}, {row['episodes']} episodes: {shares}"
