"""One evaluation: the jobs that are left are played and kept, and the figures of all accumulated; scoring again."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from math import ceil, isfinite
from pathlib import Path
from typing import Any

from wanderlust._lazy import needs_extra
from wanderlust.errors import RubricFailure, UsageError, WanderlustError, boundary, nearest_names
from wanderlust.evals.accumulator import EvaluationProgress, VersionTally, progress_updates
from wanderlust.evals.aggregation import SelfConsistency
from wanderlust.evals.evaluation_folder import (
    EvaluationFolder,
    complete_groups,
    open_evaluation_folder,
    remaining_jobs,
)
from wanderlust.evals.report import Report
from wanderlust.evals.traits import TraitsAccumulator
from wanderlust.evals.traits_report import TraitsReport
from wanderlust.policies.base import TokenPrices
from wanderlust.policies.resolve import open_policies
from wanderlust.runner.engine import (
    RolloutJob,
    RolloutSettings,
    WorkerBackend,
    compare_seats,
    finite_score,
    open_worker_pool,
    rollout_jobs,
)
from wanderlust.runner.failures import unscore
from wanderlust.runner.progress import Logger, ProgressLogger
from wanderlust.store.provenance import lock_run, provenance_of
from wanderlust.tasks.selection import MAX_LISTED_TASKS, checked_task, choose_tasks, find_faulty_tasks, iter_tasks
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
    measures_traits: bool = False
    """Whether the report has traits of reasoning."""
    command: Sequence[str] | None = None
    """Words after `wander` that begin it; None where it was begun from Python."""
    max_cost: float | None = None
    """Dollars from which on no further rollout starts; None is no bound."""
    not_started: int = 0
    """Rollouts that did not start because of it."""
    accept_changes: bool = False
    """Whether an evaluation may go on whose code, rubric, tasks or settings have changed."""
    tally: VersionTally = field(init=False)
    traits: TraitsAccumulator | None = field(init=False, default=None)
    traits_report: TraitsReport | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if not isfinite(self.pass_threshold):
            raise UsageError(f"the pass threshold is {self.pass_threshold}, which is no number")
        if self.measures_traits:
            env, policy = self.settings.env, self.settings.policy
            self.traits = TraitsAccumulator(env=env, policy=policy, pass_threshold=self.pass_threshold)
        self.tally = VersionTally(pass_threshold=self.pass_threshold, prices=self.prices, group_by=self.group_by or "")

    def choose_jobs(
        self, given: Iterable[Task] | None, split: str, *, n: int | None, only: str | None, samples: int, seed: int
    ) -> list[RolloutJob]:
        """Every job, played before or not, of the `given` tasks, else of the split; a list may be of any length.

        Raises UsageError where there is no task, or none of the id `only`.
        """
        if samples < 1:
            raise UsageError(f"samples is {samples}, and must be at least 1")
        own = iter_tasks(self.settings.env, split)
        listed = own if given is None else [checked_task(task, "tasks") for task in given]
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
                changed = self._lock(folder, record, [task for n, task in enumerate(tasks) if n not in faulty])
                if changed:
                    note(f"accepted changes: {', '.join(changed)}")
                done = folder.finished_jobs(tasks)
                if self.settings.compares:
                    done = complete_groups(done, todo)
                self.add(folder.groups(done))
                todo = remaining_jobs(todo, done)
                folder.record_threshold(self.pass_threshold, played=self.tally.total.totals["played"], todo=len(todo))
                everybody.insert(0, folder.sink(self.name))
            total = self.tally.total.totals["played"] + len(todo)
            watching = EvaluationProgress(progress=logger, tally=self.tally.total, settings=self.settings, total=total)
            for why in faulty.values():
                watching.note(why)
            refused = [_faulty_task_group(job, faulty[job.index]) for job in todo if job.index in faulty]
            for observer in everybody if refused else ():
                observer(refused)
            playable = [job for job in todo if job.index not in faulty]
            if playable:
                async with backend(jobs=len(playable)) as workers, progress_updates(watching):
                    jobs = self._affordable(playable)
                    await play_jobs(self.settings, jobs, observers=[*everybody, watching], concurrency=workers)
            await self._conclude(logger, out)
            if folder is None:
                return self.report(time.monotonic() - began)
            if not todo and folder.has_report(self.tally.total.totals["played"]):
                return self.report(folder.clock.before)
            report = self.report(folder.clock.record())
            folder.write_report(report)
            return report

    async def _conclude(self, logger: Logger, out: str | Path | None) -> None:
        """What is made of all samples of a task together, when all have been played; traits are kept in `out`."""
        if self.aggregation is not None:
            await self.aggregation.run(logger)
        if self.traits is not None:
            self.traits_report = await self.traits.report()
            if out is not None:
                self.traits_report.save(Path(out))

    def add(self, groups: Iterable[Group]) -> None:
        """Count the rollouts of these groups."""
        for group in groups:
            self.tally.add(group)
            if self.aggregation is not None:
                self.aggregation.add(group)
            if self.traits is not None:
                self.traits.add(group)

    def report(self, seconds: float) -> Report:
        """The report of everything that was added; rollouts of different code are in no common figure."""
        report = replace(self.tally.report(seconds), traits=self.traits_report)
        if self.aggregation is not None:
            together = self.aggregation.estimates.report()
            codes = {code: replace(part, aggregate=together) for code, part in report.by_code.items()}
            report = replace(report, by_code=codes) if codes else replace(report, aggregate=together)
        if not self.not_started:
            return report
        spent = (self.tally.total.dollars or 0.0) + (self.tally.total.judge_dollars or 0.0)
        why = f"the run's max_cost of ${self.max_cost:,.2f} is reached: ${spent:,.2f}"
        return replace(report, not_started=self.not_started, stopped=why)

    def _affordable(self, jobs: Sequence[RolloutJob]) -> Iterator[RolloutJob]:
        """The jobs, until the run has cost `max_cost`; where samples are compared, groups are started whole.

        Turns in this process count as they are taken; those of other workers, and judges, when a rollout has finished.
        """
        before = self.tally.total.dollars or 0.0
        for number, job in enumerate(jobs):
            starts_group = not self.settings.compares or not number or jobs[number - 1].index != job.index
            spent = max(self.tally.total.dollars or 0.0, before + self.settings.spending.dollars)
            spent += self.tally.total.judge_dollars or 0.0
            if self.max_cost is not None and starts_group and spent >= self.max_cost:
                self.not_started = len(jobs) - number
                return
            yield job

    def _lock(self, folder: EvaluationFolder, record: Mapping[str, Any], tasks: Sequence[Task]) -> list[str]:
        """Write or compare the folder's lock, and have the store mark what is played from now on."""
        rubric, limits = self.settings.effective_rubric, self.settings.effective_limits
        made_by = provenance_of(
            self.settings.env, rubric=rubric, limits=limits, tasks=tasks, policy=self.settings.policy
        )
        changed = lock_run(
            folder.out, made_by, settings=record, command=self.command, accept_changes=self.accept_changes
        )
        folder.store.provenance = made_by.digest
        return changed


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


