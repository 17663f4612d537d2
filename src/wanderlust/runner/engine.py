"""Plays environments: one episode, or ten thousand at once. Failures become data."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Protocol, TypeAlias, cast

from wanderlust.environment import Activity, Agent, Environment, Episode, Limits, current_activity, track
from wanderlust.errors import (
    EnvironmentFailure,
    Failure,
    RubricFailure,
    StopEpisode,
    WanderlustError,
    WorkerFailure,
    boundary,
    one_line,
)
from wanderlust.runner.control import wait_if_paused
from wanderlust.types import Group, GroupRubric, Policy, Rollout, RubricLike, Score, Status, Task, Trajectory

SeatPolicies: TypeAlias = Policy | Mapping[str, Policy]
"""One policy for every seat, or one per seat."""

FIRST_RETRY_SECONDS = 0.5
"""Pause before the first retry of a transient failure; doubles with each further one."""


REPEAT_SEED_STEP = 1_000_003
"""Added to the seed each time a task comes again in the same stream, so that it is not the same episode twice."""


@dataclass(frozen=True, slots=True)
class RolloutJob:
    """One episode to play."""

    task: Task
    seed: int
    sample_index: int = 0
    index: int = 0
    """Position of the task in its stream."""
    group_size: int = 1
    """How many siblings there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """What every rollout of one call shares."""

    env: Environment
    policy: SeatPolicies
    rubric: RubricLike | None = None
    """None: the environment's own."""
    limits: Limits | None = None
    """None: the environment's own."""
    retries: int = 0
    active: set[Activity] = field(default_factory=set)
    """The episodes that are being played, and what each is busy with."""

    @property
    def effective_limits(self) -> Limits:
        """What bounds each episode."""
        return self.limits or self.env.limits

    @property
    def effective_rubric(self) -> RubricLike | None:
        """What scores each episode."""
        return self.rubric or self.env.rubric

    @property
    def compares(self) -> bool:
        """Whether a score is final only when all siblings have been seen together."""
        return bool(getattr(self.effective_rubric, "compares", False))

    async def run(self, job: RolloutJob) -> Rollout:
        """Play and score one episode. Only cancellation and interpreter exits escape."""
        with self._track_activity(job.task):
            return await self._run_episode(job)

    @contextmanager
    def _track_activity(self, task: Task) -> Iterator[None]:
        """Inside, an episode of the task is under way: it can be told what is waited for."""
        activity = Activity(task=task.id, since=time.monotonic())
        before = current_activity.set(activity)
        self.active.add(activity)
        try:
            yield
        finally:
            self.active.discard(activity)
            current_activity.reset(before)

    async def _run_episode(self, job: RolloutJob) -> Rollout:
        agents = self._make_agents(job)
        episode, started = Episode(job.task, agents, job.seed), time.monotonic()
        trajectories = [agent.trajectory for agent in agents.values()]
        result = Rollout(
            task=job.task, seed=job.seed, sample_index=job.sample_index, trajectories=trajectories, state=episode.state
        )
        try:
            async with asyncio.timeout(self.effective_limits.timeout) as clock:
                with boundary(EnvironmentFailure), _RaiseInterruptions(agents):
                    await self.env.run(episode)
        except StopEpisode as stop:
            result.status, result.stop_reason = Status.TRUNCATED, str(stop)
        except Failure as failure:
            if clock.expired():
                result.status, result.stop_reason = Status.TRUNCATED, "timeout"
            else:
                _fail(result, failure)
        except TimeoutError:
            result.status, result.stop_reason = Status.TRUNCATED, "timeout"
        except WanderlustError as error:  # ours, but raised on the environment's side of the wall
            _fail(result, EnvironmentFailure(str(error)))
        finally:
            for agent in agents.values():
                agent.release()
        if result.status is not Status.ERROR:
            await self._score(result, episode)
        result.seconds = time.monotonic() - started
        return result

    async def run_with_retries(self, job: RolloutJob) -> Rollout:
        """Like `run`, but failures that may pass by themselves are tried again `retries` times."""
        for attempt in range(self.retries):
            result = await self.run(job)
            if not result.transient:
                return result
            await asyncio.sleep(FIRST_RETRY_SECONDS * 2**attempt)
        return await self.run(job)

    def _make_agents(self, job: RolloutJob) -> dict[str, Agent]:
        named = self.policy if isinstance(self.policy, Mapping) else dict.fromkeys(self.env.seats, self.policy)
        keys = {seat: f"{job.task.id}/{job.seed}/{job.sample_index}/{seat}" for seat in self.env.seats}
        return {s: Agent(named[s], key=key, seat=s, limits=self.effective_limits) for s, key in keys.items()}

    async def _score(self, result: Rollout, episode: Episode) -> None:
        try:
            async with self._judging():
                for trajectory in result.trajectories:
                    trajectory.score = await self._score_seat(result, trajectory, episode)
        except RubricFailure as failure:
            unscore(result, failure)

    async def compare(self, group: Group) -> None:
        """Let a rubric that compares siblings see those it scored. Its failure is theirs together."""
        scored = [rollout for rollout in group.rollouts if rollout.status is not Status.ERROR]
        if not self.compares or not scored:
            return
        try:
            with self._track_activity(group.task):
                async with self._judging():
                    await self._compare_seats(replace(group, rollouts=scored))
        except RubricFailure as failure:
            for rollout in scored:
                unscore(rollout, failure)

    async def _compare_seats(self, group: Group) -> None:
        rubric = cast(GroupRubric, self.effective_rubric)
        with boundary(RubricFailure):
            for column in zip(*(rollout.trajectories for rollout in group.rollouts), strict=True):
                scores = await rubric.compare(group, column[0].seat)
                for trajectory, score in zip(column, scores, strict=True):
                    trajectory.score = _finite(score)

    @asynccontextmanager
    async def _judging(self) -> AsyncIterator[None]:
        try:
            with track("the rubric"):
                async with asyncio.timeout(self.effective_limits.timeout):
                    yield
        except TimeoutError as error:
            raise RubricFailure(f"no verdict within {self.effective_limits.timeout:g} s") from error
        except RubricFailure:
            raise
        except WanderlustError as error:  # ours, but raised on the rubric's side of the wall, by a judge for instance
            raise RubricFailure(f"{type(error).__name__}: {error}", transient=error.transient) from error

    async def _score_seat(self, result: Rollout, trajectory: Trajectory, episode: Episode) -> Score:
        parts, judge = episode.rewards[trajectory.seat], self.effective_rubric
        trajectory.score = _finite(Score(reward=sum(parts.values()), parts=parts))
        if judge is None:
            return trajectory.score
        with boundary(RubricFailure):
            return _finite(await judge.score(result, trajectory))


