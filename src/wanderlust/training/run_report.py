"""What a finished training run leaves to read: `report.md`, the pictures, and last `report.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import cycle
from math import fsum
from pathlib import Path
from typing import Any

from wanderlust.errors import UsageError
from wanderlust.evals.charts import COLORS, GREY, chart, count_steps, draw_line
from wanderlust.evals.comparison import compare_rewards
from wanderlust.rubrics.label_free import TRUTH_METRIC
from wanderlust.rubrics.monitors import RECENT_STEPS
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import REPORT_FILE
from wanderlust.training.checkpoint import point_metrics
from wanderlust.training.reward_hacking import WARNING_EVENT

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
        truths = [figure_text(row["truths"].get(name)) for name in result.get("truths", ())]
        figures = (figure_text(row["reward"]), *truths, str(row["failed"] or ""))
        match = f"{row['match']}: " if row.get("match") else ""
        rows.append((f"{match}{POLICY_NAMES[row['policy']]}{step}", *figures))
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
    against = evaluated_text(curve[-1]) if curve else ""
    several = bool(curve) and "opponent" in curve[-1] and metric == "reward"
    lines = [*curve[-1]["rewards"]] if several else [metric]
    seats = " and ".join(lines)
    played = f"training rollouts, sampled{f', mean of {seats}, all learning' if several else ''}"
    with chart(path, size=(8, 4.2)) as (axes,):
        draw_line(axes, rewards if metric == "reward" else (), color=GREY, label=played)
        for name, color in zip(lines, cycle(COLORS), strict=False):
            label = f"{f'{name}: ' if several else ''}eval split, greedy{against}"
            drawn = [(point["step"], point_metrics(point)[name]) for point in curve if name in point_metrics(point)]
            draw_line(axes, drawn, color=color, label=label, marker="o")
        count_steps(axes, xlabel="steps of reinforcement learning")
        axes.set(ylabel=metric)


def evaluated_text(point: Mapping[str, Any]) -> str:
    """What an evaluation was of, as the end of a title: who had the other seats, how often answers were revised."""
    if point.get("revisions"):
        return f", after {point['revisions']} revisions"
    if "opponent" not in point:
        return ""
    return f", {point['opponent']} in the other seats" if point["opponent"] else ", in all seats"


def loss_sentence(before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]) -> str:
    """Whether the loss of held-out rows, by task, fell."""
    if not before:
        return "No rows were held out, so nothing was evaluated."
    try:
        moved = compare_rewards(before, after)
    except UsageError:
        return ""
    size = moved.difference
    interval = "" if size.low is None or size.high is None else f" [{size.low:+.3f}, {size.high:+.3f}]"
    what = "No difference shown" if not moved.clear else f"Held-out loss {'fell' if size.value < 0 else 'rose'}"
    rows = sum(map(len, before.values()))
    return f"{what}: {size.value:+.3f}{interval} by {rows} held-out rows ({size.clusters} tasks or prompts)."


def write_loss_report(folder: Path, report: Mapping[str, Any], *, losses: Sequence[tuple[int, float]]) -> None:
    """The same of offline training; `losses` are those of the updates."""
    points = [(point["step"], point["metrics"]["loss"]["value"]) for point in report["curve"]]
    with chart(folder / CURVE_FILE, size=(8, 4.2)) as (axes,):
        draw_line(axes, losses, color=GREY, label="updates")
        draw_line(axes, points, color=COLORS[0], label="held-out rows", marker="o")
        count_steps(axes, xlabel="updates")
        axes.set(ylabel="loss")
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


OVEROPTIMISATION_FILE = "overoptimisation.png"
TURNING_POINT = "turning-point"
"""The monitor that flags the turn."""


def overoptimisation(store: RunReader, *, kl_weight: float = 0.0) -> dict[str, Any]:
    """Reward and truth of each step, and where the truth turned; empty for a run without a held-out truth.

    Figures are those of training rollouts. `start`, `best` and `end` are means of RECENT_STEPS steps; the best of many
    such means is a little above what those weights are worth. With `kl_weight`, that of the run's KL term, points have
    the KL divergence per token to the model that RL starts from.
    """
    truth = dict(store.metrics("rl", f"metric/{TRUTH_METRIC}"))
    reward, kl = dict(store.metrics("rl", "reward")), dict(store.metrics("rl", "kl") if kl_weight else ())
    weight = dict(store.metrics("rl", "kl_weight"))
    points = [
        {"step": step, "reward": reward[step], "truth": truth[step]}
        | ({"kl": kl[step] / (weight.get(step) or kl_weight)} if step in kl else {})
        for step in sorted(truth.keys() & reward.keys())
    ]
    if len(points) < 2 * RECENT_STEPS:
        return {}
    means = [
        fsum(one["truth"] for one in points[at : at + RECENT_STEPS]) / RECENT_STEPS
        for at in range(len(points) - RECENT_STEPS + 1)
    ]
    best = max(range(len(means)), key=means.__getitem__)
    warnings = [event.body for event in store.events() if event.kind == WARNING_EVENT]
    alerts = [warning["step"] for warning in warnings if warning["monitor"] == TURNING_POINT]
    body = {
        "points": points,
        "start": means[0],
        "best": means[best],
        "best_step": points[best + RECENT_STEPS // 2]["step"],
        "end": means[-1],
        "flagged_step": min(alerts, default=None),
    }
    return {**body, "sentence": _sentence(body)}


def _sentence(body: Mapping[str, Any]) -> str:
    """What became of the truth, in one sentence."""
    flagged, best = body["flagged_step"], body["best_step"]
    what = (
        "" if flagged is None else f"; its turn was flagged at step {flagged}: the weights near step {best} are better"
    )
    return (
        f"The held-out truth of training rollouts began at {body['start']:.3f}, was best near step {best} "
        f"({body['best']:.3f}) and ended at {body['end']:.3f}{what}."
    )


def draw_overoptimisation(path: Path, body: Mapping[str, Any]) -> None:
    """Reward and truth over the steps and, where it is known, over the KL divergence; the flag is a line."""
    points: Sequence[Mapping[str, float]] = body["points"]
    axis_names = ["step", *(["kl"] if all("kl" in point for point in points) else [])]
    with chart(path, size=(8 if len(axis_names) > 1 else 6, 3.6), panels=len(axis_names)) as panels:
        for axes, along in zip(panels, axis_names, strict=True):
            marks = {"marker": ".", "linestyle": "none"} if along == "kl" else {}
            for name, label, color in (("reward", "reward", GREY), ("truth", "held-out truth", COLORS[0])):
                draw_line(axes, [(point[along], point[name]) for point in points], color=color, label=label, **marks)
            axes.set(xlabel="KL divergence per token")
        count_steps(panels[0], xlabel="steps of reinforcement learning")
        if body["flagged_step"] is not None:
            panels[0].axvline(body["flagged_step"], color="#c92a2a", linewidth=1, linestyle=":", label="turn flagged")
