"""Asynchronous mode: groups are played ahead of the trainer, which learns from them in the order of their tasks.

The tasks of step s are played as soon as step s - max_staleness begins, and step s waits for them: as many groups
become due as a step learns from, so that none grows too old, and slow tasks have the share that the curriculum gives
them. What is determined: the tasks of each step, their seeds, and the draws of each episode under given weights. What
is not: which weights an episode meets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from math import ceil
from types import TracebackType
from typing import Any, Self

from wanderlust.errors import NotSerializable
from wanderlust.policies.base import NOT_SAMPLED
from wanderlust.runner.engine import RolloutFn, RolloutJob, RolloutSettings, rollout_jobs
from wanderlust.runner.failures import RefusalGuard
from wanderlust.store.records import pack, pack_tokens, unpack
from wanderlust.tasks.curriculum import Curriculum
from wanderlust.training.algorithms.base import DynamicSampling
from wanderlust.training.batch.samples import trajectories_of
from wanderlust.training.group_source import (
    REFILL_SEED_STRIDE,
    LocalPlayer,
    StepBatch,
    count_useful,
    curriculum_metrics,
    run_in_thread,
)
from wanderlust.types import Group, Rollout


@dataclass(slots=True, kw_only=True)
class TaskBlock:
    """Tasks that were taken from the curriculum together."""

    step: int
    refill: int
    size: int
    curriculum_state: dict[str, Any]
    """The curriculum's state before they were taken: it says which tasks they are."""

    @property
    def seed(self) -> int:
        """Keys every draw in it."""
        return self.step + REFILL_SEED_STRIDE * self.refill


