"""Whoever plays: tasks in, credited groups out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from wanderlust.core.contracts import Environment, Policy, Rubric
from wanderlust.core.errors import UsageError
from wanderlust.core.types import Group, Task, Trajectory
from wanderlust.policies.local import Explorer, Sampling, Suggest
from wanderlust.policies.tokens import TokenPolicy
from wanderlust.rollout.engine import rollouts
from wanderlust.train.algorithms.contract import Algorithm, Equipped, Lent, Played
from wanderlust.train.algorithms.crediting import credit
from wanderlust.train.scoring import Scorer


class Player(Protocol):
    """Plays a group per task and credits it."""

    async def play(self, tasks: Sequence[Task], *, seed: int, first: int = 0) -> list[Group]:
        """Credited groups in the tasks' order, numbered from `first`; equal weights and seeds play equally."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayConfig:
    """How groups are played and credited."""

    algorithm: Algorithm
    sampling: Sampling
    group_size: int = 8
    concurrency: int = 512
    seed: int = 0
    micro_batch: int = 64
    fast: bool = False
    """Whether our own pass reads the model and siblings are trained on as trees, where that can be (decision 0019)."""
    suggest: Suggest | None = None
    """What explorers begin with."""
    explorers: int = 0
    """Siblings of every group that begin with a suggestion."""


class Company:
    """A player in this process, whatever engine samples."""

    def __init__(
        self,
        env: Environment,
        config: PlayConfig,
        policy: Callable[[int], TokenPolicy],
        *,
        algorithm: Algorithm,
        reference: Scorer | None = None,
        rubric: Rubric | None = None,
    ):
        """`policy` makes one that draws by a seed; `algorithm` is the config's, equipped; `rubric` stands in place of
        the environment's."""
        self.env, self.config, self.policy = env, config, policy
        self.algorithm, self.reference, self.rubric = algorithm, reference, rubric

    def acting(self, seed: int) -> Policy:
        """Who plays the groups of one call of `play`."""
        config, policy = self.config, self.policy(seed)
        if isinstance(self.algorithm, Played):
            return self.algorithm.player(policy)
        if config.suggest is None or not config.explorers:
            return policy
        return Explorer(policy, config.suggest, first=config.group_size - config.explorers)

    async def play(self, tasks: Sequence[Task], *, seed: int, first: int = 0) -> list[Group]:
        """Play all of them at once, wait for the last one, credit them."""
        config = self.config
        playing = rollouts(
            self.env,
            tasks,
            self.acting(seed),
            rubric=self.rubric,
            group_size=config.group_size,
            concurrency=config.concurrency,
            seed=seed,
        )
        async with playing as stream:
            groups = sorted([group async for group in stream], key=lambda g: g.index)
        await self.credit(groups)
        for index, group in enumerate(groups, first):
            group.index = index
        return groups

    async def credit(self, groups: Sequence[Group]) -> None:
        """Ask the reference, where there is one, then the algorithm."""
        if self.reference is not None:
            played = [t for t in trajectories(groups) if t.trainable and t.score is not None]
            for trajectory, known in zip(played, self.reference.logprobs(played), strict=True):
                trajectory.reference = known
        await credit(self.algorithm, groups)


def lend(start: Callable[[], Any], sampling: Sampling, *, teacher: Callable[[], Any] | None = None) -> Lent:
    """What a run lends to algorithms; `start` makes a copy of the first model whenever one is asked for."""

    def nobody() -> Any:
        raise UsageError("this algorithm learns from a teacher: name a stronger checkpoint with --teacher")

    return Lent(
        max_tokens=sampling.max_tokens, temperature=sampling.temperature, start=start, teacher=teacher or nobody
    )


def equipped(algorithm: Algorithm, lent: Lent) -> Algorithm:
    """The algorithm with what it asks for."""
    return algorithm.equip(lent) if isinstance(algorithm, Equipped) else algorithm


def reference_of(algorithm: Algorithm, lent: Lent) -> Scorer | None:
    """The first model, where the algorithm's loss has a leash to it."""
    return Scorer(lent.start(), temperature=lent.temperature) if algorithm.loss.kl is not None else None


def trajectories(groups: Sequence[Group]) -> list[Trajectory]:
    """All trajectories, in order."""
    return [t for group in groups for rollout in group.rollouts for t in rollout.trajectories]
