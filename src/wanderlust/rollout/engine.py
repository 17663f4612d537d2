"""Plays environments: one episode, or ten thousand at once. Failures become data."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from wanderlust.core.contracts import Agent, Environment, Episode, Limits, Policy, Rubric
from wanderlust.core.errors import EnvironmentFailure, Failure, RubricFailure, Stop, WanderlustError, boundary
from wanderlust.core.types import Group, Rollout, Score, Status, Task, Trajectory

Policies: TypeAlias = Policy | Mapping[str, Policy]
"""One policy for every seat, or one per seat."""

RETRY_SECONDS = 0.5
"""Pause before the first retry of a transient failure; doubles with each further one."""


REPETITION = 1_000_003
"""Added to the seed each time a task comes again in the same stream, so that it is not the same episode twice."""


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to play."""

    task: Task
    seed: int
    sibling: int = 0
    index: int = 0
    """Position of the task in its stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """What every rollout of one call shares."""

    env: Environment
    policy: Policies
    rubric: Rubric | None
    limits: Limits
    retries: int = 0

    async def once(self, job: Job) -> Rollout:
        """Play and score one episode. Only cancellation and interpreter exits escape."""
        agents = self._seat(job)
        episode, started = Episode(job.task, agents, job.seed), time.monotonic()
        trajectories = [agent.trajectory for agent in agents.values()]
        result = Rollout(
            task=job.task, seed=job.seed, sibling=job.sibling, trajectories=trajectories, state=episode.state
        )
        try:
            async with asyncio.timeout(self.limits.timeout) as clock:
                with boundary(EnvironmentFailure), _Unswallowed(agents):
                    await self.env.run(episode)
        except Stop as stop:
            result.status, result.stop = Status.TRUNCATED, str(stop)
        except Failure as failure:
            if clock.expired():
                result.status, result.stop = Status.TRUNCATED, "timeout"
            else:
                _fail(result, failure)
        except TimeoutError:
            result.status, result.stop = Status.TRUNCATED, "timeout"
        except WanderlustError as error:  # ours, but raised on the environment's side of the wall
            _fail(result, EnvironmentFailure(str(error)))
        finally:
            for agent in agents.values():
                agent.release()
        if result.status is not Status.ERROR:
            await self._score(result, episode)
        result.seconds = time.monotonic() - started
        return result

    async def stubbornly(self, job: Job) -> Rollout:
        """Like `once`, but failures that may pass by themselves are tried again `retries` times."""
        for attempt in range(self.retries):
            result = await self.once(job)
            if not result.transient:
                return result
            await asyncio.sleep(RETRY_SECONDS * 2**attempt)
        return await self.once(job)

    def _seat(self, job: Job) -> dict[str, Agent]:
        named = self.policy if isinstance(self.policy, Mapping) else dict.fromkeys(self.env.seats, self.policy)
        keys = {seat: f"{job.task.id}/{job.seed}/{job.sibling}/{seat}" for seat in self.env.seats}
        return {s: Agent(named[s], key=key, seat=s, limits=self.limits) for s, key in keys.items()}

    async def _score(self, result: Rollout, episode: Episode) -> None:
        try:
            for trajectory in result.trajectories:
                trajectory.score = await self._judge(result, trajectory, episode)
        except WanderlustError as error:  # a judge's policy may fail too: that is still the rubric's wall
            _unscore(result, error)

    async def compare(self, group: Group) -> None:
        """Let a rubric that compares siblings see those it scored. Its failure is theirs together."""
        compare = getattr(self.rubric, "compare", None)  # a protocol's isinstance takes longer than many a rubric
        scored = [rollout for rollout in group.rollouts if rollout.status is not Status.ERROR]
        if compare is None or not scored:
            return
        shown = replace(group, rollouts=scored)
        try:
            with boundary(RubricFailure):
                for column in zip(*(rollout.trajectories for rollout in scored), strict=True):
                    scores = await compare(shown, column[0].seat)
                    for trajectory, score in zip(column, scores, strict=True):
                        trajectory.score = score
        except WanderlustError as error:
            for rollout in scored:
                _unscore(rollout, error)

    async def _judge(self, result: Rollout, trajectory: Trajectory, episode: Episode) -> Score:
        parts = episode.rewards[trajectory.seat]
        trajectory.score = Score(reward=sum(parts.values()), parts=parts)
        if self.rubric is None:
            return trajectory.score
        with boundary(RubricFailure):
            return await self.rubric.score(result, trajectory)


@dataclass(frozen=True, slots=True)
class _Unswallowed:
    """A seat that was cut short ends the episode by that, whatever the environment made of it.

    An agent's own code may catch everything, wrap it or go on without an answer: none of that is the model's score.
    """

    agents: Mapping[str, Agent]

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, Exception):
            for agent in self.agents.values():
                if agent.cut is not None and agent.cut is not error:
                    raise agent.cut from error


def _unscore(result: Rollout, error: WanderlustError) -> None:
    for trajectory in result.trajectories:
        trajectory.score = None
    if not isinstance(error, RubricFailure):
        error = RubricFailure(f"{type(error).__name__}: {error}", transient=error.transient)
    _fail(result, error)


def _fail(result: Rollout, failure: Failure) -> None:
    result.status, result.stop, result.error = Status.ERROR, type(failure).__name__, str(failure)
    result.transient = failure.transient


async def rollout(
    env: Environment,
    task: Task,
    policy: Policies,
    *,
    rubric: Rubric | None = None,
    seed: int = 0,
    limits: Limits | None = None,
) -> Rollout:
    """Play one episode and score it. Failures are recorded, never raised; only cancellation escapes.

    Without `rubric` and `limits` the environment's own are used.
    """
    play = Play(env=env, policy=policy, rubric=rubric or env.rubric, limits=limits or env.limits)
    played = await play.once(Job(task, seed))
    await play.compare(Group(task=task, rollouts=[played]))
    return played


def _jobs(tasks: Iterable[Task], seed: int, group_size: int) -> Iterator[Job]:
    seen: Counter[str] = Counter()
    for index, task in enumerate(tasks):
        again = seed + REPETITION * seen[task.id]
        seen[task.id] += 1
        for sibling in range(group_size):
            yield Job(task, again, sibling, index)


@dataclass(slots=True)
class _Stream:
    """Workers that pull jobs lazily from one generator and put whole groups into a bounded queue."""

    play: Play
    jobs: Iterator[Job]
    group_size: int
    concurrency: int
    finished: asyncio.Queue[Group | ExceptionGroup[Exception] | None] = field(init=False)
    siblings: dict[int, dict[int, Rollout]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.finished = asyncio.Queue(maxsize=self.concurrency)

    async def work(self) -> None:
        for job in self.jobs:  # one generator for all workers: back-pressure for free
            mine = self.siblings.setdefault(job.index, {})
            mine[job.sibling] = await self.play.stubbornly(job)
            if len(mine) == self.group_size:
                del self.siblings[job.index]
                group = Group(task=job.task, rollouts=[mine[i] for i in sorted(mine)], index=job.index)
                await self.play.compare(group)
                await self.finished.put(group)

    async def produce(self) -> None:
        end = None
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self.concurrency):
                    workers.create_task(self.work())
        except ExceptionGroup as bug:
            end = bug
        await self.finished.put(end)

    async def groups(self) -> AsyncIterator[Group]:
        while isinstance(item := await self.finished.get(), Group):
            yield item
        if item is not None:
            raise item


@asynccontextmanager
async def rollouts(
    env: Environment,
    tasks: Iterable[Task],
    policy: Policies,
    *,
    rubric: Rubric | None = None,
    group_size: int = 1,
    concurrency: int = 64,
    retries: int = 1,
    seed: int = 0,
    limits: Limits | None = None,
) -> AsyncIterator[AsyncIterator[Group]]:
    """Groups as they complete; tasks are pulled lazily, so an endless stream is fine.

    `async with rollouts(...) as groups: async for group in groups: ...`

    Siblings of a group share `seed` (the environment's draws) and differ in their number (the policy's draws);
    a task that comes again in the stream is played under another seed. Transient failures are tried again
    `retries` times. Leaving the block, however it happens, cancels what is still running. A bug in the task
    stream surfaces as an ExceptionGroup.
    """
    play = Play(
        env=env,
        policy=policy,
        rubric=rubric or env.rubric,
        limits=limits or env.limits,
        retries=retries,
    )
    stream = _Stream(play, _jobs(tasks, seed, group_size), group_size, concurrency)
    producer = asyncio.create_task(stream.produce())
    try:
        yield stream.groups()
    finally:
        producer.cancel()
        await asyncio.gather(producer, return_exceptions=True)
