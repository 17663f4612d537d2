"""Choices by how a task went when it was last played: by the share of siblings that pass, or by their spread."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from math import log
from random import Random
from statistics import fmean, pvariance
from typing import Any, Protocol

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.tasks.curriculum.uniform import Curriculum, NamedCurriculum, NoUsefulTasksWarning, TaskPool
from wanderlust.types import Group, Task

NEWEST_GROUP_WEIGHT = 0.5
"""Share of the newest group in what is known of a task that was played before."""


@dataclass(slots=True)
class TaskStats:
    """Statistics of a task, from groups of successive policies."""

    rate: float
    """Share of the group's rollouts that pass."""
    spread: float
    """Variance of their rewards."""

    def update(self, rate: float, spread: float) -> None:
        """Take in one more group."""
        self.rate += NEWEST_GROUP_WEIGHT * (rate - self.rate)
        self.spread += NEWEST_GROUP_WEIGHT * (spread - self.spread)


class TaskUtility(Protocol):
    """Utility of playing a task."""

    @property
    def pass_threshold(self) -> float: ...
    @property
    def exploration(self) -> float: ...
    @property
    def drop_useless(self) -> bool: ...
    def utility(self, stats: TaskStats) -> float:
        """0 is not at all."""
        ...

    def distance(self, stats: TaskStats) -> float:
        """Distance of a task without utility from having some."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRateBand:
    """Tasks that pass now and then, all alike."""

    low: float = 0.2
    high: float = 0.8
    """Shares of siblings that pass, both inclusive."""
    pass_threshold: float = 1.0
    """Least reward that counts as passed."""
    exploration: float = 0.1
    """Share of the tasks that were not played for longest, those never played first."""
    drop_useless: bool = False
    """Whether the first model plays every task beforehand, and those outside the band are left out for good."""

    def __post_init__(self) -> None:
        if not (0 <= self.low <= self.high <= 1 and 0 < self.exploration <= 1):
            raise UsageError("band: 0 <= low <= high <= 1, and exploration is above 0 and at most 1")

    def utility(self, stats: TaskStats) -> float:
        """All in the band alike."""
        return float(self.low <= stats.rate <= self.high)

    def distance(self, stats: TaskStats) -> float:
        """From the middle of the band."""
        return abs(stats.rate - (self.low + self.high) / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnability:
    """Tasks in proportion to the variance of their siblings' rewards, to a power: where they agree nothing is learnt.

    For rewards of 0 and 1 it is p (1 - p), the learnability of arXiv 2408.15099.
    """

    power: float = 1.0
    exploration: float = 0.25
    """Share of the tasks that were not played for longest, those never played first."""
    pass_threshold: float = 1.0
    drop_useless: bool = False
    """Whether the first model plays every task beforehand, and those with equal siblings are left out for good."""

    def __post_init__(self) -> None:
        if not (self.power >= 0 and 0 < self.exploration <= 1):
            raise UsageError("learnability: power is at least 0, and exploration is above 0 and at most 1")

    def utility(self, stats: TaskStats) -> float:
        """The variance; what is left of one by averaging alone counts as none."""
        return stats.spread**self.power if stats.spread > 1e-6 else 0.0

    def distance(self, stats: TaskStats) -> float:
        """All alike."""
        return 0.0


@dataclass(slots=True, kw_only=True)
class UtilityCurriculum:
    """Tasks that are worth it, drawn by their worth without replacement, beside a share that is looked at again.

    Where there are too few of them the share of exploration grows. Where all tasks are known and none is worth
    anything, those nearest to it are played, each is counted as starved, and it is said once.
    """

    pool: TaskPool
    seed: int
    settings: TaskUtility
    task_stats: dict[str, TaskStats] = field(default_factory=dict)
    last_played: dict[str, int] = field(default_factory=dict)
    """When a task was handed out last, counted in tasks."""
    excluded: set[str] = field(default_factory=set)
    taken: int = 0
    starved: int = 0
    calibrating: bool = False
    """Whether what is observed is the first model's."""

    def calibration_tasks(self) -> list[Task]:
        """All tasks, where they are filtered; until tasks are asked for, what is observed filters them."""
        self.calibrating = self.settings.drop_useless
        return list(self.pool.tasks) if self.calibrating else []

    def next(self, step: int, count: int) -> list[Task]:
        """`count` tasks; one comes twice only where there are fewer."""
        if self.calibrating:  # leave out what is worth nothing to the first model, unless that would be all
            self.calibrating = False
            useless = {id for id, stats in self.task_stats.items() if not self.settings.utility(stats)}
            if len(useless) < len(self.pool.tasks):
                self.excluded = useless
        there = [task for task in self.pool.tasks if task.id not in self.excluded]
        out: list[Task] = []
        while len(out) < count:
            out += self._round(there, min(count - len(out), len(there)))
        return out

    def _round(self, there: Sequence[Task], count: int) -> list[Task]:
        """`count` different tasks."""
        rng = Random(f"rated/{self.seed}/{self.taken}")
        weights = {
            id: self.settings.utility(self.task_stats[id])
            for id in (task.id for task in there)
            if id in self.task_stats
        }
        worth = _above(weights.values())
        look = max(sum(rng.random() < self.settings.exploration for _ in range(count)), count - worth)
        # Weighted draws without replacement (Efraimidis & Spirakis 2006).
        keys = {id: log(1 - rng.random()) / weight for id, weight in weights.items() if weight > 0}
        drawn = sorted(keys, key=lambda id: keys[id], reverse=True)[: count - look]
        rest = [task for task in there if task.id not in set(drawn)]
        if not worth and len(weights) == len(there):
            chosen = self._starving(rest, count)
        else:
            rest = rng.sample(rest, len(rest))
            longest_unseen = sorted(rest, key=lambda task: self.last_played.get(task.id, 0))[:look]
            chosen = [self.pool.by_id[id] for id in drawn] + longest_unseen
        for task in chosen:
            self.taken += 1
            self.last_played[task.id] = self.taken
        rng.shuffle(chosen)
        return chosen

    def _starving(self, tasks: Sequence[Task], count: int) -> list[Task]:
        if not self.starved:
            warnings.warn(
                f"all {len(tasks)} tasks are too hard or too easy for the curriculum: it takes those that are nearest "
                "to being of use, and counts them in `curriculum_starved` (said once); other tasks are wanted",
                NoUsefulTasksWarning,
                stacklevel=4,
            )
        self.starved += count
        near = sorted(
            tasks, key=lambda task: (self.settings.distance(self.task_stats[task.id]), self.last_played.get(task.id, 0))
        )
        return near[:count]

    def observe(self, group: Group) -> None:
        """Take in how it went; a group of which nothing was scored says nothing."""
        seats, id = [*group.seat_rewards.values()], group.task.id
        if not seats or id not in self.pool.by_id:
            return
        rate = fmean(fmean(reward >= self.settings.pass_threshold for reward in rewards) for rewards in seats)
        spread = fmean(map(pvariance, seats))  # what two seats are paid may differ without any signal
        if id in self.task_stats:
            self.task_stats[id].update(rate, spread)
        else:
            self.task_stats[id] = TaskStats(rate, spread)

    def metrics(self) -> dict[str, float]:
        """How many tasks are known, are worth it, were left out, and were played for want of better ones."""
        worth = _above(self.settings.utility(stats) for id, stats in self.task_stats.items() if id not in self.excluded)
        return {
            "curriculum_known": float(len(self.task_stats)),
            "curriculum_worth": float(worth),
            "curriculum_left_out": float(len(self.excluded)),
            "curriculum_starved": float(self.starved),
        }

    def state(self) -> dict[str, Any]:
        """The statistics of all tasks."""
        return {
            "task_stats": {id: asdict(stats) for id, stats in self.task_stats.items()},
            "handed": dict(self.last_played),
            "left_out": sorted(self.excluded),
            "taken": self.taken,
            "starved": self.starved,
            "rating": self.calibrating,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from saved knowledge."""
        self.task_stats = {id: TaskStats(**stats) for id, stats in state["task_stats"].items()}
        self.last_played, self.excluded = dict(state["handed"]), set(state["left_out"])
        self.taken, self.starved, self.calibrating = state["taken"], state["starved"], state["rating"]


def _above(values: Iterable[float]) -> int:
    return sum(value > 0 for value in values)


def _by_utility(env: Environment, seed: int, settings: TaskUtility) -> Curriculum:
    return UtilityCurriculum(pool=TaskPool.of_environment(env), seed=seed, settings=settings)


BAND = NamedCurriculum(make=_by_utility, settings=PassRateBand)
LEARNABILITY = NamedCurriculum(make=_by_utility, settings=Learnability)