def _finite(score: Score) -> Score:
    """The same score. Raises RubricFailure that names the first value which is no finite number."""
    if not isinstance(score, Score):
        raise RubricFailure(f"the rubric returned {type(score).__name__!r} instead of a Score")
    for values in (score.parts, score.metrics, {"the reward": score.reward}):
        for name, value in values.items():
            if not isinstance(value, int | float) or not isfinite(value):
                raise RubricFailure(f"{name} is {one_line(repr(value))}, which is no finite number")
    return score


@dataclass(frozen=True, slots=True)
class _RaiseInterruptions:
    """A seat that was cut short ends the episode by that, whatever the environment made of it.

    An agent's own code may catch everything, wrap it or go on without an answer: none of that is the model's score.
    """

    agents: Mapping[str, Agent]

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, Exception):
            for agent in self.agents.values():
                if agent.interruption is not None and agent.interruption is not error:
                    raise agent.interruption from error


def unscore(result: Rollout, failure: Failure) -> None:
    """What was played counts as failed, and for nothing."""
    for trajectory in result.trajectories:
        trajectory.score = None
    _fail(result, failure)


def _fail(result: Rollout, failure: Failure) -> None:
    result.status, result.stop_reason, result.error = Status.ERROR, type(failure).__name__, str(failure)
    result.transient = failure.transient


async def rollout(
    env: Environment,
    task: Task,
    policy: SeatPolicies,
    *,
    rubric: RubricLike | None = None,
    seed: int = 0,
    limits: Limits | None = None,
) -> Rollout:
    """Play one episode and score it. Failures are recorded, never raised; only cancellation escapes.

    Without `rubric` and `limits` the environment's own are used.
    """
    settings = RolloutSettings(env=env, policy=policy, rubric=rubric, limits=limits)
    result = await settings.run(RolloutJob(task, seed))
    await settings.compare(Group(task=task, rollouts=[result]))
    return result


def rollout_jobs(tasks: Iterable[Task], *, seed: int = 0, group_size: int = 1) -> Iterator[RolloutJob]:
    """One job per sibling, in the order of the tasks; a task that comes again gets another seed."""
    repeats: Counter[str] = Counter()
    for index, task in enumerate(tasks):
        again = seed + REPEAT_SEED_STEP * repeats[task.id]
        repeats[task.id] += 1
        for sample_index in range(group_size):
            yield RolloutJob(task, again, sample_index, index, group_size)


RolloutFn: TypeAlias = Callable[[RolloutJob], Awaitable[Rollout]]
"""Plays one episode, tried again where that makes sense."""


class WorkerBackend(Protocol):
    """Whoever plays instead of this process: other processes, other machines (`ray_backend.py`)."""

    @property
    def concurrency(self) -> int:
        """Episodes at once, of all its workers together."""
        ...

    def started(self, settings: RolloutSettings) -> AbstractAsyncContextManager[RolloutFn]:
        """The crew at work for `settings`; at the end of the block nothing of it goes on."""
        ...


