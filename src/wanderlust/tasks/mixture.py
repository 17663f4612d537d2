"""Several environments as one: tasks interleaved by weight, each rollout judged by its own environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random
from typing import Any

from wanderlust.environment import Environment, Episode, Limits
from wanderlust.errors import UsageError
from wanderlust.types import Rollout, Score, Task, Trajectory

ENVIRONMENT_KEY = "environment"
"""The key of a task's `info` that says whose it is."""


class Mixture(Environment):
    """`Mixture({TicTacToe(): 2, Wordle(): 1})`: two tasks of the first for one of the second, on average.

    An environment of the mixture sees its own task, draws as it does alone under the same seed, and keeps its own
    limits and rubric. All must have the same seats. Environments are named after their classes (`wordle`, a second one
    `wordle-2`); the name begins the task's id and stands in its `info`.
    """

    def __init__(self, weights: Mapping[Environment, float], *, seed: int = 0, names: Sequence[str] = ()):
        """`seed` keys the order of the tasks; `names` are other names for the environments, in order.

        Raises UsageError when the environments cannot be mixed.
        """
        if not weights or not all(0 < weight < inf for weight in weights.values()):
            raise UsageError("a mixture needs at least one environment, and weights above 0")
        if len(seats := {env.seats for env in weights}) > 1:
            raise UsageError(f"environments with different seats cannot be mixed: {', '.join(map(str, sorted(seats)))}")
        self.seed = seed
        self.parts = dict(zip(names, weights, strict=True)) if names else _unique_names(weights)
        self.weights = dict(zip(self.parts, weights.values(), strict=True))
        (self.seats,) = seats  # type: ignore[misc]  # a mixture has the seats of what it mixes
        self.limits = Limits(max_turns=max(env.limits.max_turns for env in weights))
        self.rubric = _MixtureRubric(self.parts)
        self.group_by = ENVIRONMENT_KEY

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """The tasks of all, in an order fixed by the seed; who has no more is left out, until nobody has any."""
        streams = {name: iter(env.tasks(split)) for name, env in self.parts.items()}
        rng = Random(f"mixture/{self.seed}/{split}")
        while streams:
            (name,) = rng.choices([*streams], [self.weights[one] for one in streams])
            task = next(streams[name], None)
            if task is None:
                del streams[name]
                continue
            yield replace(task, id=f"{name}/{task.id}", info={**task.info, ENVIRONMENT_KEY: name})

    async def run(self, episode: Episode) -> None:
        """Play the task in the environment that it comes from."""
        env, task = _original_task(self.parts, episode.task)
        inner = Episode(task, episode.agents, episode.seed)
        inner.state, inner.rewards = episode.state, episode.rewards
        for agent in episode.agents.values():
            agent.limits = agent.limits.tightened(replace(env.limits, timeout=None))
        with inner.play.limited(env.limits.timeout):
            await env.run(inner)


@dataclass(frozen=True, slots=True)
class _MixtureRubric:
    """Judges each rollout by the rubric of the environment that its task comes from."""

    environments: Mapping[str, Environment]
    """By name. Not `parts`, which are the reward functions of a rubric."""

    async def score(self, rollout: Rollout, trajectory: Trajectory) -> Score:
        """The score that the environment would give alone."""
        env, task = _original_task(self.environments, rollout.task)
        if env.rubric is not None:
            return await env.rubric.score(replace(rollout, task=task), trajectory)
        if trajectory.score is None:
            raise UsageError(f"the task {task.id!r} has no rewards of its environment, which has no rubric")
        return trajectory.score


def _unique_names(weights: Iterable[Environment]) -> dict[str, Environment]:
    parts: dict[str, Environment] = {}
    for env in weights:
        name = type(env).__name__.lower()
        same = sum(type(other) is type(env) for other in parts.values())
        parts[f"{name}-{same + 1}" if same else name] = env
    return parts


def _original_task(parts: Mapping[str, Environment], task: Task) -> tuple[Environment, Task]:
    """The environment of a task of the mixture, and the task as it was there."""
    info: dict[str, Any] = dict(task.info)
    name = info.pop(ENVIRONMENT_KEY, None)
    if name not in parts:
        raise UsageError(f"the task {task.id!r} is of no environment of this mixture: {', '.join(parts)}")
    return parts[name], replace(task, id=task.id.removeprefix(f"{name}/"), info=info)
