"""The result of a training run: the model before and after, sampled, paired on the same held-out tasks.

Before and after are the saved checkpoints, loaded again and drawn from as in training. The environment's teacher and
random player stand beside them. The run hands out its last weights, unless another checkpoint is shown to be better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.evals.comparison import compare_rewards
from wanderlust.evals.statistics import estimate
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.policies.resolve import make_player
from wanderlust.runner.engine import rollouts, run_blocking
from wanderlust.runner.progress import Logger
from wanderlust.store.run_folder import CHECKPOINTS_FOLDER
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.training.checkpoint import BEST_CHECKPOINT, Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.models import load_frozen, rendering_of
from wanderlust.training.warmup import teacher_policy
from wanderlust.types import Group, Policy, Rollout, Task

RESULT_STAGE = "result"
"""The stage of a run's sampled evaluation in its store."""
START_CHECKPOINT, LAST_CHECKPOINT = "start", "rl"
BEFORE, AFTER, BEST, TEACHER, RANDOM = "before", "after", "best", "teacher", "random"
"""Names of the policies that are compared."""
CHECKPOINT_OF = {BEFORE: START_CHECKPOINT, AFTER: LAST_CHECKPOINT, BEST: BEST_CHECKPOINT}

TaskRewards: TypeAlias = dict[str, list[float]]
"""The figures of every task's samples."""
RolloutAnswers: TypeAlias = dict[tuple[int, int], bytes]


def evaluate_result(config: TrainConfig, run: Run, *, best_step: int | None, logger: Logger) -> dict[str, Any]:
    """Sample the checkpoints of a finished run on held-out tasks, and compare them; JSON data for its report.

    Empty where the environment has no eval split, or `result_samples` is 0. `best_step` is the step of the best greedy
    evaluation. The figure is `best_metric`, the mean over the seats that learn. The rollouts are stored.
    """
    env, began = config.make_env(), monotonic()
    tasks = choose_tasks(iter_tasks(env, "eval"), config.result_tasks) if config.result_samples else []
    if not tasks:
        return {}
    run.store.truncate([RESULT_STAGE], 0)
    steps = {BEFORE: 0, AFTER: config.steps if run.state is None else int(run.state["step"])}
    if best_step is not None and best_step not in steps.values():
        steps[BEST] = best_step
    rewards, rows = dict[str, TaskRewards](), list[dict[str, Any]]()
    answers = dict[str, RolloutAnswers]()
    for name, policy in _policies(config, env, run.path / CHECKPOINTS_FOLDER, names=[*steps], tasks=tasks):
        groups = run_blocking(partial(_play, env, tasks, policy, samples=config.result_samples, seed=config.seed))
        figures, answers[name] = rewards_of(groups, config.best_metric), answers_of(groups)
        if name in steps:
            run.store.add(groups, stage=RESULT_STAGE, step=steps[name], env=config.env_name)
            shown = {config.best_metric: estimate(figures.values()).value} if figures else {}
            logger.log_step(RESULT_STAGE, [*steps].index(name) + 1, of=len(steps), metrics=shown)
        played = sum(len(group.rollouts) for group in groups)
        if figures:
            rewards[name] = figures
        rows.append(
            {
                "policy": name,
                "step": steps.get(name),
                "reward": asdict(estimate(figures.values())) if figures else None,
                "failed": played - sum(map(len, figures.values())),
            }
        )
    return {
        "metric": config.best_metric,
        "tasks": len(tasks),
        "samples": config.result_samples,
        "temperature": config.temperature,
        "rows": rows,
        **judge_result(rewards),
        "unchanged": unchanged_share(answers.get(BEFORE, {}), answers.get(AFTER, {})),
        "rewards": rewards,
        "seconds": round(monotonic() - began, 1),
    }


