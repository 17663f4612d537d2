"""Several environments as one: tasks interleaved by weight, each rollout judged by its own environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from random import Random
from types import FunctionType
from typing import Any

from wanderlust.agent import release_conversation
from wanderlust.environment import CONTRACT, Environment, Episode, Limits
from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.types import Completion, Message, Policy, Rollout, Score, Task, Tool, Trajectory

ENVIRONMENT_KEY = "environment"
"""The key of a task's `info` that says whose it is."""


class Mixture(Environment):
    """`Mixture({TicTacToe(): 2, Wordle(): 1})`: two tasks of the first for one of the second, on average.

    An environment of the mixture sees its own task, draws as it does alone under the same seed, and keeps its own
    limits, rubric and oracle. All must have the same seats. Other attributes are those of all where they agree, else
    the defaults; players are those that all have. Environments are named after their classes (`wordle`, a second one
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
        first, *others = weights
        for name, read in CONTRACT.items():  # the attributes, not methods, in which all environments agree
            if not isinstance(vars(Environment)[name], FunctionType | property):
                value = read(first)
                if all(read(env) == value for env in others):
                    vars(self)[name] = value
        self.limits = Limits(max_turns=max(env.limits.max_turns for env in weights))
        self.rubric = _MixtureRubric(self.parts)
        self.group_by = ENVIRONMENT_KEY
        shared = [name for name in first.players if all(name in env.players for env in weights)]
        self.players = {name: partial(_MixturePlayer, self.parts, name) for name in shared}

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

    def oracle(self, task: Task) -> Policy | None:
        """That of the task's environment."""
        env, own = _original_task(self.parts, task)
        return env.oracle(own)

    @property
    def has_oracle(self) -> bool:
        """Whether one of the environments has one."""
        return any(env.has_oracle for env in self.parts.values())


class _MixturePlayer:
    """Plays each episode as the player of that name does in the environment that its task comes from."""

    def __init__(self, parts: Mapping[str, Environment], name: str):
        self._players = {part: env.players[name]() for part, env in parts.items()}

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """That player's answer; it sees the key that it would have in its environment."""
        part = self._part(key)
        return await self._players[part].complete(messages, tools, key=key.removeprefix(f"{part}/"))

    def release(self, key: str) -> None:
        """Let that player forget the conversation."""
        part = self._part(key)
        release_conversation(self._players[part], key.removeprefix(f"{part}/"))

    def _part(self, key: str) -> str:
        part = max((name for name in self._players if key.startswith(f"{name}/")), key=len, default="")
        if not part:
            names = ", ".join(self._players)
            raise PolicyFailure(f"the conversation {key!r} is of no environment of this mixture: {names}")
        return part


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
