"""Which games are played: stratified for training, fixed for evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

from wanderlust.core.types import Task
from wanderlust.environments.tictactoe.rules import OPPONENTS

EVAL_GAMES = 100
"""Games of the `eval` split against each fixed opponent."""


def stratified_tasks(seed: int, step: int, groups: int = 32, *, low: float = 0.0, high: float = 0.7) -> list[Task]:
    """The `groups` tasks of one step, so that every batch spans all difficulties.

    Task i meets a mixed opponent whose share of random moves is uniform in the i-th of `groups` equal slices of
    `low` to `high`. Equal arguments give equal tasks.
    """
    rng = Random(f"tictactoe/{seed}/{step}")
    width = (high - low) / groups
    return [
        Task(
            id=f"tictactoe-train-{seed}-{step}-{i}",
            info={"opponent": "mixed", "random": low + (i + rng.random()) * width},
        )
        for i in range(groups)
    ]


def train_tasks(seed: int, groups: int = 32, *, low: float = 0.0, high: float = 0.7) -> Iterator[Task]:
    """`stratified_tasks` of step 0, 1, 2 and so on, for ever."""
    for step in count():
        yield from stratified_tasks(seed, step, groups, low=low, high=high)


def eval_tasks(opponents: Sequence[str] = tuple(OPPONENTS), games: int = EVAL_GAMES) -> list[Task]:
    """`games` games against each opponent; X opens every other one."""
    return [
        Task(id=f"tictactoe-eval-{name}-{n}", info={"opponent": name, "first": n % 2 == 0})
        for name in opponents
        for n in range(games)
    ]


def duel_tasks(split: str) -> Iterator[Task]:
    """Endless games that X and O open in turn."""
    return (Task(id=f"tictactoe-duel-{split}-{n}", info={"first": n % 2 == 0}) for n in count())
