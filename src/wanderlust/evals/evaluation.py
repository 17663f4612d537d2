"""One evaluation: the jobs that are left are played and kept, and the figures of all accumulated; scoring again."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any, cast

from wanderlust._lazy import needs_extra
from wanderlust.errors import RubricFailure, UsageError, WanderlustError, boundary, nearest_names
from wanderlust.evals.accumulator import EvaluationProgress, ReportAccumulator, progress_updates
from wanderlust.evals.aggregation import SelfConsistency
from wanderlust.evals.evaluation_folder import complete_groups, open_evaluation_folder, remaining_jobs
from wanderlust.evals.report import Report
from wanderlust.policies.base import TokenPrices
from wanderlust.policies.resolve import open_policies
from wanderlust.runner.engine import RolloutJob, RolloutSettings, WorkerBackend, open_worker_pool, rollout_jobs
from wanderlust.runner.progress import Logger, ProgressLogger
from wanderlust.tasks.selection import MAX_LISTED_TASKS, choose_tasks, find_faulty_tasks, iter_tasks
from wanderlust.types import Group, GroupRubric, Rollout, RubricLike, Status, Task

Observer = Callable[[Sequence[Group]], None]
"""Called with what finished since the last call, each rollout once; a group may hold only some of its rollouts.

Examples are a progress bar, and `RunStore.sink(stage=..., step=...)`, which stores all of them in one commit.
"""


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """One evaluation: plays what is left, and accumulates the figures of all rollouts and of each part."""

    name: str
    settings: RolloutSettings
    pass_threshold: float = 1.0
    prices: TokenPrices | None = None
    group_by: str | None = None
    aggregation: SelfConsistency | None = None
    total: ReportAccumulator = field(init=False)
    parts: dict[str, ReportAccumulator] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.total = self._accumulator()

    def _accumulator(self) -> ReportAccumulator:
        return ReportAccumulator(pass_threshold=self.pass_threshold, prices=self.prices)

    def choose_jobs(
        self, given: Iterable[Task] | None, split: str, *, n: int | None, only: str | None, samples: int, seed: int
    ) -> list[RolloutJob]:
        """Every job, played before or not, of the `given` tasks, else of the split; a list may be of any length.

        Raises UsageError where there is no task, or none of the id `only`.
        """
        listed = iter_tasks(self.settings.env, split) if given is None else list(given)
        name = f"the split {split!r} of {self.name}"
        if only is None:
            tasks = listed if isinstance(listed, list) and n is None else choose_tasks(listed, n)
            if not tasks:
                raise UsageError(f"there are no tasks in {name}")
            return list(rollout_jobs(tasks, seed=seed, group_size=samples))
        task_id, _, sample = only.rpartition("#") if only.rpartition("#")[2].isdecimal() else (only, "", "")
        candidates = list(islice(listed, MAX_LISTED_TASKS))
        found = next((task for task in candidates if task.id == task_id), None)
        if found is None:
            nearest = nearest_names(task_id, [task.id for task in candidates], kind="tasks")
            raise UsageError(f"no task {task_id!r} in {name}; {nearest}")
        numbers = [int(sample)] if sample else range(samples)
        return [RolloutJob(found, seed, number, group_size=len(numbers)) for number in numbers]

    async def play(
        self,
        todo: list[RolloutJob],
        backend: Callable[..., Any],
        *,
        out: str | Path | None,
        record: Mapping[str, Any],
        resume: bool,
        observers: Sequence[Observer],
        logger: Logger,
    ) -> Report:
        """Play the jobs that are not in the folder `out` yet, store them there, and return the report of all."""
        note = logger.log_line if isinstance(logger, ProgressLogger) else lambda line: None
        with open_evaluation_folder(out, record, resume=resume, note=note) as folder:
            began, tasks = time.monotonic(), list({job.index: job.task for job in todo}.values())
            faulty = find_faulty_tasks(tasks)
            everybody: list[Observer] = [*observers, self.add]
            if folder is not None:
                done = folder.finished_jobs(tasks)
                if self.settings.compares:
                    done = complete_groups(done, todo)
                self.add(folder.groups(done))
                todo = remaining_jobs(todo, done)
                everybody.insert(0, folder.sink(self.name))
            total = self.total.totals["played"] + len(todo)
            watching = EvaluationProgress(progress=logger, tally=self.total, settings=self.settings, total=total)
            for why in faulty.values():
                watching.note(why)
            refused = [_faulty_task_group(job, faulty[job.index]) for job in todo if job.index in faulty]
            for observer in everybody if refused else ():
                observer(refused)
            playable = [job for job in todo if job.index not in faulty]
            if playable:
                async with backend(jobs=len(playable)) as workers, progress_updates(watching):
                    await play_jobs(self.settings, playable, observers=[*everybody, watching], concurrency=workers)
            if self.aggregation is not None:
                await self.aggregation.run(logger)
            report = self.report(time.monotonic() - began)
            if folder is not None:
                folder.write_report(report)
            return report

    def add(self, groups: Iterable[Group]) -> None:
        """Count the rollouts of these groups, in all and in the part that their tasks belong to."""
        for group in groups:
            self.total.add([group])
            if self.aggregation is not None:
                self.aggregation.add(group)
            if self.group_by is not None and self.group_by in group.task.info:
                part = str(group.task.info[self.group_by])
                self.parts.setdefault(part, self._accumulator()).add([group])

    def report(self, seconds: float) -> Report:
        """The report of everything that was added."""
        return replace(
            self.total.report(seconds),
            group_by=self.group_by or "",
            breakdown={value: part.report(0.0) for value, part in sorted(self.parts.items())},
            task_rows=tuple(self.total.rows()),
            aggregate=None if self.aggregation is None else self.aggregation.estimates.report(),
        )


def _faulty_task_group(job: RolloutJob, why: str) -> Group:
    """A rollout that was not played, on the record."""
    task = Task(id=job.task.id)
    failed = Rollout(
        task=task,
        seed=job.seed,
        sample_index=job.sample_index,
        status=Status.ERROR,
        stop_reason="EnvironmentFailure",
        error=why,
    )
    return Group(task=task, rollouts=[failed], index=job.index)


async def play_jobs(
    settings: RolloutSettings,
    jobs: Iterable[RolloutJob],
    *,
    observers: Sequence[Observer],
    concurrency: int | WorkerBackend = 64,
) -> None:
    """Play `jobs`; the observers see whatever has finished, one after the other in their order."""
    async with open_worker_pool(settings, jobs, concurrency=concurrency) as stream:
        with _rare_garbage_collection():
            while finished := await stream.ready():
                for observer in observers:
                    observer(finished)


GC_THRESHOLD_FACTOR = 100
"""Collections of the middle generation per full one, ten times Python's own: with 10,000 rollouts in flight, full ones
took more than half of the processor's time."""


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Meanwhile the garbage collector walks over every live object less often: what is in flight is no garbage.

    Of evaluations that overlap, the first sets it back, which costs the others time and nothing else.
    """
    young, middle, old = gc.get_threshold()
    changed = 0 < old < GC_THRESHOLD_FACTOR
    if changed:
        gc.set_threshold(young, middle, GC_THRESHOLD_FACTOR)
    try:
        yield
    finally:
        if changed:
            gc.set_threshold(young, middle, old)


@asynccontextmanager
async def open_workers(
    settings: RolloutSettings,
    concurrency: int | WorkerBackend,
    ray_workers: int | None,
    *,
    ray_address: str | None,
    jobs: int,
) -> AsyncIterator[int | WorkerBackend]:
    """Rollouts at once in this process, or the workers that play them, which leave with the block.

    Raises UsageError or WorkerFailure when there is no Ray, or its workers do not start.
    """
    if not isinstance(concurrency, int):
        yield concurrency
        return
    most = min(concurrency, jobs)
    if ray_workers is None:
        policies = settings.policy.values() if isinstance(settings.policy, Mapping) else [settings.policy]
        async with open_policies({id(one): one for one in policies}.values()):
            yield most
        return
    with needs_extra("ray"):
        from wanderlust.runner.ray import ray_backend
    async with ray_backend(ray_workers, each=ceil(most / ray_workers), address=ray_address) as workers:
        yield workers


MAX_RESCORED_AT_ONCE = 32
"""Rollouts of a group that are judged at once."""


async def rescore_groups(groups: Iterable[Group], rubric: RubricLike) -> AsyncIterator[Group]:
    """Every group with new scores, in order.

    Rollouts that failed for another reason than their rubric are left as they are. A judgement that fails makes the
    rollout a failed one that says why. The new rubric sees the old score's parts as what the environment paid.
    """
    for group in groups:
        gate = asyncio.Semaphore(MAX_RESCORED_AT_ONCE)
        todo = [r for r in group.rollouts if r.status is not Status.ERROR or r.stop_reason == RubricFailure.__name__]
        await asyncio.gather(*(_score_one(rollout, rubric, gate) for rollout in todo))
        fine = [rollout for rollout in todo if rollout.status is not Status.ERROR]
        if getattr(rubric, "compares", False) and fine:
            await _compare_group(replace(group, rollouts=fine), cast(GroupRubric, rubric))
        yield group


async def _score_one(rollout: Rollout, rubric: RubricLike, gate: asyncio.Semaphore) -> None:
    async with gate:
        try:
            with boundary(RubricFailure):
                for trajectory in rollout.trajectories:
                    trajectory.score = await rubric.score(rollout, trajectory)
            if rollout.status is Status.ERROR:
                rollout.status, rollout.stop_reason, rollout.error = Status.DONE, "", None
        except WanderlustError as failure:
            _mark_failed(rollout, failure)


async def _compare_group(group: Group, rubric: GroupRubric) -> None:
    try:
        with boundary(RubricFailure):
            for column in zip(*(rollout.trajectories for rollout in group.rollouts), strict=True):
                for trajectory, score in zip(column, await rubric.compare(group, column[0].seat), strict=True):
                    trajectory.score = score
    except WanderlustError as failure:
        for rollout in group.rollouts:
            _mark_failed(rollout, failure)


def _mark_failed(rollout: Rollout, failure: WanderlustError) -> None:
    rollout.status, rollout.stop_reason, rollout.error = Status.ERROR, RubricFailure.__name__, str(failure)
    for trajectory in rollout.trajectories:
        trajectory.score = None
