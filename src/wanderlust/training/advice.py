"""Advice at the end of a training run: what its own figures suggest to change, one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from wanderlust.errors import UsageError
from wanderlust.evals.comparison import compare_rewards
from wanderlust.store.run_folder import FRESH_POLICY
from wanderlust.training.checkpoint import EvalPoint, best_point
from wanderlust.training.config import TrainConfig
from wanderlust.training.result import AFTER, BEFORE, RANDOM, TEACHER, TaskRewards

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
