"""Two evaluations compared task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from html import escape
from itertools import islice
from math import isfinite
from pathlib import Path

from wanderlust.errors import UsageError
from wanderlust.evals.report import render_html, render_text
from wanderlust.evals.statistics import MAX_CHANCE, Difference, Estimate, estimate, holm, paired_difference
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
    difference: Difference
    """Second minus first, paired by task."""
    p_value: float
    """Probability of a difference at least this large where there is none; see `sign_flip_p_value`. Of several seats,
    corrected for their number (Holm)."""
    gained: Sequence[str]
    """Tasks that only the second passes: at least half of its samples reach the passing reward."""
    lost: Sequence[str]
    """Tasks that only the first passes."""
    missing: int
    """Tasks that only one of them scored; they are in no figure."""
    seat: str = ""
    """Whose rewards they are; empty where an episode has one seat."""
    others: Sequence[Comparison] = ()
    """The same of every further seat that learns in both runs."""

    @property
    def clear(self) -> bool:
        """Whether the interval leaves 0 out and chance is below 5%: few tasks are never clear."""
        return self.difference.clear and self.p_value < MAX_CHANCE

    @property
    def note(self) -> str:
        """That seats which earn differently met each other, so that no figure tells of strength; else empty."""
        if all((one.first.value, one.second.value) == (self.first.value, self.second.value) for one in self.others):
            return ""
        seats = ", ".join(one.seat for one in (self, *self.others))
        return (
            f"{seats} played against each other: for strength give all but one to a fixed player (--seats SEAT=PLAYER)"
        )

    @property
    def verdict(self) -> str:
        """Whether the difference is clear, in one sentence."""
        verdict = "The difference is clear" if self.clear else "The difference may well be chance"
        seats = f", corrected for {1 + len(self.others)} seats" if self.others else ""
        return f"{f'{self.seat}: ' if self.seat else ''}{verdict} (p = {self.p_value:.2g}{seats})."

    def table(self, first: str = "first", second: str = "second") -> Table:
        """Both mean rewards and their difference, with 95% intervals."""
        table = Table("", f"{self.seat}: reward" if self.seat else "reward", "rollouts", "tasks")
        for name, figure in ((first, self.first), (second, self.second), ("difference", self.difference)):
            rollouts = "" if name == "difference" else str(figure.count)
            table.add_row(name, str(figure), rollouts, str(figure.clusters))
        return table

    def __str__(self) -> str:
        flips = f"Only the second passes: {len(self.gained)} tasks; only the first: {len(self.lost)}."
        missing = f" Scored in one run only, and in no figure: {self.missing}." if self.missing else ""
        lines = [f"{render_text(self.table())}\n{self.verdict} {flips}{missing}", *map(str, self.others), self.note]
        return "\n".join(filter(None, lines))

    def _repr_html_(self) -> str:
        own = f"{render_html(self.table())}<p>{escape(self.verdict)}</p>"
        return own + "".join(one._repr_html_() for one in self.others)


def compare(
    first: Run | str | Path, second: Run | str | Path, *, pass_threshold: float = 1.0, seat: str = ""
) -> Comparison:
    """Compare two evaluations, or what two training runs came to, task by task and seat by seat.

    Args:
        first: A run, or its folder; of a training run, its sampled evaluation after training.
        second: Another one, of the same tasks.
        pass_threshold: Smallest reward that counts as passed.
        seat: The seat that is compared. Default: every one that learns in both, which are those that no other policy
            was given.

    Returns:
        Both mean rewards, their paired difference with its interval and p-value, and the tasks that flipped. Of
        several seats that of the first, and those of the `others`.

    Raises:
        UsageError: when the two have no seat or no scored task in common.

    Example:
        >>> compare("runs/before", "runs/after").difference
    """
    ours, theirs = (rewards_by_seat(run, seat) for run in (first, second))
    if "" in ours:  # a training run has one figure of seats that earn the same
        ours = dict.fromkeys(theirs, ours[""])
    if "" in theirs:
        theirs = dict.fromkeys(ours, theirs[""])
    seats = [name for name in ours if name in theirs]
    if not seats:
        raise UsageError(
            f"the two runs have no seat in common that learns: the first has {', '.join(ours)}, the second "
            f"{', '.join(theirs)}; name a seat that both have"
        )
    played: dict[str, tuple[Mapping[str, list[float]], Mapping[str, list[float]]]] = {}
    for name in seats:  # seats that earn the same are a team, and compared once
        pair = ours[name], theirs[name]
        team = next((other for other, known in played.items() if known == pair), None)
        played[name if team is None else f"{team} and {name}"] = pair if team is None else played.pop(team)
    found = {
        name: replace(compare_rewards(*pair, pass_threshold=pass_threshold), seat=name) for name, pair in played.items()
    }
    one, *others = corrected_comparisons(found).values()
    return replace(one, others=tuple(others))


def corrected_comparisons(found: Mapping[str, Comparison]) -> dict[str, Comparison]:
    """Several comparisons by name, their p-values corrected for their number (Holm)."""
    chances = holm([one.p_value for one in found.values()])
    return {name: replace(one, p_value=p) for (name, one), p in zip(found.items(), chances, strict=True)}


def rewards_by_task(run: Run | str | Path) -> dict[str, list[float]]:
    """The rewards of an evaluation, of the first seat that learns, by task; see `rewards_by_seat`."""
    return next(iter(rewards_by_seat(run).values()))


def rewards_by_seat(run: Run | str | Path, seat: str = "") -> dict[str, dict[str, list[float]]]:
    """The rewards of an evaluation, of each seat that learns, or of this one, by seat and task.

    The only seat of an episode has an empty name. Of a training run those of its sampled evaluation, by the checkpoint
    that it hands out, with its matches in place of seats. Raises UsageError when nothing was scored, when code or tasks
    changed during the evaluation, when a training run is not finished, or when there is no such seat.
    """
    opened = run if isinstance(run, Run) else load_run(run)
    with closing(opened) if opened is not run else nullcontext():
        trained = opened.folder is not None and opened.folder.recipe == "train"
        found = _trained_rewards(opened) if trained else _evaluated_rewards(opened, seat)
    if seat and seat not in found:
        raise UsageError(f"{opened.path} has no rewards of the seat {seat!r}; it has {', '.join(found) or 'one seat'}")
    return {seat: found[seat]} if seat else found


def _trained_rewards(run: Run) -> dict[str, dict[str, list[float]]]:
    report = run.report
    if report is None:
        raise UsageError(f"{run.path} is not finished: resume it, then compare")
    result = report.get("result") or {}
    figures = result.get("match_rewards") or {"": result.get("rewards", {})}
    found = {name: rewards for name, by in figures.items() if (rewards := by.get(result.get("policy")))}
    if not found:
        raise UsageError(
            f"{run.path} has no sampled evaluation (no eval split, or result_samples is 0): "
            "evaluate its checkpoints, and compare those"
        )
    return found


def _evaluated_rewards(run: Run, seat: str) -> dict[str, dict[str, list[float]]]:
    require_one_version(run)
    played = run.rollouts(f'stage == "{EVALUATION_STAGE}"')
    found: dict[str, dict[str, list[float]]] = {}
    if any(len(rollout.trajectories) > 1 for rollout in islice(played, 1)):
        for rollout in played:
            learning = [one for one in rollout.trajectories if one.trainable] or rollout.trajectories
            for one in learning if not seat else rollout.trajectories:
                if one.score is not None:
                    found.setdefault(one.seat, {}).setdefault(rollout.task.id, []).append(one.score.reward)
    else:  # without opening the conversations
        for row in played.rows():
            if row.reward is not None:
                found.setdefault("", {}).setdefault(row.task, []).append(row.reward)
    if not found:
        raise UsageError(f"{run.path}: no scored rollouts of an evaluation in it")
    return found


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
    difference = paired_difference(theirs, ours)
    return Comparison(
        first=estimate(ours[task] for task in common),
        second=estimate(theirs[task] for task in common),
        difference=difference,
        p_value=difference.p_value,
        gained=sorted(after - before),
        lost=sorted(before - after),
        missing=len(ours.keys() ^ theirs.keys()),
    )
