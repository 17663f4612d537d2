"""Drive one seat of any environment from outside, with `reset` and `step`.

`Stepper` drives one episode; `DrivenSeat` drives episodes by task index, with rewards that add up to the score.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Self

from wanderlust.environment import Environment, Episode, Limits, Step, WrappedEnvironment
from wanderlust.errors import EnvironmentFailure, Failure, RubricFailure, StopEpisode, UsageError, boundary
from wanderlust.runner.engine import rollout
from wanderlust.types import Completion, Message, Policy, Rollout, Status, Task, Tool, assistant


class Stepper:
    """`async with Stepper(env, task) as game: step = await game.reset() ... step = await game.step("e4")`

    Runs the environment's own `run`, with the caller in one seat; the rewards of the steps are the environment's. A
    failure of the environment, of another seat or of the rubric is raised to the caller. Leaving the block ends the
    episode and its task.
    """

    def __init__(
        self,
        env: Environment,
        task: Task,
        *,
        seed: int = 0,
        limits: Limits | None = None,
        seat: str = "",
        others: Mapping[str, Policy] | None = None,
    ):
        """`seat` is the caller's, by default the only one; `others` play the other seats."""
        self.seat = seat or env.seats[0]
        missing = set(env.seats) - {self.seat} - set(others or {})
        if missing or self.seat not in env.seats:
            raise UsageError(f"the seats are {', '.join(env.seats)}; no policy for {', '.join(missing) or seat!r}")
        self._env, self._task, self._seed, self._limits = env, task, seed, limits
        self._others = dict(others or {})
        self._driver: _Driver | None = None
        self._observed = _ObservedEnvironment(env)
        self._task_under_way: asyncio.Task[Rollout] | None = None
        self._rewarded = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    @property
    def rollout(self) -> Rollout:
        """The scored rollout of the last episode; `stop_reason` says why it ended. UsageError before its end."""
        if self._task_under_way is None or not self._task_under_way.done() or self._task_under_way.cancelled():
            raise UsageError("the episode has not ended")
        return self._task_under_way.result()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Tools of the seat's current turn."""
        return self._driver.tools if self._driver is not None and not self._driver.over else ()

    async def reset(self) -> Step:
        """Begin the episode, or begin it again; returns the seat's first observation."""
        await self._end()
        self._driver, self._observed, self._rewarded = _Driver(), _ObservedEnvironment(self._env), 0.0
        policies = {**self._others, self.seat: self._driver}
        play = rollout(self._observed, self._task, policies, seed=self._seed, limits=self._limits)
        self._task_under_way = asyncio.create_task(play)
        return await self._next(self._driver, self._task_under_way)

    async def step(self, action: Message | str) -> Step:
        """Act; returns the next observation, or a last step with `done` and the final state as `info`.

        UsageError when it is not the caller's turn: before `reset` and after the last step.
        """
        if self._driver is None or self._task_under_way is None:
            raise UsageError("reset() comes first")
        self._driver.answer(action if isinstance(action, Message) else assistant(action))
        return await self._next(self._driver, self._task_under_way)

    async def stop(self, why: str = "stopped") -> Step:
        """End the episode now, as a limit does, so that it is scored; returns its last step."""
        if self._driver is None or self._task_under_way is None:
            raise UsageError("reset() comes first")
        self._driver.answer(StopEpisode(why))
        return await self._next(self._driver, self._task_under_way)

    async def _next(self, driver: _Driver, playing: asyncio.Task[Rollout]) -> Step:
        observation = driver.observation
        either: set[asyncio.Future[Any]] = {observation, playing}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not playing.done():
            return Step(observation.result(), self._reward())
        driver.over = True
        played = playing.result()
        if played.status is Status.ERROR:
            raise self._observed.failure or RubricFailure(played.error or "")
        return Step((), self._reward(), done=True, info=dict(played.state))

    def _reward(self) -> float:
        episode = self._observed.episode
        total = sum(episode.rewards[self.seat].values()) if episode else 0.0
        new, self._rewarded = total - self._rewarded, total
        return new

    async def _end(self) -> None:
        if self._task_under_way is not None:
            self._task_under_way.cancel()
            await asyncio.gather(self._task_under_way, return_exceptions=True)


