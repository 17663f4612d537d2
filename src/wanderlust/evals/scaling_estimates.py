"""What one answer made of k samples earns (docs/label-free-rl.md), as curves over k for `scale`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum

from wanderlust.errors import WanderlustError, one_line
from wanderlust.evals.aggregation import MAX_CONCURRENT_ESTIMATES, estimate_group
from wanderlust.rubrics.label_free import ReferenceEstimator, RewardCheck
from wanderlust.rubrics.rubric import gather_results
from wanderlust.runner.progress import Logger
from wanderlust.types import Group

MAX_SETS = 4
"""Sets of k samples of a task that an estimate is made of, at most. They share no sample."""


def disjoint_sets(group: Group, k: int) -> list[Group]:
    """Groups of k of a group's rollouts each, in their order; a rollout is in one of them at most."""
    count = min(MAX_SETS, len(group.rollouts) // k)
    return [replace(group, rollouts=group.rollouts[n * k : (n + 1) * k]) for n in range(count)]


@dataclass(slots=True, kw_only=True)
class EstimatedRewards:
    """Rewards of one estimator by task and k; a task with an estimate that failed is in none of them."""

    name: str
    estimator: ReferenceEstimator
    check: RewardCheck
    counts: Sequence[int]
    rewards: dict[str, dict[int, float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    async def add_all(self, groups: Mapping[str, Group], progress: Logger) -> None:
        """Make the estimates of all tasks, some tasks at once."""
        waiting = [*groups.items()]
        for start in range(0, len(waiting), MAX_CONCURRENT_ESTIMATES):
            some = waiting[start : start + MAX_CONCURRENT_ESTIMATES]
            ended = await gather_results(self._of_task(group) for _, group in some)
            for (task, _), found in zip(some, ended, strict=True):
                if isinstance(found, WanderlustError):
                    self.errors.append(f"{task}: {one_line(str(found))}")
                else:
                    self.rewards[task] = found
            progress.log_step(self.name, start + len(some), of=len(waiting), metrics={})

    async def _of_task(self, group: Group) -> dict[int, float]:
        single = [one.main_trajectory for one in group.rollouts]
        rewards = [one.score.reward for one in single if one is not None and one.score is not None]
        found = {1: fsum(rewards) / len(rewards)}
        for k in self.counts[1:]:
            values = [(await estimate_group(one, self.estimator, self.check)).value for one in disjoint_sets(group, k)]
            found[k] = fsum(values) / len(values)
        return found
