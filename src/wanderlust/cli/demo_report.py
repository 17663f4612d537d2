"""The demo's report on a finished training run: a table, a picture, a page, a JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from wanderlust.environments.tictactoe import FIXED_OPPONENTS, lint_opponent, mixed_opponent
from wanderlust.errors import StoreError
from wanderlust.evals.charts import chart, count_steps, draw_line
from wanderlust.evals.statistics import wilson
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.runner.engine import run_blocking
from wanderlust.runner.terminal import Table
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import CHECKPOINTS_FOLDER, REPORT_FILE, STATE_FILE, STORE_FILE
from wanderlust.training.checkpoint import START_CHECKPOINT, load_config, load_state
from wanderlust.training.config import TrainConfig
from wanderlust.training.result import RESULT_STAGE
from wanderlust.training.tiny_model import fresh_model
from wanderlust.training.warmup import fresh_shape
from wanderlust.types import Rollout

DEMO_REPORT, DEMO_PAGE, DEMO_CURVE = "demo.json", "demo.md", "demo.png"
"""Files in the run's folder, beside those of every training run."""
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
    """Exact figures during training: step and rows."""
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
                f"![learning curve]({DEMO_CURVE})",
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


def stored_report(folder: Path) -> DemoReport | None:
    """The report as it was written, by an earlier version in the run's own file; None where there is none yet."""
    file = next((folder / name for name in (DEMO_REPORT, REPORT_FILE) if (folder / name).is_file()), folder)
    try:
        body = json.loads(file.read_text())
        if file.name == REPORT_FILE and "rows" not in body:
            return None
        return DemoReport(**{name: body[name] for name in DemoReport.__dataclass_fields__})
    except KeyError as error:
        raise StoreError(f"{file}: there is no {error} in it") from error
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"cannot read {file}: {error}") from error


def write_report(folder: Path) -> DemoReport:
    """Write the report on the finished run in the folder; returns what was written."""
    config: TrainConfig = load_config(folder, TrainConfig)
    body = json.loads((folder / REPORT_FILE).read_text())
    points = [{"step": point["step"], "rows": point["exact"]} for point in body["curve"]]
    env, rows = config.make_env(), {"sft": points[0]["rows"], "rl": points[-1]["rows"]}
    for name, policy in (("teacher", env.players["teacher"]()), ("untrained", _untrained(folder, config))):
        rows[name] = run_blocking(partial(env.exact, policy, name=name))
    with RunReader(folder / STORE_FILE) as store:
        played = [r for group in store.groups(RESULT_STAGE, points[-1]["step"]) for r in group.rollouts]
    report = DemoReport(
        seed=config.seed,
        wall_s=body["wall_s"],
        checkpoint=body["checkpoint"],
        rows=tuple({**row, "policy": name} for name in POLICY_LABELS for row in rows[name]),
        curve=tuple(points),
        sampled=tuple(sampled_row("rl", name, played) for name in FIXED_OPPONENTS),
        findings=tuple(lint_findings(load_state(folder / STATE_FILE)["source"]["boards"])),
    )
    draw_curve(report.curve, folder / DEMO_CURVE)
    (folder / DEMO_PAGE).write_text(report.markdown())
    (folder / DEMO_REPORT).write_text(json.dumps(report.as_dict(), indent=2) + "\n")
    return report


def _untrained(folder: Path, config: TrainConfig) -> LocalPolicy:
    """The model as it was before SFT, whose most likely answers are taken."""
    _, tokenizer = load_pretrained(folder / CHECKPOINTS_FOLDER / START_CHECKPOINT)
    model = fresh_model(tokenizer, fresh_shape(config), seed=config.seed)
    return LocalPolicy.of(model, tokenizer, config.sampling, seed=config.seed).greedy()


def lint_findings(boards: Sequence[str]) -> list[str]:
    """Findings of the opponent lint on the opponents of training and on the positions that training saw."""
    opponents = (mixed_opponent(0.5), *FIXED_OPPONENTS.values())
    return list(dict.fromkeys(line for one in opponents for line in lint_opponent(one, boards_seen=boards)))


def sampled_row(policy: str, opponent: str, rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """Shares of sampled games against one opponent, with 95% intervals."""
    states = [r.state for r in rollouts if r.error is None and r.state["opponent"] == opponent]
    row: dict[str, Any] = {"policy": policy, "opponent": opponent, "episodes": len(states), "exact": False}
    for share, hits in (
        ("win", [state["winner"] == "X" for state in states]),
        ("draw", [state["winner"] == "draw" for state in states]),
        ("loss", [state["winner"] not in ("X", "draw") for state in states]),
        ("invalid", [state["invalid"] > 0 for state in states]),
    ):
        value = sum(hits) / max(len(hits), 1)
        row[share], (row[f"{share}_low"], row[f"{share}_high"]) = value, wilson(value, len(hits))
    return row


def draw_curve(curve: Sequence[Mapping[str, Any]], path: Path) -> None:
    """The learning curve as a picture: shares against the random and the optimal opponent, by training step."""
    with chart(path, size=(8, 4.2), dpi=130) as (axes,):
        for opponent, share, color, label in (
            ("optimal", "draw", "#0b7285", "draws against perfect play"),
            ("random", "win", "#e8590c", "wins against random moves"),
            ("greedy", "loss", "#868e96", "losses against an opponent never met"),
            ("random", "invalid", "#c2255c", "games with an invalid move (random)"),
        ):
            rows = [next(row for row in point["rows"] if row["opponent"] == opponent) for point in curve]
            points = [(point["step"], 100 * float(row[share])) for point, row in zip(curve, rows, strict=True)]
            draw_line(axes, points, color=color, label=label, marker="o")
        for height, color, label in ((76, "#0b7285", "teacher's\ndraws"), (95.6, "#e8590c", "ceiling\nof wins")):
            axes.axhline(height, color=color, linestyle=":", linewidth=1)
            edge = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "xytext": (4, 0)}
            axes.annotate(label, (1, height), va="center", fontsize=8, color=color, annotation_clip=False, **edge)
        axes.set(ylabel="% of games, exact", ylim=(-2, 104))
        count_steps(axes, xlabel="steps of reinforcement learning (0 = after SFT)")


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