class _Driver:
    """A policy whose answers come from the caller of the stepper, one rendezvous per turn."""

    def __init__(self) -> None:
        self.observation: asyncio.Future[tuple[Message, ...]] = asyncio.get_running_loop().create_future()
        self.over = False
        self.tools: tuple[Tool, ...] = ()
        self._reply: asyncio.Future[Message] | None = None
        self._messages: list[Message] = []

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        prefix_length = len(self._messages) if list(messages[: len(self._messages)]) == self._messages else 0
        self._messages, self.tools = list(messages), tuple(tools)
        self._reply = asyncio.get_running_loop().create_future()
        self.observation.set_result(tuple(messages[prefix_length:]))
        action = await self._reply
        self._messages.append(action)
        return Completion(message=action)

    def answer(self, action: Message | StopEpisode) -> None:
        if self.over or self._reply is None or self._reply.done():
            raise UsageError("it is not this seat's turn: reset() begins an episode")
        self.observation = asyncio.get_running_loop().create_future()
        if isinstance(action, StopEpisode):
            self._reply.set_exception(action)
        else:
            self._reply.set_result(action)


class _ObservedEnvironment(WrappedEnvironment):
    """The same environment, which records its episode and its failure."""

    def __init__(self, env: Environment):
        self.env = env
        self.episode: Episode | None = None
        self.failure: Failure | None = None

    async def run(self, episode: Episode) -> None:
        self.episode = episode
        try:
            with boundary(EnvironmentFailure):
                await self.env.run(episode)
        except Failure as failure:
            self.failure = failure
            raise


MAX_TASK_INDEX = 1_000_000
"""First tasks of an endless split that can be requested."""


class DrivenSeat:
    """Episodes of one environment, one after the other.

    The reward of the last step includes the difference between the rubric's score and the environment's rewards. Call
    `close` after use, so that no asyncio task is left.
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
        """Sum of this episode's rewards so far; its score at the end."""
        self.done = True
        """Whether no episode is in progress."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Tools of the seat's current turn."""
        return self._stepper.tools if self._stepper is not None else ()

    async def reset(self, index: int = 0, seed: int = 0, *, split: str = "") -> Step:
        """Begin an episode of the task `index` of the split. UsageError when there is no such task."""
        await self.close()
        self.task = task_by_index(self._env, split or self._split, index)
        game = Stepper(self._env, self.task, seed=seed, limits=self._limits, seat=self._seat, others=self._others)
        self._stepper, self.turns, self.reward, self.done = game, 0, 0.0, False
        return await self._finish_step(game.reset())

    async def step(self, action: Message) -> Step:
        """Act. UsageError when the episode is over, and before the first."""
        game = self._under_way()
        self.turns += 1
        return await self._finish_step(game.step(action))

    async def finish(self) -> float:
        """End an episode in progress as a limit does; returns the score."""
        if not self.done:
            await self._finish_step(self._under_way().stop("the driver's end"))
        return self.reward

    async def close(self) -> None:
        """Cancel an episode in progress."""
        if self._stepper is not None:
            game, self._stepper, self.done = self._stepper, None, True
            await game.__aexit__(None, None, None)

    def _under_way(self) -> Stepper:
        if self._stepper is None or self.done:
            raise UsageError("the episode is over: reset() begins another")
        return self._stepper

    async def _finish_step(self, coming: Awaitable[Step]) -> Step:
        """Await the step, and add the rubric's part to the last one; a failure ends the episode."""
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


def task_by_index(env: Environment, split: str, index: int) -> Task:
    """The task `index` of a split. UsageError when it has none there."""
    if not 0 <= index < MAX_TASK_INDEX:
        raise UsageError(f"task {index} of {split!r}: from 0 to {MAX_TASK_INDEX - 1} is wanted")
    task = next(islice(env.tasks(split), index, None), None)
    if task is None:
        raise UsageError(f"the split {split!r} has no task {index}")
    return task
