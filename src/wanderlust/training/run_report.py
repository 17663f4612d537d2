"""What a finished training run leaves to read: `report.md` with advice, `curve.png`, and last `report.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from wanderlust.errors import UsageError
from wanderlust.evals.comparison import compare_rewards
from wanderlust.store.run_folder import FRESH_POLICY, REPORT_FILE
from wanderlust.training.checkpoint import EvalPoint, best_point, point_metrics
from wanderlust.training.config import TrainConfig
from wanderlust.training.result import AFTER, BEFORE, RANDOM, TEACHER, TaskRewards

PAGE_FILE, CURVE_FILE = "report.md", "curve.png"
POLICY_NAMES = {
    "before": "before training",
    "after": "after training",
    "best": "best greedy evaluation",
    "teacher": "teacher (scripted)",
    "random": "random player",
}


def result_rows(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The sampled evaluation for people: policy, figure with its interval, failed rollouts."""
    rows = []
    for row in result.get("rows", ()):
        step = f", step {row['step']}" if row["step"] else ""
        rows.append((f"{POLICY_NAMES[row['policy']]}{step}", figure_text(row["reward"]), str(row["failed"] or "")))
    return rows


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
    said = f"--policy RUN takes checkpoints/{name}"
    if kind == "after":
        noted = f"; the best greedy evaluation was at step {best}" if best is not None else ""
        return f"{said}, the last weights{noted}."
    what = "the model before training" if kind == "before" else f"the best greedy evaluation's, of step {best}"
    return f"{said}, {what}: it is clearly better than the last weights, which are in checkpoints/rl."


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
        lines += [f"| policy | {result['metric']} | failed rollouts |", "|---|---|---|"]
        lines += ["| " + " | ".join(row) + " |" for row in result_rows(result)]
    else:
        lines.append("Nothing was evaluated by sampling: there is no eval split, or result_samples is 0.")
    lines += ["", policy_sentence(report), "", f"![learning curve]({CURVE_FILE})", ""]
    lines += [f"- {line}" for line in report["advice"]]
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
    axes.set(xlabel="steps of reinforcement learning", ylabel=metric)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if points or rewards:
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(path)


MIN_TEACHER_SHARE = 0.7
"""Share of the teacher's lead over random play (or over 0) below which a warm-up is said to be poor."""
MIN_SIGNAL = 0.1
"""Mean share of groups with a signal below which a run is said to have learnt from almost nothing."""
FRESH_LR = (5e-4, 1e-3)
"""Learning rates that fresh models of the default size were measured to learn well with (docs/benchmarks.md)."""
PLATEAU_POINTS = 4
"""Evaluations from which on a plateau can be seen."""


def advise(
    config: TrainConfig,
    *,
    rewards: Mapping[str, TaskRewards],
    verdict: str,
    signal: Sequence[float],
    points: Sequence[EvalPoint],
) -> list[str]:
    """Lines of advice from what was measured; none where nothing stands out.

    `rewards` are those of the sampled evaluation, by policy; `signal` is the share of groups with different rewards,
    step by step; `points` are the greedy evaluations.
    """
    config = config.with_sft_defaults()
    lines, share = [_warm_up(config, rewards)], fmean(signal[len(signal) // 2 :]) if signal else 1.0
    if share < MIN_SIGNAL:
        lines.append(
            f"Rewards differed in only {share:.0%} of the groups: tasks are too hard or too easy for this model. "
            f"Choose them with --curriculum learnability, raise --group-size (now {config.group_size}), or imitate "
            "examples first with --sft-episodes."
        )
    else:
        lines += [_learning_rate(config, rewards, verdict), _plateau(config, points, verdict)]
    return [line for line in lines if line]


def _warm_up(config: TrainConfig, rewards: Mapping[str, TaskRewards]) -> str:
    """Says that imitation fell far short of the teacher, and that reinforcement did not make up for it."""
    if not config.sft_episodes or not {BEFORE, AFTER, TEACHER} <= rewards.keys():
        return ""
    try:
        short = compare_rewards(rewards[BEFORE], rewards[TEACHER])
    except UsageError:
        return ""
    before, teacher, after = (_mean(rewards[name]) for name in (BEFORE, TEACHER, AFTER))
    floor = _mean(rewards[RANDOM]) if RANDOM in rewards else 0.0
    if not short.clear or teacher <= max(floor, before, after):
        return ""
    share = max(before - floor, 0.0) / (teacher - floor)
    if share >= MIN_TEACHER_SHARE:
        return ""
    above = f", both above random play's {floor:.3f}" if RANDOM in rewards and before > floor else ""
    width = f", or a larger --fresh-width (now {config.fresh_width})" if config.policy == FRESH_POLICY else ""
    return (
        f"The warm-up reached {share:.0%} of its teacher ({before:.3f} of {teacher:.3f}{above}): more --sft-episodes "
        f"(now {config.sft_episodes}) and --sft-steps (now {config.sft_steps}){width}."
    )


def _learning_rate(config: TrainConfig, rewards: Mapping[str, TaskRewards], verdict: str) -> str:
    if verdict == "worse":
        return f"Training made it worse: lower --lr (now {config.lr:g}), or hold it to its start with --kl 0.01."
    below = TEACHER in rewards and AFTER in rewards and _mean(rewards[AFTER]) < _mean(rewards[TEACHER])
    if config.policy == FRESH_POLICY and config.lr < FRESH_LR[0] and (verdict == "none" or below):
        low, high = FRESH_LR
        return f"--lr {config.lr:g} is low for a fresh model: {low:g} to {high:g} learnt faster where it was measured."
    return ""


def _plateau(config: TrainConfig, points: Sequence[EvalPoint], verdict: str) -> str:
    top = best_point(points)
    if top is None or len(points) < PLATEAU_POINTS or verdict == "worse" or top.step > points[-1].step / 2:
        return ""
    return (
        f"No greedy evaluation after step {top.step} was better ({top.value:.3f}): more steps of this kind will hardly "
        f"help. Try more --tasks-per-step (now {config.tasks_per_step}), or other tasks with --curriculum."
    )


def _mean(rewards: TaskRewards) -> float:
    return fmean(fmean(values) for values in rewards.values())
