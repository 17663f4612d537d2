"""Run environments: one episode, or thousands concurrently. Failures are recorded, not raised."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from typing import Any, Protocol, TypeAlias, TypeVar

from wanderlust.agent import Activity, Agent, current_activity, track
from wanderlust.agent.limits import Spending
from wanderlust.agent.play import Play
from wanderlust.environment import Environment, Episode, Limits
from wanderlust.errors import (
    EnvironmentFailure,
    PolicyRefused,
    RubricFailure,
    StopEpisode,
    WanderlustError,
    WorkerFailure,
    boundary,
    one_line,
)
from wanderlust.runner.failures import RefusalGuard, unscore
from wanderlust.runner.pause import wait_if_paused
from wanderlust.types import Group, GroupRubric, Policy, Rollout, RubricLike, Score, Status, Task

SeatPolicies: TypeAlias = Policy | Mapping[str, Policy]
"""One policy for every seat, or one per seat."""

FIRST_RETRY_SECONDS = 0.5
"""Pause before the first retry of a transient failure; doubles with each further one."""


DEFAULT_CONCURRENCY = 64
"""Episodes at once, where nothing else is asked for."""
REPEAT_SEED_STEP = 1_000_003
"""Added to the seed each time a task is repeated in the same stream, so that its episode differs."""


@dataclass(frozen=True, slots=True)
class RolloutJob:
    """One episode to play."""

    task: Task
    seed: int
    sample_index: int = 0
    index: int = 0
    """Position of the task in its stream."""
    group_size: int = 1
    """Number of samples in the group."""


@dataclass(slots=True, kw_only=True)
class RolloutSettings:
    """Settings shared by all rollouts of one call."""

    env: Environment
    policy: SeatPolicies
    rubric: RubricLike | None = None
    """None: the environment's own."""
    limits: Limits | None = None
    """None: the environment's own."""
    retries: int = 0
    spending: Spending = field(default_factory=Spending)
    """What all its episodes in this process have used; holds the prices."""
    refusals: RefusalGuard = field(default_factory=RefusalGuard)
    active: set[Activity] = field(default_factory=set)
    """The episodes under way, and the current step of each."""
    effective_limits: Limits = field(init=False)
    """Limits of each episode."""
    effective_rubric: RubricLike | None = field(init=False)
    """Rubric of each episode."""
    compares: bool = field(init=False)
    """Whether scores are final only after the samples of a group have been compared."""

    def __post_init__(self) -> None:
        self.effective_limits = self.limits or self.env.limits
        self.effective_rubric = self.rubric or self.env.rubric
        rubric = self.effective_rubric
        self.compares = isinstance(rubric, GroupRubric) and rubric.compares

    @contextmanager
    def _track_activity(self, task: Task) -> Iterator[None]:
        """Record an episode of the task as under way, for reports of what is waited for."""
        activity = Activity(task=task.id, since=time.monotonic())
        before = current_activity.set(activity)
        self.active.add(activity)
        try:
            yield
        finally:
            self.active.discard(activity)
            current_activity.reset(before)

    async def run(self, job: RolloutJob) -> Rollout:
        """Run and score one episode. Only cancellation and interpreter exits are raised."""
        named = self.policy if isinstance(self.policy, Mapping) else dict.fromkeys(self.env.seats, self.policy)
        keys = {seat: f"{job.task.id}/{job.seed}/{job.sample_index}/{seat}" for seat in self.env.seats}
        limits, spending = self.effective_limits, Spending(prices=self.spending.prices, run=self.spending)
        frozen = self.env.frozen_seats
        named = {**named, **frozen}
        make = partial(Agent, limits=limits, spending=spending, play=Play())
        agents = {s: make(named[s], key=key, seat=s, trainable=s not in frozen) for s, key in keys.items()}
        episode, started = Episode(job.task, agents, job.seed), time.monotonic()
        trajectories = [agent.trajectory for agent in agents.values()]
        result = Rollout(
            task=job.task, seed=job.seed, sample_index=job.sample_index, trajectories=trajectories, state=episode.state
        )
        with self._track_activity(job.task):
            try:
                with episode.play.limited(limits.timeout):
                    await self._run_environment(episode)
            except StopEpisode as stop:
                result.status, result.stop_reason = Status.TRUNCATED, stop.reason
            except WanderlustError as error:
                unscore(result, error)
            finally:
                for agent in agents.values():
                    agent.release()
            if result.status is not Status.ERROR:
                await self._score(result, episode)
        result.seconds = time.monotonic() - started
        return result

    async def _run_environment(self, episode: Episode) -> None:
        """Play the episode; raise what ended it, where that was no ordinary end."""
        error: WanderlustError | None = None
        try:
            with boundary(EnvironmentFailure):
                await self.env.run(episode)
        except SystemExit as leaving:  # as a parser of command lines does; the others go on
            raise EnvironmentFailure(f"it called sys.exit({leaving.code!r})") from leaving
        except WanderlustError as raised:
            error = raised
        if (end := episode.ending(error)) is not None:
            raise end from (error if end is not error else error.__cause__)

    async def run_with_retries(self, job: RolloutJob) -> Rollout:
        """Like `run`, but transient failures are tried again `retries` times."""
        for attempt in range(self.retries):
            result = await self.run(job)
            if not result.transient:
                return result
            await asyncio.sleep(FIRST_RETRY_SECONDS * 2**attempt)
        return await self.run(job)

    async def _score(self, result: Rollout, episode: Episode) -> None:
        try:
            async with self._judging():
                for trajectory in result.trajectories:
                    parts, judge = episode.rewards[trajectory.seat], self.effective_rubric
                    trajectory.score = finite_score(Score(reward=sum(parts.values()), parts=parts))
                    if judge is not None:
                        with boundary(RubricFailure):
                            trajectory.score = finite_score(await judge.score(result, trajectory))
        except RubricFailure as failure:
            unscore(result, failure)

    async def compare(self, group: Group) -> None:
        """Compare the scored samples of a group, where the rubric does. Its failure is that of all of them."""
        scored = [rollout for rollout in group.rollouts if rollout.status is not Status.ERROR]
        rubric = self.effective_rubric
        if not self.compares or not isinstance(rubric, GroupRubric) or not scored:
            return
        try:
            with self._track_activity(group.task):
                async with self._judging():
                    await compare_seats(rubric, replace(group, rollouts=scored))
        except RubricFailure as failure:
            for rollout in scored:
                unscore(rollout, failure)

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
        except WanderlustError as error:  # raised inside the rubric, by a judge for instance
            line = f"{type(error).__name__}: {error}"
            raise RubricFailure(line, transient=error.transient, refusal=error.refusal) from error


