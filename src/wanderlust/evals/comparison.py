"""Two evaluations compared task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from wanderlust.errors import UsageError
from wanderlust.evals.report import render_html, render_text
from wanderlust.evals.statistics import (
    Estimate,
    estimate,
    paired_difference,
    paired_differences,
    sign_flip_p_value,
)
from wanderlust.runner.terminal import Table
from wanderlust.store.provenance import read_lock
from wanderlust.store.run import Run, load_run
from wanderlust.store.run_folder import EVALUATION_STAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The second run compared with the first, on the tasks that both scored."""

    first: Estimate
    second: Estimate
    """Both over the common tasks only."""
    difference: Estimate
    """Second minus first, paired by task."""
    p_value: float
    """Probability of a difference at least this large where there is none; see `sign_flip_p_value`."""
    gained: Sequence[str]
    """Tasks that only the second passes: at least half of its samples reach the passing reward."""
    lost: Sequence[str]
    """Tasks that only the first passes."""
    missing: int
    """Tasks that only one of them scored; they are in no figure."""

    @property
    def clear(self) -> bool:
        """Whether the interval leaves 0 out and chance is below 5%: few tasks are never clear."""
        low, high = self.difference.low, self.difference.high
        return low is not None and high is not None and not low <= 0 <= high and self.p_value < 0.05

    @property
    def verdict(self) -> str:
        """Whether the difference is clear, in one sentence."""
        verdict = "The difference is clear" if self.clear else "The difference may well be chance"
        return f"{verdict} (p = {self.p_value:.2g})."

    def table(self, first: str = "first", second: str = "second") -> Table:
        """Both mean rewards and their difference, with 95% intervals."""
        table = Table("", "reward", "rollouts", "tasks")
        for name, figure in ((first, self.first), (second, self.second), ("difference", self.difference)):
            rollouts = "" if name == "difference" else str(figure.count)
            table.add_row(name, str(figure), rollouts, str(figure.clusters))
        return table

    def __str__(self) -> str:
        flips = f"Only the second passes: {len(self.gained)} tasks; only the first: {len(self.lost)}."
        missing = f" Scored in one run only, and in no figure: {self.missing}." if self.missing else ""
        return f"{render_text(self.table())}\n{self.verdict} {flips}{missing}"

    def _repr_html_(self) -> str:
        return f"{render_html(self.table())}<p>{self.verdict}</p>"


def compare(first: Run | str | Path, second: Run | str | Path, *, pass_threshold: float = 1.0) -> Comparison:
    """Compare two evaluations, or what two training runs came to, task by task.

    Args:
        first: A run, or its folder; of a training run, its sampled evaluation after training.
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
    """The rewards of an evaluation, of the first seat that learns, by task.

    Of a training run those of its sampled evaluation, by the checkpoint that it hands out. Raises UsageError when
    nothing was scored, when code or tasks changed during the evaluation, or when a training run is not finished.
    """
    rewards: dict[str, list[float]] = {}
    opened = run if isinstance(run, Run) else load_run(run)
    with closing(opened) if opened is not run else nullcontext():
        if opened.folder is not None and opened.folder.recipe == "train":
            report = opened.report
            if report is None:
                raise UsageError(f"{opened.path} is not finished: resume it, then compare")
            result = report.get("result") or {}
            rewards = result.get("rewards", {}).get(result.get("policy"))
            if not rewards:
                raise UsageError(
                    f"{opened.path} has no sampled evaluation (no eval split, or result_samples is 0): "
                    "evaluate its checkpoints, and compare those"
                )
            return {str(task): [float(value) for value in values] for task, values in rewards.items()}
        require_one_version(opened)
        for row in opened.rollouts(f'stage == "{EVALUATION_STAGE}"').rows():
            if row.reward is not None:
                rewards.setdefault(row.task, []).append(row.reward)
    if not rewards:
        raise UsageError(f"{opened.path}: no scored rollouts of an evaluation in it")
    return rewards


def require_one_version(run: Run) -> None:
    """Raise UsageError when code or tasks changed during the evaluation, so that it has no common mean."""
    lock = read_lock(run.path)
    if lock is None or len(lock.made_by) < 2:
        return
    codes = {rollout.provenance for rollout in run.rollouts(f'stage == "{EVALUATION_STAGE}"')}
    if len(codes) > 1:
        raise UsageError(f"{run.path} has rollouts of {len(codes)} versions of its environment: play it anew")


def compare_rewards(
    first: Mapping[str, Sequence[float]], second: Mapping[str, Sequence[float]], *, pass_threshold: float = 1.0
) -> Comparison:
    """Compare the rewards by task of two runs. Raises UsageError when they have no scored task in common."""
    if not isfinite(pass_threshold):
        raise UsageError(f"the pass threshold is {pass_threshold}, which is no number")
    ours, theirs = ({task: values for task, values in run.items() if values} for run in (first, second))
    common = sorted(ours.keys() & theirs.keys())
    if not common:
        raise UsageError("the two runs have no scored task in common")
    before, after = (
        {t for t in common if 2 * sum(value >= pass_threshold for value in run[t]) >= len(run[t])}
        for run in (ours, theirs)
    )
    return Comparison(
        first=estimate(ours[task] for task in common),
        second=estimate(theirs[task] for task in common),
        difference=paired_difference(theirs, ours),
        p_value=sign_flip_p_value(paired_differences(theirs, ours)),
        gained=sorted(after - before),
        lost=sorted(before - after),
        missing=len(ours.keys() ^ theirs.keys()),
    )
