"""Comparing two evaluations of the same tasks."""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path

from wanderlust.errors import UsageError
from wanderlust.evals.statistics import Comparison, compare_rewards
from wanderlust.store.run import Run, load_run
from wanderlust.store.run_folder import EVALUATION_STAGE


def compare(first: Run | str | Path, second: Run | str | Path, *, pass_threshold: float = 1.0) -> Comparison:
    """Compare two evaluations task by task.

    Args:
        first: A run, or its folder.
        second: Another one, of the same tasks.
        pass_threshold: Smallest reward that counts as passed.

    Returns:
        Both mean rewards, their paired difference with its interval and p-value, and the tasks that flipped.

    Raises:
        UsageError: when the two have no scored task in common.

    Example:
        >>> compare("runs/before", "runs/after").difference
    """
    return compare_rewards(rewards_by_task(first), rewards_by_task(second), pass_threshold=pass_threshold)


def rewards_by_task(run: Run | str | Path) -> dict[str, list[float]]:
    """The first seat's rewards of an evaluation, by task. Raises UsageError when nothing was scored."""
    rewards: dict[str, list[float]] = {}
    opened = run if isinstance(run, Run) else load_run(run)
    with closing(opened) if opened is not run else nullcontext():
        for row in opened.rollouts(f'stage == "{EVALUATION_STAGE}"').rows():
            if row.reward is not None:
                rewards.setdefault(row.task, []).append(row.reward)
    if not rewards:
        raise UsageError(f"{opened.path}: no scored rollouts of an evaluation in it")
    return rewards