async def compare_seats(rubric: GroupRubric, group: Group) -> None:
    """Score a group's rollouts together, seat by seat. RubricFailure where the rubric fails or gives no finite number.

    Errors of this library that the rubric raises are passed on.
    """
    with boundary(RubricFailure):
        for column in zip(*(rollout.trajectories for rollout in group.rollouts), strict=True):
            scores = await rubric.compare(group, column[0].seat)
            for trajectory, score in zip(column, scores, strict=True):
                trajectory.score = finite_score(score)


def finite_score(score: Score) -> Score:
    """Return the same score. Raises RubricFailure that names the first value which is no finite number."""
    if not isinstance(score, Score):
        raise RubricFailure(f"the rubric returned {type(score).__name__!r} instead of a Score")
    for values in (score.parts, score.metrics, {"the reward": score.reward}):
        for name, value in values.items():
            if not isinstance(value, int | float) or not isfinite(value):
                raise RubricFailure(f"{name} is {one_line(repr(value))}, which is no finite number")
    return score


async def rollout(
    env: Environment,
    task: Task,
    policy: SeatPolicies,
    *,
    rubric: RubricLike | None = None,
    seed: int = 0,
    limits: Limits | None = None,
) -> Rollout:
    """Run one episode and score it. Failures are recorded, never raised; only cancellation is.

    Without `rubric` and `limits` the environment's own are used.
    """
    settings = RolloutSettings(env=env, policy=policy, rubric=rubric, limits=limits)
    result = await settings.run(RolloutJob(task, seed))
    await settings.compare(Group(task=task, rollouts=[result]))
    return result


