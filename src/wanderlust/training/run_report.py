"""What a finished training run leaves to read: `report.md`, the picture `curve.png`, and last `report.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from wanderlust.store.run_folder import REPORT_FILE
from wanderlust.training.checkpoint import point_metrics

PAGE_FILE, CURVE_FILE = "report.md", "curve.png"
POLICY_NAMES = {
    "before": "before training",
    "after": "after training",
    "best": "best greedy evaluation",
    "teacher": "teacher (scripted)",
    "random": "random player",
}


def result_rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The sampled evaluation for people: policy, figure with its interval, those of held-out parts, failed rollouts."""
    rows = []
    for row in result.get("rows", ()):
        step = f", step {row['step']}" if row["step"] else ""
        truths = [figure_text(row["truths"][name]) for name in result.get("truths", ())]
        figures = (figure_text(row["reward"]), *truths, str(row["failed"] or ""))
        rows.append((f"{POLICY_NAMES[row['policy']]}{step}", *figures))
    return rows


def result_header(result: Mapping[str, Any]) -> list[str]:
    """Names of the columns of `result_rows`."""
    return ["policy", result["metric"], *(f"{name} (held out)" for name in result.get("truths", ())), "failed rollouts"]


def describe_result(result: Mapping[str, Any]) -> str:
    """How the sampled evaluation was made."""
    tasks, samples = result["tasks"], result["samples"]
    return f"{tasks} held-out tasks, {samples} samples each, temperature {result['temperature']:g}"


def figure_text(figure: Mapping[str, Any] | None) -> str:
    """An estimate with its interval; empty for none."""
    if figure is None:
        return ""
    if figure["low"] is None:
        return f"{figure['value']:.3f}"
    return f"{figure['value']:.3f} [{figure['low']:.3f}, {figure['high']:.3f}]"


def policy_sentence(report: Mapping[str, Any]) -> str:
    """Which checkpoint `--policy RUN` takes, and why."""
    name, kind = report["policy_checkpoint"], report.get("result", {}).get("policy", "after")
    best = (report.get("best") or {}).get("step")
    if "service_weights" in report:
        return (
            f"The service keeps the weights at {report['service_weights']} and does not hand them out: sample them "
            "there, with its client or its API for completions."
        )
    said = f"--policy RUN takes checkpoints/{name}"
    if kind == "after":
        noted = f"; the best greedy evaluation was at step {best}" if best is not None else ""
        return f"{said}, the last weights{noted}."
    what = "the model before training" if kind == "before" else f"the best greedy evaluation's, of step {best}"
    return f"{said}, {what}: the last weights, which are in checkpoints/rl, are clearly worse."


def write_run_report(
    folder: Path, report: Mapping[str, Any], *, title: str, rewards: Sequence[tuple[int, float]]
) -> None:
    """Write the page, the picture and the JSON, which marks the run as finished; `rewards` are those of the steps."""
    metric = report.get("result", {}).get("metric", "reward")
    draw_curve(folder / CURVE_FILE, report["curve"], metric=metric, rewards=rewards)
    (folder / PAGE_FILE).write_text(report_page(report, title=title))
    (folder / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n")


def report_page(report: Mapping[str, Any], *, title: str) -> str:
    """The run as Markdown: the verdict, the sampled evaluation, the learning curve, advice."""
    result, lines = report.get("result", {}), [f"# {title}, seed {report['seed']}", ""]
    if result:
        lines += [result["sentence"], "", f"Sampled, {describe_result(result)}; {result['seconds']:.0f} s.", ""]
        header = result_header(result)
        lines += ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *result_rows(result))]
    else:
        lines.append("Nothing was evaluated by sampling: there is no eval split, or result_samples is 0.")
    lines += ["", report["policy_sentence"], "", f"![learning curve]({CURVE_FILE})", ""]
    if "overoptimisation" in report:
        lines += [report["overoptimisation"]["sentence"], "", "![reward and truth](overoptimisation.png)", ""]
    lines += [f"- {line}" for line in report["advice"]]
    if result.get("warnings"):
        lines += ["", "Warnings of the monitors:", "", *(f"- {line}" for line in result["warnings"])]
    lines += ["", f"{report['wall_s']:.0f} seconds of wall time. Last weights: `{report['checkpoint']}`.", ""]
    return "\n".join(lines)


def draw_curve(
    path: Path, curve: Sequence[Mapping[str, Any]], *, metric: str, rewards: Sequence[tuple[int, float]]
) -> None:
    """Greedy evaluations with their intervals over the steps, and the training reward behind them."""
    figure = Figure(figsize=(8, 4.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    if rewards and metric == "reward":
        steps, values = zip(*rewards, strict=True)
        axes.plot(steps, values, color="#adb5bd", linewidth=1, label="training rollouts, sampled")
    points = [(point["step"], point_metrics(point)[metric]) for point in curve if metric in point_metrics(point)]
    if points:
        steps, values = zip(*points, strict=True)
        axes.plot(steps, values, color="#0b7285", marker="o", markersize=3, label="eval split, greedy")
    _finish_curve(figure, axes, path, xlabel="steps of reinforcement learning", ylabel=metric)


def write_loss_report(folder: Path, report: Mapping[str, Any], *, losses: Sequence[tuple[int, float]]) -> None:
    """The same of offline training; `losses` are those of the updates."""
    figure = Figure(figsize=(8, 4.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    if losses:
        axes.plot(*zip(*losses, strict=True), color="#adb5bd", linewidth=1, label="updates")
    points = [(point["step"], point["metrics"]["loss"]["value"]) for point in report["curve"]]
    if points:
        axes.plot(*zip(*points, strict=True), color="#0b7285", marker="o", markersize=3, label="held-out rows")
    _finish_curve(figure, axes, folder / CURVE_FILE, xlabel="updates", ylabel="loss")
    rows, lines = report["rows"], [f"# Offline training ({report['method']}), seed {report['seed']}", ""]
    lines += [report["verdict"], ""]
    if report["curve"]:
        ends = (report["curve"][0], report["curve"][-1])
        lines += [f"| held-out rows | before | after {report['updates']} updates |", "|---|---|---|"]
        for name in ends[1]["metrics"]:
            lines.append(f"| {name} | {' | '.join(figure_text(point['metrics'][name]) for point in ends)} |")
        lines.append("")
    reasons = [(name.replace("_", " "), count) for name, count in rows.items() if name not in ("trained", "held_out")]
    left_out = "".join(f", {count} left out as {name}" for name, count in reasons if count)
    lines += [
        f"{rows['trained']} rows trained on, {rows['held_out']} held out{left_out}; {report['tokens']} tokens read."
    ]
    lines += ["", f"--policy RUN takes checkpoints/{report['policy_checkpoint']}.", "", f"![losses]({CURVE_FILE})", ""]
    lines += [f"{report['wall_s']:.0f} seconds of wall time. Last weights: `{report['checkpoint']}`.", ""]
    (folder / PAGE_FILE).write_text("\n".join(lines))
    (folder / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n")


def _finish_curve(figure: Figure, axes: Any, path: Path, *, xlabel: str, ylabel: str) -> None:
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if axes.lines:
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(path)
