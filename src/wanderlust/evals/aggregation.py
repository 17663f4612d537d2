"""Aggregates of a group: the reward of a reference made from all rollouts, against the rewards of the single rollouts
(Compute as Teacher, at inference).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean

from wanderlust.errors import RubricFailure, WanderlustError, one_line
from wanderlust.evals.statistics import Estimate, estimate, mean, share_estimate
from wanderlust.policies.resolve import open_policies
from wanderlust.rubrics.label_free import (
    ReferenceEstimator,
    RewardCheck,
    estimate_reference,
    reference_value,
    shown_prompt,
)
from wanderlust.rubrics.rubric import gather_results
from wanderlust.runner.progress import Logger
from wanderlust.runner.terminal import Table
from wanderlust.types import Group, Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEstimate:
    """One group's reference and its reward."""

    task: str
    text: str
    value: float
    """The reference's reward, by the environment's own rubric."""
    rewards: tuple[float, ...]
    """The rewards of the group's rollouts."""
    disagrees: bool
    """Whether it differs from the majority."""
    diversity: float

    @property
    def mean(self) -> float:
        """The mean reward of the group's rollouts."""
        return fmean(self.rewards)


async def estimate_group(group: Group, estimator: ReferenceEstimator, check: RewardCheck) -> GroupEstimate:
    """The reference of a group's scored rollouts, and its reward. Raises RubricFailure where either cannot be had."""
    if any(len(r.trajectories) > 1 for r in group.rollouts):
        raise RubricFailure("an estimate is of one seat, and this environment has several")
    scored = [(r.seed, t, t.score.reward) for r in group.rollouts for t in r.trajectories if t.score is not None]
    if len(scored) < 2:
        raise RubricFailure(f"{len(scored)} of {len(group.rollouts)} rollouts are scored; at least two are needed")
    seed, siblings, rewards = scored[0][0], [t for _, t, _ in scored], [reward for *_, reward in scored]
    completions = [t.turns[-1].action.content if t.turns else "" for t in siblings]
    reference = await estimate_reference(
        estimator, shown_prompt(group.task, siblings), completions, trajectories=siblings
    )
    value = await reference_value(
        partial(check, group.task, seed), reference.text, completions=completions, truths=rewards
    )
    return GroupEstimate(
        task=group.task.id,
        text=reference.text,
        value=value,
        rewards=tuple(rewards),
        disagrees=not reference.agrees,
        diversity=reference.diversity,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateReport:
    """Estimates of many groups; groups without one are in no figure but `failed`."""

    name: str
    """The name of the estimator."""
    groups: int
    failed: int
    first: str
    """The error of the first group that failed."""
    value: Estimate | None
    """Reward of the estimate."""
    mean: Estimate | None
    """Mean reward of the rollouts it was made from."""
    gain: Estimate | None
    """The difference, paired by task."""
    disagrees: Estimate | None
    """Share of groups where the estimate differs from the majority."""
    right_apart: Estimate | None
    """Reward of the estimate in those groups."""
    beyond: Estimate | None
    """Share of groups where it earns more than any rollout of the group."""
    diversity: Estimate | None

    def table(self) -> Table:
        """For the terminal: each figure that is known."""
        title = "All samples of a task, aggregated"
        table = Table("", "value", "95% interval", "tasks", title=title)
        for label, figure in (
            (f"{self.name}: reward of the reference", self.value),
            ("mean rollout", self.mean),
            ("gain, paired by task", self.gain),
            ("differs from the majority", self.disagrees),
            ("reward of the reference there", self.right_apart),
            ("earns more than any sibling", self.beyond),
            ("diversity of the group's answers", self.diversity),
        ):
            if figure is not None:
                table.add_row(label, f"{figure.value:.3f}", figure.interval, str(figure.clusters))
        return table


@dataclass(slots=True, kw_only=True)
class EstimateAccumulator:
    """Estimates one group after the other; a group without one is counted and never a 0."""

    name: str
    estimator: ReferenceEstimator
    check: RewardCheck
    done: list[GroupEstimate] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    async def add(self, groups: Sequence[Group]) -> None:
        """Estimate whole groups concurrently."""
        ended = await gather_results(estimate_group(group, self.estimator, self.check) for group in groups)
        for group, result in zip(groups, ended, strict=True):
            if isinstance(result, WanderlustError):
                self.errors.append(f"{group.task.id}: {one_line(str(result))}")
            else:
                self.done.append(result)

    def report(self) -> EstimateReport:
        """The report on all groups so far."""
        done = self.done
        apart = [one for one in done if one.disagrees]
        return EstimateReport(
            name=self.name,
            groups=len(done),
            failed=len(self.errors),
            first=self.errors[0] if self.errors else "",
            value=estimate([[one.value] for one in done]) if done else None,
            mean=mean([[one.mean] for one in done]) if done else None,
            gain=mean([[one.value - one.mean] for one in done]) if done else None,
            disagrees=share_estimate([[float(one.disagrees)] for one in done]) if done else None,
            right_apart=estimate([[one.value] for one in apart]) if apart else None,
            beyond=share_estimate([[float(one.value > max(one.rewards))] for one in done]) if done else None,
            diversity=mean([[one.diversity] for one in done]) if done else None,
        )


MAX_CONCURRENT_ESTIMATES = 16
"""Tasks whose estimates are made at once."""


@dataclass(slots=True, kw_only=True)
class SelfConsistency:
    """Rollouts that finished one by one, as groups of siblings again, and what is made of them."""

    estimates: EstimateAccumulator
    judges: list[Policy]
    """Who is asked for the estimates."""
    groups: dict[int, Group] = field(default_factory=dict)

    def add(self, group: Group) -> None:
        """Some of the siblings."""
        mine = self.groups.setdefault(group.index, Group(task=group.task, rollouts=[], index=group.index))
        mine.rollouts += group.rollouts

    def all_groups(self) -> Iterator[Group]:
        """All groups, in the order of the tasks and siblings."""
        for _, group in sorted(self.groups.items()):
            group.rollouts.sort(key=lambda rollout: rollout.sample_index)
            yield group

    async def run(self, progress: Logger) -> None:
        """Make all the estimates."""
        async with open_policies(self.judges):
            whole = list(self.all_groups())
            for start in range(0, len(whole), MAX_CONCURRENT_ESTIMATES):
                await self.estimates.add(whole[start : start + MAX_CONCURRENT_ESTIMATES])
                progress.log_step(
                    "aggregate", min(start + MAX_CONCURRENT_ESTIMATES, len(whole)), of=len(whole), metrics={}
                )