def rollout_jobs(tasks: Iterable[Task], *, seed: int = 0, group_size: int = 1) -> Iterator[RolloutJob]:
    """Yield one job per sample, in the order of the tasks; a repeated task gets another seed."""
    repeats: Counter[str] = Counter()
    for index, task in enumerate(tasks):
        again = seed + REPEAT_SEED_STEP * repeats[task.id]
        repeats[task.id] += 1
        for sample_index in range(group_size):
            yield RolloutJob(task, again, sample_index, index, group_size)


RolloutFn: TypeAlias = Callable[[RolloutJob], Awaitable[Rollout]]
"""Runs one episode, transient failures with retries."""


class WorkerBackend(Protocol):
    """Runs episodes in other processes or on other machines (`runner/ray.py`)."""

    @property
    def concurrency(self) -> int:
        """Concurrent episodes of all workers together."""
        ...

    def started(self, settings: RolloutSettings) -> AbstractAsyncContextManager[RolloutFn]:
        """Prepare the workers for `settings`; at the end of the block their episodes are cancelled."""
        ...


@dataclass(slots=True)
class WorkerPool:
    """Workers that pull jobs lazily from one iterator and put finished groups into a bounded queue."""

    settings: RolloutSettings
    jobs: Iterator[RolloutJob]
    run_rollout: RolloutFn
    concurrency: int
    whole_groups: bool
    finished: asyncio.Queue[Group | Exception | None]
    partial_groups: dict[int, dict[int, Rollout]] = field(default_factory=dict)
    """Rollouts of incomplete groups, by group index and sample index."""

    async def work(self) -> None:
        """Run jobs until there are none left."""
        for job in self.jobs:  # one iterator for all workers gives back-pressure
            await wait_if_paused()
            guard = self.settings.refusals
            await guard.start()
            result = None
            try:
                result = await self.run_rollout(job)
                await self._hand_over(job, result)
            finally:
                guard.finish(result)
            guard.check()

    async def _hand_over(self, job: RolloutJob, result: Rollout) -> None:
        """Put the rollout on the queue, or its group as soon as that is complete."""
        rollouts = [result]
        if self.whole_groups:
            rollouts_by_sample = self.partial_groups.setdefault(job.index, {})
            rollouts_by_sample[job.sample_index] = result
            if len(rollouts_by_sample) < job.group_size:
                return
            del self.partial_groups[job.index]
            rollouts = [rollouts_by_sample[i] for i in sorted(rollouts_by_sample)]
        group = Group(task=job.task, rollouts=rollouts, index=job.index)
        await self.settings.compare(group)
        await self.finished.put(group)

    async def produce(self) -> None:
        """Run the workers over the job iterator; then put None on the queue, or the exception that ended them."""
        end: Exception | None = None
        try:
            async with asyncio.TaskGroup() as workers:
                for _ in range(self.concurrency):
                    workers.create_task(self.work())
        except ExceptionGroup as bug:
            first = bug.exceptions[0]
            end = first if isinstance(first, WorkerFailure | PolicyRefused) else bug
        await self.finished.put(end)

    async def next(self) -> Group | None:
        """Wait for the next finished group; None when all are finished."""
        item = await self.finished.get()
        if isinstance(item, Group):
            return item
        self.finished.put_nowait(item)  # for further calls
        if item is not None:
            raise item
        return None

    async def ready(self) -> list[Group]:
        """All finished groups that were not taken, at least one; none when all are finished."""
        first = await self.next()
        out = [first] if first else []
        while out and not self.finished.empty():
            item = self.finished.get_nowait()
            if not isinstance(item, Group):
                self.finished.put_nowait(item)  # what has finished is taken before it ends or raises
                break
            out.append(item)
        return out

    async def groups(self) -> AsyncIterator[Group]:
        """Yield groups as they finish."""
        while group := await self.next():
            yield group