COLLECTOR_THRESHOLD = 50_000
"""Allocations between two runs of the garbage collector during an evaluation, 700 outside. What hundreds of episodes in
flight hold outlives such runs, and looking through it again and again took a third of a rollout's time."""


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Meanwhile the garbage collector walks over live objects less often: what is in flight is no garbage.

    Of evaluations that overlap, the first sets it back, which costs the others time and nothing else.
    """
    young, *older = gc.get_threshold()
    changed = 0 < young < COLLECTOR_THRESHOLD  # 0 has it turned off
    if changed:
        gc.set_threshold(COLLECTOR_THRESHOLD, *older)
    try:
        yield
    finally:
        if changed:
            gc.set_threshold(young, *older)


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
    if concurrency < 1:
        raise UsageError(f"concurrency is {concurrency}, and must be at least 1")
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
        if isinstance(rubric, GroupRubric) and rubric.compares and fine:
            try:
                await compare_seats(rubric, replace(group, rollouts=fine))
            except WanderlustError as failure:
                for rollout in fine:
                    unscore(rollout, failure, RubricFailure)
        yield group


async def _score_one(rollout: Rollout, rubric: RubricLike, gate: asyncio.Semaphore) -> None:
    async with gate:
        try:
            with boundary(RubricFailure):
                for trajectory in rollout.trajectories:
                    trajectory.score = finite_score(await rubric.score(rollout, trajectory))
            if rollout.status is Status.ERROR:
                rollout.status, rollout.stop_reason, rollout.error, rollout.failure = Status.DONE, "", None, None
        except WanderlustError as failure:
            unscore(rollout, failure, RubricFailure)
