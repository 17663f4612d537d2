"""One seat of any environment, for foreign programs to drive: episodes by number, rewards that add up to the score."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import replace
from itertools import islice

from wanderlust.core.contracts import Environment, Limits, Policy, Step, Tool
from wanderlust.core.errors import Failure, UsageError
from wanderlust.core.messages import Message
from wanderlust.core.types import Task
from wanderlust.rollout.stepper import Stepper

FURTHEST = 1_000_000
"""Tasks of an endless split that can be asked for."""


class Driven:
    """Episodes of one environment, one after the other.

    What the rubric makes of an episode beyond what the environment paid comes with the last step. Whoever is done calls
    `close`, so that no task stays behind.
    """

    def __init__(
        self,
        env: Environment,
        *,
        split: str = "train",
        limits: Limits | None = None,
        seat: str = "",
        others: Mapping[str, Policy] | None = None,
    ):
        """`seat` is the caller's, by default the only one; `others` play the other seats."""
        self._env, self._split, self._limits = env, split, limits
        self._seat, self._others = seat or env.seats[0], others
        self._stepper: Stepper | None = None
        self.task: Task | None = None
        self.turns = 0
        self.reward = 0.0
        """Of this episode so far; its score once it is over."""
        self.done = True
        """Whether no episode is under way."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What may be called now."""
        return self._stepper.tools if self._stepper is not None else ()

    async def reset(self, index: int = 0, seed: int = 0, *, split: str = "") -> Step:
        """Begin an episode of the task `index` of the split. UsageError when there is no such task."""
        await self.close()
        self.task = task_at(self._env, split or self._split, index)
        game = Stepper(self._env, self.task, seed=seed, limits=self._limits, seat=self._seat, others=self._others)
        self._stepper, self.turns, self.reward, self.done = game, 0, 0.0, False
        return await self._told(game.reset())

    async def step(self, action: Message) -> Step:
        """Act. UsageError when the episode is over, and before the first."""
        game = self._under_way()
        self.turns += 1
        return await self._told(game.step(action))

    async def finish(self) -> float:
        """The score; an episode that is still under way ends here, as if it had reached a limit."""
        if not self.done:
            await self._told(self._under_way().stop("the driver's end"))
        return self.reward

    async def close(self) -> None:
        """Give up what is under way."""
        if self._stepper is not None:
            game, self._stepper, self.done = self._stepper, None, True
            await game.__aexit__(None, None, None)

    def _under_way(self) -> Stepper:
        if self._stepper is None or self.done:
            raise UsageError("the episode is over: reset() begins another")
        return self._stepper

    async def _told(self, coming: Awaitable[Step]) -> Step:
        """The step, the last one with what the rubric adds; a failure ends the episode."""
        try:
            step = await coming
        except Failure:
            self.done = True
            raise
        self.reward += step.reward
        if not step.done or self._stepper is None:
            return step
        self.done = True
        (mine,) = (t for t in self._stepper.rollout.trajectories if t.seat == self._seat)
        rest = (mine.score.reward if mine.score is not None else self.reward) - self.reward
        self.reward += rest
        return replace(step, reward=step.reward + rest)


def task_at(env: Environment, split: str, index: int) -> Task:
    """The task `index` of a split. UsageError when it has none there."""
    if not 0 <= index < FURTHEST:
        raise UsageError(f"task {index} of {split!r}: a number from 0 to {FURTHEST - 1} is wanted")
    found = next(islice(env.tasks(split), index, None), None)
    if found is None:
        raise UsageError(f"the split {split!r} has no task {index}")
    return found
