"""From easy to hard: the next level opens when the last groups of the present one pass often enough."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from statistics import fmean
from typing import Any

from wanderlust.errors import UsageError
from wanderlust.tasks.curriculum.uniform import NamedCurriculum, ShuffledPasses, TaskPool
from wanderlust.types import Group, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderOptions:
    """Settings of a ladder."""

    by: str = "level"
    """Key of a task's `info` that says how hard it is: numbers, the least is the easiest."""
    raise_at: float = 0.7
    """Share of rollouts that must pass, over the last groups of the present level."""
    over: int = 48
    """Number of these groups."""
    review: float = 0.2
    """Share of the tasks that are of an easier level, once there is one."""
    pass_threshold: float = 1.0
    """Least reward that counts as passed."""

    def __post_init__(self) -> None:
        if not (0 <= self.raise_at <= 1 and self.over >= 1 and 0 <= self.review < 1):
            raise UsageError("ladder: 0 <= raise_at <= 1, over is at least 1, and 0 <= review < 1")


@dataclass(slots=True, kw_only=True)
class Ladder:
    """Shuffled passes over the tasks of one level after the other. It never goes back down.

    UsageError when a task has no number at the key.
    """

    pool: TaskPool
    seed: int
    settings: LadderOptions
    rung: int = 0
    """Place of the present level among all levels."""
    recent: list[float] = field(default_factory=list)
    """Shares that passed, of the last groups of the present level."""
    places: dict[int, int] = field(default_factory=dict)
    """By level, how many of its tasks were handed out."""
    taken: int = 0
    levels: list[float] = field(init=False)
    _passes: list[ShuffledPasses] = field(init=False)

    def __post_init__(self) -> None:
        tasks: dict[float, list[Task]] = defaultdict(list)
        for task in self.pool.tasks:
            tasks[self._level(task)].append(task)
        self.levels = sorted(tasks)
        self._passes = [ShuffledPasses(tasks[level], f"ladder/{self.seed}/{level}") for level in self.levels]

    def _level(self, task: Task) -> float:
        level = task.info.get(self.settings.by)
        if isinstance(level, bool) or not isinstance(level, int | float):
            raise UsageError(f"task {task.id!r} has no number at {self.settings.by!r} in its info: {level!r}")
        return float(level)

    def next(self, step: int, count: int) -> list[Task]:
        """The next `count` tasks, each of the present level or, for review, of an easier one."""
        chosen = []
        for _ in range(count):
            rng = Random(f"ladder/{self.seed}/{self.taken}")
            self.taken += 1
            rung = rng.randrange(self.rung) if self.rung and rng.random() < self.settings.review else self.rung
            place = self.places.get(rung, 0)
            self.places[rung] = place + 1
            chosen.append(self._passes[rung].at(place))
        return chosen

    def observe(self, group: Group) -> None:
        """Take in a group of the present level; open the next one when the last groups pass often enough."""
        seats = [*group.seat_rewards.values()]
        if not seats or self._level(group.task) != self.levels[self.rung] or self.rung + 1 == len(self.levels):
            return
        threshold, over = self.settings.pass_threshold, self.settings.over
        rate = fmean(fmean(reward >= threshold for reward in rewards) for rewards in seats)
        self.recent = [*self.recent, rate][-over:]
        if len(self.recent) == over and fmean(self.recent) >= self.settings.raise_at:
            self.rung, self.recent = self.rung + 1, []

    def metrics(self) -> dict[str, float]:
        """The present level, and the share that passed of its last groups."""
        passed = {"curriculum_passed": fmean(self.recent)} if self.recent else {}
        return {"curriculum_level": self.levels[self.rung], **passed}

    def state(self) -> dict[str, Any]:
        """The level, what is known of it, and the position in each level."""
        places = {str(rung): place for rung, place in self.places.items()}
        return {"rung": self.rung, "recent": [*self.recent], "places": places, "taken": self.taken}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.rung, self.recent, self.taken = state["rung"], [*state["recent"]], state["taken"]
        self.places = {int(rung): place for rung, place in state["places"].items()}


LADDER = NamedCurriculum(
    make=lambda env, seed, settings: Ladder(pool=TaskPool.of_environment(env), seed=seed, settings=settings),
    settings=LadderOptions,
)