def judge_result(rewards: Mapping[str, TaskRewards]) -> dict[str, Any]:
    """The paired difference of after and before, the sentence that says it, and the checkpoint to hand out.

    The last weights are handed out unless the best checkpoint, or the start, is clearly better in this evaluation.
    """
    if not rewards.get(BEFORE) or not rewards.get(AFTER):
        return {"difference": None, "verdict": "none", "sentence": NOTHING_SCORED, "policy": AFTER}
    try:
        moved = compare_rewards(rewards[BEFORE], rewards[AFTER])
    except UsageError:
        return {"difference": None, "verdict": "none", "sentence": NOTHING_SCORED, "policy": AFTER}
    size, verdict = moved.difference, "none"
    if moved.clear:
        verdict = "better" if size.value > 0 else "worse"
    many = f"{size.clusters} held-out tasks, {moved.second.count} sampled rollouts each way"
    interval = "" if size.low is None else f" [{size.low:.3f}, {size.high:.3f}]"
    sentence = {
        "better": f"Better by {size.value:.3f}{interval} after training",
        "worse": f"Worse by {-size.value:.3f} [{-(size.high or 0):.3f}, {-(size.low or 0):.3f}] after training",
        "none": f"No difference shown: {size.value:+.3f}{interval} after training",
    }[verdict]
    if size.clusters < MIN_RESULT_TASKS:
        sentence = f"Too few held-out tasks to tell ({size.clusters}; at least {MIN_RESULT_TASKS}): {size.value:+.3f}"
    chosen = AFTER
    for name in (BEST, BEFORE):
        if name in rewards and _clearly_better(rewards[name], rewards[AFTER]):
            chosen = name if chosen == AFTER or _mean(rewards[name]) > _mean(rewards[chosen]) else chosen
    return {
        "difference": {**asdict(size), "p_value": moved.p_value},
        "verdict": verdict,
        "sentence": f"{sentence} ({many}, p = {moved.p_value:.2g}).",
        "policy": chosen,
    }


MIN_RESULT_TASKS = 6
"""Tasks below which signs alone are chance with a probability of 5% and more."""
NOTHING_SCORED = "No difference shown: too few rollouts could be scored."


def answers_of(groups: Sequence[Group]) -> RolloutAnswers:
    """A digest of what the seats that learn answered in each rollout, by the group's place and the sample."""
    return {
        (group.index, rollout.sample_index): sha256(
            repr(
                [
                    (turn.action.content, turn.action.tool_calls)
                    for t in rollout.trajectories
                    if t.trainable
                    for turn in t.turns
                ]
            ).encode(errors="backslashreplace")
        ).digest()
        for group in groups
        for rollout in group.rollouts
    }


def unchanged_share(before: RolloutAnswers, after: RolloutAnswers) -> float | None:
    """Share of the rollouts in which every answer is the same; None without any in common.

    Both checkpoints draw with the same random numbers, so an unmoved policy answers the same; and a rollout with the
    same answers earns the same, so this bounds what training can have changed.
    """
    common = before.keys() & after.keys()
    return sum(before[place] == after[place] for place in common) / len(common) if common else None


def rewards_of(groups: Sequence[Group], metric: str) -> TaskRewards:
    """The figure of every scored rollout, by task."""
    figures: TaskRewards = {}
    for group in groups:
        values = [rollout_figure(rollout, metric) for rollout in group.rollouts]
        figures.setdefault(group.task.id, []).extend(value for value in values if value is not None)
    return {task: values for task, values in figures.items() if values}


def rollout_figure(rollout: Rollout, metric: str = "reward") -> float | None:
    """The mean of a figure over the seats that learn: `reward`, a part, a metric, or a seat's name for its reward.

    None where no such seat has it.
    """
    several = len(rollout.trajectories) > 1
    values = list[float]()
    for trajectory in rollout.trajectories:
        score = trajectory.score
        if score is None or not trajectory.trainable:
            continue
        own = {"reward": score.reward, **score.parts, **score.metrics}
        names = {**own, trajectory.seat: score.reward} if several else own
        seat = f"{trajectory.seat}: " if several else ""
        found = names.get(metric, names.get(metric.removeprefix(seat)))
        if found is not None:
            values.append(found)
    return sum(values) / len(values) if values else None


def _policies(
    config: TrainConfig, env: Environment, folder: Path, *, names: Sequence[str], tasks: Sequence[Task]
) -> Iterator[tuple[str, Policy]]:
    """The checkpoints, each loaded when its turn comes, then the environment's teacher and random player."""
    for name in names:
        if (folder / CHECKPOINT_OF[name]).is_dir():
            model, tokenizer = load_frozen(config, folder / CHECKPOINT_OF[name])
            yield (
                name,
                LocalPolicy.of(
                    model,
                    tokenizer,
                    config.sampling,
                    seed=config.seed,
                    fast=config.fast,
                    rendering=rendering_of(config),
                ),
            )
    with suppress(UsageError):  # an environment without a teacher has no such row
        yield TEACHER, teacher_policy(env, config.sft_teacher, tasks)
    if RANDOM in env.players:
        yield RANDOM, make_player(env, RANDOM)


async def _play(env: Environment, tasks: Sequence[Task], policy: Policy, *, samples: int, seed: int) -> list[Group]:
    async with rollouts(env, tasks, policy, group_size=samples, seed=seed) as stream:
        return sorted([group async for group in stream], key=lambda group: group.index)


def _clearly_better(ours: TaskRewards, theirs: TaskRewards) -> bool:
    compared = compare_rewards(theirs, ours)
    return compared.clear and compared.difference.value > 0


def _mean(rewards: TaskRewards) -> float:
    return estimate(rewards.values()).value
