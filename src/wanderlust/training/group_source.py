"""Whoever plays: tasks in, credited groups out.

Where the groups of a step come from: played when they are asked for, or (`flow.py`) ahead of the trainer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.policies.local import Explorer, Sampling, Suggest
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.runner.engine import rollouts
from wanderlust.tasks.curriculum import Curriculum, Telling
from wanderlust.training.algorithms.base import Algorithm, Equipped, Lent, Played, Selecting, credit
from wanderlust.training.reference_model import Scorer
from wanderlust.types import Group, Policy, Rubric, Task, Trajectory


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


AGAIN = 1_000_000_007
"""Added to the seed each time that a step plays more groups."""

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Harvest:
    """What a step learns from."""

    groups: list[Group] = field(default_factory=list)
    """Credited, and numbered in their order."""
    waited: float = 0.0
    """Seconds until they were there."""
    figures: dict[str, float] = field(default_factory=dict)


class Source(Protocol):
    """Hands out the groups of a step; owns the curriculum. What it has begun ends with the block it is entered for."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def harvest(self, step: int) -> Harvest:
        """Wait for the groups of a step."""
        ...

    def state(self) -> dict[str, Any]:
        """Plain data that `restore` takes back: between two steps, all that is needed to lose no group."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        ...


class Rounds:
    """Synchronous: a step's groups are played by the weights that learn from them, and the trainer waits for all."""

    def __init__(self, player: Player, curriculum: Curriculum, *, count: int, algorithm: Algorithm | None = None):
        """`count` groups a step; the `algorithm` may ask for more in place of those that are no use to it."""
        self.player, self.curriculum, self.count = player, curriculum, count
        self.keeps = algorithm if isinstance(algorithm, Selecting) else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def harvest(self, step: int) -> Harvest:
        """Play the groups of a step; those that are no use are replaced as often as the algorithm likes."""
        began, out, missing = time.monotonic(), Harvest(), self.count
        for again in range(1 + refills(self.keeps)):
            if not missing:
                break
            tasks = self.curriculum.next(step, missing)
            newest = await self.player.play(tasks, seed=step + AGAIN * again, first=len(out.groups))
            for group in newest:
                self.curriculum.observe(group)
            out.groups += newest
            missing -= useful(newest, self.keeps)
        out.waited = time.monotonic() - began
        out.figures = told(self.curriculum)
        return out

    def state(self) -> dict[str, Any]:
        """The curriculum's."""
        return self.curriculum.state()

    def restore(self, state: dict[str, Any]) -> None:
        """The curriculum's."""
        self.curriculum.restore(state)


def refills(selects: Selecting | None) -> int:
    """How many times groups of no use are replaced."""
    return selects.refills if selects is not None else 0


def useful(groups: Sequence[Group], selects: Selecting | None) -> int:
    """How many groups need no replacement."""
    return sum(map(selects.keeps, groups)) if selects is not None else len(groups)


def told(curriculum: Curriculum) -> dict[str, float]:
    """The curriculum's own figures, where it has any."""
    return curriculum.figures() if isinstance(curriculum, Telling) else {}


async def beside(work: Coroutine[Any, Any, T]) -> T:
    """Run what computes for long in another thread, with an event loop of its own, so that this one goes on."""
    return await asyncio.to_thread(asyncio.run, work)