@dataclass(slots=True, kw_only=True, eq=False)
class InFlightGroup:
    """A group that is being played, or was and waits to be learnt from."""

    block: TaskBlock
    position: int
    """In its block."""
    jobs: list[RolloutJob]
    started: int = -1
    """The version it began under; -1 when it has not begun."""
    done: dict[int, Rollout] = field(default_factory=dict)
    """By the rollout's index in its group."""
    playing: dict[int, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether all rollouts of the group are there."""
        return len(self.done) == len(self.jobs)

    def group(self) -> Group:
        """The finished rollouts."""
        return Group(task=self.jobs[0].task, rollouts=[self.done[i] for i in sorted(self.done)])

    def stop(self) -> None:
        """Cut off what is being played."""
        for task in self.playing.values():
            task.cancel()
        self.playing.clear()

    def state(self) -> list[Any]:
        """As plain data, without the tasks; a rollout that cannot be kept is played again."""
        done = []
        for rollout in self.done.values():
            try:
                done.append([pack(rollout), pack_tokens(rollout)])
            except NotSerializable:  # the step that learns from it will say so
                continue
        return [self.position, self.started, done]


class AsyncSource:
    """A `Source` that plays ahead; leaving its block cancels what is being played."""

    def __init__(
        self,
        local_player: LocalPlayer,
        curriculum: Curriculum,
        *,
        version: Callable[[], int],
        count: int,
        steps: int,
        max_staleness: int,
        min_finished_share: float = 0.75,
        straggler_seconds: float = 60.0,
    ):
        """Args:
        local_player: Plays and credits the groups.
        curriculum: Chooses their tasks.
        version: Version of the published weights, which grows by one a step.
        count: Groups a step.
        steps: Steps of the run.
        max_staleness: Versions between the weights that began a group and those that learn from it, at most. Where
            more versions than steps were published, groups that are late are dropped and their tasks are played again.
        min_finished_share: Share of its rollouts that a group needs.
        straggler_seconds: Seconds that a step waits for the others once all its groups have that share; what is not
            over then is cut off.
        """
        self.local_player, self.curriculum, self.version = local_player, curriculum, version
        self.count, self.steps, self.max_staleness = count, steps, max_staleness
        self.min_finished_share, self.straggler_seconds = min_finished_share, straggler_seconds
        self.dynamic_sampling = local_player.algorithm if isinstance(local_player.algorithm, DynamicSampling) else None
        self.max_refills = self.dynamic_sampling.max_refills if self.dynamic_sampling is not None else 0
        self.in_flight: list[InFlightGroup] = []
        """In the order in which they are due."""
        self.groups_dropped = self.stragglers_cut = 0
        """Counts of groups and rollouts since the last batch."""
        self._opened = 0
        self._plays: dict[int, RolloutSettings] = {}
        self._players: dict[int, asyncio.Task[RolloutFn]] = {}
        self._exits: dict[int, AsyncExitStack] = {}
        self._busy, self._idle_since, self._idle_seconds = 0, time.monotonic(), 0.0
        self._refusals = RefusalGuard()
        self._news, self._seats = asyncio.Event(), asyncio.Semaphore(local_player.config.concurrency)
        self._bug: BaseException | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        playing = [task for flight in self.in_flight for task in flight.playing.values()]
        for task in playing:
            task.cancel()
        await asyncio.gather(*playing, return_exceptions=True)
        await self._leave(set())

    async def next_groups(self, step: int) -> StepBatch:
        """The groups whose tasks were taken first; waits for them."""
        out, missing = StepBatch(), self.count
        while self._opened < min(step + self.max_staleness + 1, self.steps):
            self._open(self._opened, self.count)
            self._opened += 1
        oldest = self.version() - self.max_staleness
        for flight in self.in_flight:
            if 0 <= flight.started < oldest:
                flight.stop()
                flight.done.clear()
                flight.started = -1
                self.groups_dropped += 1
        self._play()
        for again in range(1 + self.max_refills):
            if not missing:
                break
            if again:
                self._open(step, missing, again=again)
                self._play()
            newest = await self._take(missing, out)
            await run_in_thread(self.local_player.assign_advantages(newest))
            for group in newest:
                self.curriculum.observe(group)
            out.groups += newest
            missing -= count_useful(newest, self.dynamic_sampling) if self.max_refills else len(newest)
        for index, group in enumerate(out.groups):
            group.index = index
        out.metrics = {
            **_lags(out.groups, now=self.version()),
            "groups_dropped": self.groups_dropped,
            "rollouts_cut": self.stragglers_cut,
            **curriculum_metrics(self.curriculum),
        }
        self.groups_dropped = self.stragglers_cut = 0
        self._count_busy(0)
        out.idle_seconds, self._idle_seconds = self._idle_seconds, 0.0
        return out

    def _open(self, step: int, size: int, *, again: int = 0) -> None:
        """Take more tasks."""
        block = TaskBlock(step=step, refill=again, size=size, curriculum_state=self.curriculum.state())
        self.in_flight += self._new_groups(block)

    def _new_groups(self, block: TaskBlock) -> Iterator[InFlightGroup]:
        """Of the block's tasks, taken from the curriculum; none is begun."""
        tasks = self.curriculum.next(block.step, block.size)
        size = self.local_player.config.group_size
        every = list(rollout_jobs(tasks, seed=block.seed, group_size=size))
        for place in range(block.size):
            mine = every[place * size : (place + 1) * size]
            yield InFlightGroup(block=block, position=place, jobs=mine)

    def _play(self) -> None:
        """Begin whatever has not begun."""
        for flight in self.in_flight:
            for job in flight.jobs if not flight.playing else ():
                if job.sample_index not in flight.done:
                    flight.playing[job.sample_index] = task = asyncio.create_task(self._one(flight, job))
                    task.add_done_callback(self._on_task_done)

    async def _one(self, flight: InFlightGroup, job: RolloutJob) -> None:
        async with self._seats:
            if flight.started < 0:
                flight.started = self.version()
            await self._refusals.start()
            result = None
            self._count_busy(1)
            try:
                result = await (await self._player(flight.block.seed))(job)
                flight.done[job.sample_index] = result
            finally:
                self._count_busy(-1)
                self._refusals.finish(result)
            self._refusals.check()

    async def _player(self, seed: int) -> RolloutFn:
        """Who plays the rollouts of a block: this process, or workers that have got its settings."""
        settings, backend = self._rollout_settings(seed), self.local_player.backend
        if backend is None:
            return settings.run_with_retries
        if seed not in self._players:
            self._exits[seed] = exits = AsyncExitStack()
            self._players[seed] = asyncio.create_task(exits.enter_async_context(backend.started(settings)))
        return await asyncio.shield(self._players[seed])

    async def _leave(self, seeds: Collection[int]) -> None:
        """Have workers forget the settings of all blocks but these."""
        over = [seed for seed in self._players if seed not in seeds]
        await asyncio.gather(*(self._players.pop(seed) for seed in over), return_exceptions=True)
        for seed in over:
            await self._exits.pop(seed).aclose()

    def _count_busy(self, change: int) -> None:
        """Note that an episode begins or ends."""
        now = time.monotonic()
        if not self._busy:
            self._idle_seconds += now - self._idle_since
        self._busy += change
        if not self._busy:
            self._idle_since = now

    def _rollout_settings(self, seed: int) -> RolloutSettings:
        """Resources that the rollouts of a block share."""
        if seed not in self._plays:
            player = self.local_player
            self._plays[seed] = RolloutSettings(
                env=player.env, policy=player.rollout_policy(seed), rubric=player.rubric, retries=1
            )
        return self._plays[seed]

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._bug = task.exception()
        self._news.set()

    async def _take(self, wanted: int, out: StepBatch) -> list[Group]:
        """The first so many groups of those in flight, whole, or without stragglers that were waited for in vain."""
        due, began = self.in_flight[:wanted], time.monotonic()
        clock, enough_since = asyncio.get_running_loop().time, None
        while not all(flight.complete for flight in due):
            if not all(map(self._enough, due)):
                await self._wait_for_rollout(None)
                continue
            enough_since = clock() if enough_since is None else enough_since
            patience = self.straggler_seconds - (clock() - enough_since)
            if patience <= 0:
                break
            await self._wait_for_rollout(patience)
        out.waited_seconds += time.monotonic() - began
        del self.in_flight[:wanted]
        groups = []
        for flight in due:
            self.stragglers_cut += len(flight.jobs) - len(flight.done)
            flight.stop()
            group = flight.group()
            await self._rollout_settings(flight.block.seed).compare(group)
            groups.append(group)
        seeds = {flight.block.seed for flight in self.in_flight}
        self._plays = {seed: play for seed, play in self._plays.items() if seed in seeds}
        await self._leave(seeds)
        return groups

    def _enough(self, flight: InFlightGroup) -> bool:
        return len(flight.done) >= ceil(self.min_finished_share * len(flight.jobs))

    async def _wait_for_rollout(self, seconds: float | None) -> None:
        """Wait until an episode is over, or for so long."""
        if self._bug is None:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
        if self._bug is not None:
            raise self._bug

    def state(self) -> dict[str, Any]:
        """What was taken from the curriculum and not learnt from yet, with the episodes that are over."""
        blocks = {id(flight.block): flight.block for flight in self.in_flight}
        return {
            "curriculum": self.curriculum.state(),
            "opened": self._opened,
            "blocks": [
                {
                    "step": block.step,
                    "again": block.refill,
                    "size": block.size,
                    "before": block.curriculum_state,
                    "flights": [flight.state() for flight in self.in_flight if flight.block is block],
                }
                for block in blocks.values()
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take the same tasks again; what was not over is played from its start when the next harvest is asked for."""
        self.in_flight, self._opened = [], state["opened"]
        for saved in state["blocks"]:
            self.curriculum.restore(saved["before"])
            block = TaskBlock(
                step=saved["step"], refill=saved["again"], size=saved["size"], curriculum_state=saved["before"]
            )
            flights = list(self._new_groups(block))
            for place, started, done in saved["flights"]:
                flight = flights[place]
                rollouts = [unpack(*record) for record in done]
                for rollout in rollouts:
                    rollout.task = flight.jobs[0].task
                flight.started = started if done else -1
                flight.done = {rollout.sample_index: rollout for rollout in rollouts}
                self.in_flight.append(flight)
        self.curriculum.restore(state["curriculum"])


def _lags(groups: Sequence[Group], *, now: int) -> dict[str, float]:
    """Over the sampled turns, in versions."""
    turns = [turn for trajectory in trajectories_of(groups) for turn in trajectory.turns]
    lags = [now - turn.tokens.version for turn in turns if turn.tokens is not None and turn.finish != NOT_SAMPLED]
    return {"staleness_mean": sum(lags) / max(len(lags), 1), "staleness_max": float(max(lags, default=0))}