@dataclass(slots=True)
class WorkerPool:
    """Workers that pull jobs lazily from one iterator and put what was played into a bounded queue."""

    settings: RolloutSettings
    jobs: Iterator[RolloutJob]
    run_rollout: RolloutFn
    concurrency: int
    whole_groups: bool
    finished: asyncio.Queue[Group | Exception | None] = field(init=False)
    partial_groups: dict[int, dict[int, Rollout]] = field(default_factory=dict)
    """Of groups that are not whole yet."""

    def __post_init__(self) -> None:
        self.finished = asyncio.Queue(maxsize=self.concurrency)

    async def work(self) -> None:
        """Play until there are no jobs left."""
        for job in self.jobs:  # one iterator for all workers: back-pressure for free
            await wait_if_paused()
            group = self._group(job, await self.run_rollout(job))
            if group is not None:
                await self.settings.compare(group)
                await self.finished.put(group)

    def _group(self, job: RolloutJob, result: Rollout) -> Group | None:
        if not self.whole_groups:
            return Group(task=job.task, rollouts=[result], index=job.index)
        rollouts_by_sample = self.partial_groups.setdefault(job.index, {})
        rollouts_by_sample[job.sample_index] = result
        if len(rollouts_by_sample) < job.group_size:
            return None
        del self.partial_groups[job.index]
        return Group(
            task=job.task, rollouts=[rollouts_by_sample[i] for i in sorted(rollouts_by_sample)], index=job.index
        )

    async def produce(self) -> None:
        """Let the workers work, and say when they are done."""
        end: Exception | None = None
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self.concurrency):
                    workers.create_task(self.work())
        except ExceptionGroup as bug:
            first = bug.exceptions[0]
            end = first if isinstance(first, WorkerFailure) else bug
        await self.finished.put(end)

    async def next(self) -> Group | None:
        """The group that finished next; None when all are over."""
        item = await self.finished.get()
        if isinstance(item, Group):
            return item
        self.finished.put_nowait(item)  # whoever asks again hears the same
        if item is not None:
            raise item
        return None

    async def ready(self) -> list[Group]:
        """All groups that have finished and were not taken, at least one; none when all are over."""
        first = await self.next()
        out = [first] if first else []
        while out and not self.finished.empty() and (another := await self.next()):
            out.append(another)
        return out

    async def groups(self) -> AsyncIterator[Group]:
        """One after the other, as they finish."""
        while group := await self.next():
            yield group


@asynccontextmanager
async def open_worker_pool(
    settings: RolloutSettings,
    jobs: Iterable[RolloutJob],
    *,
    concurrency: int | WorkerBackend = 64,
    whole_groups: bool = False,
) -> AsyncIterator[WorkerPool]:
    """Episodes as they finish; jobs are pulled lazily, so an endless stream is fine.

    Each comes as a group of its own, and with `whole_groups`, or where the rubric compares siblings, with all its siblings.
    Leaving the block, however it happens, cancels what is still running. A bug in the stream of jobs surfaces as an
    ExceptionGroup, and a crew of which nobody is left as a WorkerFailure.
    """
    at_once = concurrency if isinstance(concurrency, int) else concurrency.concurrency
    async with (
        nullcontext(settings.run_with_retries)
        if isinstance(concurrency, int)
        else concurrency.started(settings) as run_rollout
    ):
        stream = WorkerPool(settings, iter(jobs), run_rollout, at_once, whole_groups or settings.compares)
        producer = asyncio.create_task(stream.produce())
        try:
            yield stream
        finally:
            producer.cancel()
            await asyncio.gather(producer, return_exceptions=True)


@asynccontextmanager
async def rollouts(
    env: Environment,
    tasks: Iterable[Task],
    policy: SeatPolicies,
    *,
    rubric: RubricLike | None = None,
    group_size: int = 1,
    concurrency: int | WorkerBackend = 64,
    retries: int = 1,
    seed: int = 0,
    limits: Limits | None = None,
) -> AsyncIterator[AsyncIterator[Group]]:
    """Groups as they complete; tasks are pulled lazily, so an endless stream is fine.

    `async with rollouts(...) as groups: async for group in groups: ...`

    Siblings of a group share `seed` (the environment's draws) and differ in their number (the policy's draws);
    a task that comes again in the stream is played under another seed. Transient failures are tried again
    `retries` times. `concurrency` is how many are played at once, or the crew that plays them. Leaving the block,
    however it happens, cancels what is still running. A bug in the task stream surfaces as an ExceptionGroup, and a
    crew of which nobody is left as a WorkerFailure.
    """
    settings = RolloutSettings(env=env, policy=policy, rubric=rubric, limits=limits, retries=retries)
    jobs = rollout_jobs(tasks, seed=seed, group_size=group_size)
    async with open_worker_pool(settings, jobs, concurrency=concurrency, whole_groups=True) as stream:
        yield stream.groups()