@asynccontextmanager
async def open_worker_pool(
    settings: RolloutSettings,
    jobs: Iterable[RolloutJob],
    *,
    concurrency: int | WorkerBackend = DEFAULT_CONCURRENCY,
    whole_groups: bool = False,
) -> AsyncIterator[WorkerPool]:
    """Open a pool that gives episodes as they finish; jobs are pulled lazily, so an endless stream is fine.

    Each episode is a group of its own; with `whole_groups`, or where the rubric compares samples, groups are complete.
    Leaving the block in any way cancels running episodes. A bug in the stream of jobs is raised as an ExceptionGroup,
    the loss of all workers of a backend as a WorkerFailure, a server that refuses everything as a PolicyRefused.
    """
    at_once = concurrency if isinstance(concurrency, int) else concurrency.concurrency
    async with (
        nullcontext(settings.run_with_retries)
        if isinstance(concurrency, int)
        else concurrency.started(settings) as run_rollout
    ):
        finished: asyncio.Queue[Group | Exception | None] = asyncio.Queue(maxsize=at_once)
        stream = WorkerPool(settings, iter(jobs), run_rollout, at_once, whole_groups or settings.compares, finished)
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
    concurrency: int | WorkerBackend = DEFAULT_CONCURRENCY,
    retries: int = 1,
    seed: int = 0,
    limits: Limits | None = None,
) -> AsyncIterator[AsyncIterator[Group]]:
    """Yield groups as they complete; tasks are pulled lazily, so an endless stream is fine.

    `async with rollouts(...) as groups: async for group in groups: ...`

    Samples of a group share `seed` (the environment's draws) and differ in their index (the policy's draws); a task
    that is repeated in the stream gets another seed. Transient failures are tried again `retries` times. `concurrency`
    is the number of concurrent episodes, or a backend that runs them. Leaving the block in any way cancels running
    episodes. A bug in the task stream is raised as an ExceptionGroup, the loss of all workers of a backend as a
    WorkerFailure.
    """
    settings = RolloutSettings(env=env, policy=policy, rubric=rubric, limits=limits, retries=retries)
    jobs = rollout_jobs(tasks, seed=seed, group_size=group_size)
    async with open_worker_pool(settings, jobs, concurrency=concurrency, whole_groups=True) as stream:
        yield stream.groups()


async def play_groups(
    env: Environment,
    tasks: Iterable[Task],
    policy: SeatPolicies,
    *,
    rubric: RubricLike | None = None,
    group_size: int = 1,
    concurrency: int | WorkerBackend = DEFAULT_CONCURRENCY,
    seed: int = 0,
) -> list[Group]:
    """Play like `rollouts`, and return all groups in the order of the tasks, which must end."""
    playing = rollouts(env, tasks, policy, rubric=rubric, group_size=group_size, concurrency=concurrency, seed=seed)
    async with playing as stream:
        return sorted([group async for group in stream], key=lambda group: group.index)


ResultT = TypeVar("ResultT")


def run_blocking(call: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Call an asynchronous function, wait for it, and return its result. Ctrl-C cancels it.

    Where an event loop runs in this thread already (a notebook, asynchronous code), that loop stands still meanwhile.
    The call runs in this thread in any case: what was opened here, such as a database, can be used in it.
    """
    with suspended_loop(), asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(call())


@contextmanager
def suspended_loop() -> Iterator[None]:
    """No event loop runs in this thread within the block, or the decorated function; one that did goes on afterwards.

    Code inside finds what a script gives it: it may start a loop, and Ctrl-C raises KeyboardInterrupt.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        yield
        return
    task = asyncio.current_task()
    if task is not None:
        asyncio.tasks._leave_task(loop, task)
    asyncio._set_running_loop(None)
    try:
        with _default_interrupt():
            yield
    finally:
        asyncio._set_running_loop(loop)
        if task is not None:
            asyncio.tasks._enter_task(loop, task)


@contextmanager
def _default_interrupt() -> Iterator[None]:
    """Within the block, Ctrl-C is KeyboardInterrupt again where a loop that stands still would have to handle it."""
    handler = signal.getsignal(signal.SIGINT)
    of_loop = str(getattr(getattr(handler, "func", handler), "__module__", "")).startswith("asyncio.")
    if not of_loop or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
