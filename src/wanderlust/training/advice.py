"""Advice on a training run, at its evaluations and at its end: what its figures suggest to change, one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from wanderlust.errors import UsageError
from wanderlust.evals.comparison import compare_rewards
from wanderlust.store.run_folder import FRESH_POLICY
from wanderlust.training.checkpoint import EvalPoint, best_point
from wanderlust.training.config import TrainConfig
from wanderlust.training.verdict import AFTER, BEFORE, RANDOM, TEACHER, TaskRewards

MIN_TEACHER_SHARE = 0.7
"""Share of the teacher's lead over random play (or over 0) below which a warm-up is said to be poor."""
MIN_SIGNAL = 0.1
"""Mean share of groups with a signal below which a run is said to have learnt from almost nothing."""
HARDLY_MOVED = 0.5
"""Share of rollouts that are the same after training from which on the policy is said to have hardly moved: what
training can gain is bounded by the others."""
MAX_CLIP_FRACTION = 0.2
"""Mean share of tokens outside of the clip's range above which steps are said to be too long (docs/metrics.md)."""
PLATEAU_POINTS = 4
"""Evaluations from which on a plateau can be seen."""
STUCK_SHARE = 0.95
"""Share of greedy episodes that are the same as before training from which on the learning rate is said to be low."""
FIRST_STEPS = 5
"""Steps that later ones are compared with."""
COLLAPSE = 0.1
"""Share of the first steps' entropy below which it is said to have collapsed, where signal was lost with it."""


def advise_during(
    config: TrainConfig,
    *,
    metrics: Mapping[str, Sequence[float]],
    points: Sequence[Mapping[str, Any]],
    unchanged: float,
) -> dict[str, str]:
    """Advice at an evaluation, one line by its kind; empty where nothing stands out.

    `metrics` are those of the steps so far; `points` the evaluations of the best metric (`step`, `value`, `low`,
    `high`), the one before training first; `unchanged` is the share of greedy episodes equal to those before training.
    """
    if len(points) < 2 or any(point["low"] is None for point in points):  # a single task has no interval
        return {}
    first, last, step = points[0], points[-1], int(points[-1]["step"])
    window = max(step - int(points[-2]["step"]), 1)
    recent = {name: fmean(values[-window:]) for name, values in metrics.items() if values}
    early = {name: fmean(values[:FIRST_STEPS]) for name, values in metrics.items() if values}
    best = max(points, key=lambda point: (point["value"], -point["step"]))
    signal = recent.get("frac_groups_with_signal", 1.0)
    lines: dict[str, str] = {}
    if signal < MIN_SIGNAL:
        lines["signal"] = _no_signal(config, metrics["frac_groups_with_signal"][-window:])
    elif unchanged >= STUCK_SHARE and last["low"] <= first["high"]:
        lines["learning_rate"] = (
            f"{unchanged:.0%} of the greedy episodes are word for word those from before training: raise --lr (now "
            f"{config.lr:g})."
        )
    if last["high"] < first["low"]:
        lines["worse"] = (
            f"Evaluations are worse than before training ({last['value']:.3f} after {first['value']:.3f}): lower --lr "
            f"(now {config.lr:g}), or hold the policy to its start with --kl 0.01."
        )
    elif last["high"] < best["low"]:
        lines["best"] = (
            f"The evaluation at step {best['step']:.0f} was better ({best['value']:.3f}, now {last['value']:.3f}); its "
            "checkpoint is kept. Lower --lr, or stop early with --patience."
        )
    elif len(points) > PLATEAU_POINTS and best["step"] <= points[-PLATEAU_POINTS]["step"]:
        lines["plateau"] = (
            f"No evaluation after step {best['step']:.0f} was better ({best['value']:.3f}): more --tasks-per-step (now "
            f"{config.tasks_per_step}), other tasks with --curriculum, or stop early with --patience."
        )
    spread, lost = early.get("entropy", 0.0), signal < early.get("frac_groups_with_signal", 0.0) / 2
    if lost and recent.get("entropy", spread) < COLLAPSE * spread and last["value"] < best["value"]:
        lines["entropy"] = (
            f"Entropy fell from {spread:.2g} to {recent['entropy']:.2g} nats per token, and groups with different "
            f"rewards from {early['frac_groups_with_signal']:.0%} to {signal:.0%}: add --entropy 0.001, raise "
            f"--temperature (now {config.temperature:g}), or lower --lr (now {config.lr:g})."
        )
    dropped = sum(metrics.get("groups_dropped", ())[-window:])
    if dropped:
        lines["staleness"] = (
            f"{dropped:.0f} groups became too old and were played again: raise --max-staleness (now "
            f"{config.max_staleness}), or have more samplers."
        )
    return lines


def advise(
    config: TrainConfig,
    *,
    rewards: Mapping[str, TaskRewards],
    verdict: str,
    signal: Sequence[float],
    points: Sequence[EvalPoint],
    unchanged: float | None = None,
    clipped: Sequence[float] = (),
) -> list[str]:
    """Lines of advice from what was measured; none where nothing stands out.

    `rewards` are those of the sampled evaluation, by policy, and `unchanged` its share of rollouts that are the same
    after training; `signal` is the share of groups with different rewards and `clipped` that of tokens outside of the
    clip's range, step by step; `points` are the greedy evaluations.
    """
    config = config.with_sft_defaults()
    learnt_from_something = not signal or fmean(signal[len(signal) // 2 :]) >= MIN_SIGNAL
    lines = [_warm_up(config, rewards)]
    if not learnt_from_something:
        lines.append(_no_signal(config, signal))
    else:
        lines.append(_learning_rate(config, verdict, unchanged=unchanged, clipped=clipped))
        lines.append(_plateau(config, points, verdict))
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


def _no_signal(config: TrainConfig, signal: Sequence[float]) -> str:
    share = fmean(signal[len(signal) // 2 :])
    groups = f"only {share:.0%} of the groups" if share else "no group"
    return (
        f"Rewards differed in {groups}: tasks are too hard or too easy for this model. Choose them with "
        f"--curriculum learnability, raise --group-size (now {config.group_size}), or imitate examples first with "
        "--sft-episodes."
    )


def _learning_rate(config: TrainConfig, verdict: str, *, unchanged: float | None, clipped: Sequence[float]) -> str:
    """Says that steps were too long or too short, by how far they moved the policy."""
    share = fmean(clipped[len(clipped) // 2 :]) if clipped else 0.0
    if share > MAX_CLIP_FRACTION:
        return (
            f"{share:.0%} of the tokens left the clip's range within a step: lower --lr (now {config.lr:g}), or "
            f"--updates-per-step (now {config.updates_per_step})."
        )
    moved = "" if unchanged is None else f", and {1 - unchanged:.0%} of its sampled rollouts changed"
    if verdict == "worse":
        return f"Training made it worse{moved}: lower --lr (now {config.lr:g}), or hold it to its start with --kl 0.01."
    if verdict == "none" and unchanged is not None and unchanged >= HARDLY_MOVED:
        return (
            f"The policy hardly moved: {unchanged:.0%} of the sampled rollouts are word for word those from before "
            f"training. Raise --lr (now {config.lr:g}), or --steps (now {config.steps})."
        )
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
