"""Who plays an evaluation: this process, or the workers of Ray.

`wander eval --estimate`: what do the samples of a task know together?

What is shown while an evaluation runs: how far it is, its score so far, and what it waits for.

One evaluation from beginning to end: what was played before, what is left, and what came of all of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from wanderlust._lazy import import_object
from wanderlust.cli.options import AnswerOptions, TaskOptions, WorkerOptions
from wanderlust.cli.output import print_note
from wanderlust.environment import Limits
from wanderlust.errors import UsageError, nearest_names
from wanderlust.evals.accumulator import ReportAccumulator
from wanderlust.evals.aggregation import EstimateAccumulator, EstimateReport
from wanderlust.evals.evaluate import EvaluationFolder, Observer, complete_groups, play_jobs, remaining_jobs
from wanderlust.evals.report import Report
from wanderlust.policies.resolve import (
    SCRIPT_PATTERN,
    PolicyOptions,
    ResolvedPolicy,
    make_policy,
    open_policies,
    resolve_judge_policy,
)
from wanderlust.rubrics.label_free import answer_extractor, environment_check
from wanderlust.rubrics.references import EstimatorName, build_estimator
from wanderlust.runner.engine import RolloutJob, RolloutSettings, WorkerBackend, rollout_jobs
from wanderlust.runner.progress import Progress
from wanderlust.runner.watchdog import describe_waiting, watch_event_loop
from wanderlust.store.run_folder import EVALUATION_STAGE
from wanderlust.tasks.registry import ResolvedEnvironment, load_environment
from wanderlust.tasks.selection import MAX_LISTED_TASKS, choose_tasks, find_faulty_tasks
from wanderlust.types import Group, Policy, Rollout, Status, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """The policy of an evaluation as it was named: all that a worker needs to make it."""

    policy: str
    options: PolicyOptions


@asynccontextmanager
async def episode_workers(
    worker_options: WorkerOptions, policy: Policy, *, concurrency: int
) -> AsyncIterator[int | WorkerBackend]:
    """Whoever plays at most so many episodes at once: this process, or a crew that leaves with the block.

    Raises UsageError or WorkerFailure of one line when there is no Ray, or its workers do not start.
    """
    if worker_options.ray_workers is None:
        async with open_policies([policy]):
            yield concurrency
        return
    crew = import_object("wanderlust.runner.ray:ray_backend", extra="ray")
    async with crew(
        worker_options.ray_workers,
        each=ceil(concurrency / worker_options.ray_workers),
        address=worker_options.ray_address,
    ) as workers:
        yield workers


def remote_settings(
    play: RolloutSettings, resolved: ResolvedEnvironment, policy_spec: PolicySpec, *, workers: int
) -> RolloutSettings:
    """The same play, whose environment and policy are made where it is played."""
    remade = import_object("wanderlust.runner.ray:RemoteSpec", extra="ray")
    options = replace(policy_spec.options, concurrency=ceil(policy_spec.options.concurrency / workers))
    policy = remade(make_policy, _absolute_policy(policy_spec.policy), resolved.target, options)
    return replace(play, env=remade(load_environment, resolved.target), policy=policy)


def _absolute_policy(policy: str) -> str:
    """The same policy from any folder."""
    file, colon, member = policy.rpartition(":")
    if SCRIPT_PATTERN.fullmatch(policy) and file.endswith(".py"):
        return f"{Path(file).resolve()}{colon}{member}"
    return str(Path(policy).resolve()) if Path(policy).exists() else policy


MAX_CONCURRENT_ESTIMATES = 16
"""Tasks whose estimates are made at once."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationOptions:
    """What is made of the samples of a task together."""

    aggregate: EstimatorName | None = None
    """Distil one answer from each task's samples, and say what it earns beside them (docs/teachers.md)."""
    synthesizer: str | None = None
    """Policy that writes the synthesis; as --policy, but not a scripted player. Default: the policy itself."""
    synthesizer_sees_question: bool = False
    """Show the synthesizer the question as well as the samples."""

    def as_settings(self, task_options: TaskOptions) -> dict[str, Any]:
        """The options by name. Raises UsageError where they do not go together."""
        if self.aggregate is None and (self.synthesizer is not None or self.synthesizer_sees_question):
            raise UsageError("--synthesizer and --synthesizer-sees-question need --aggregate synthesis")
        if self.aggregate is not None and (task_options.samples < 2 or task_options.exact):
            raise UsageError("--aggregate needs several samples of a task: add --samples 8")
        return asdict(self)

    def self_consistency(
        self, resolved: ResolvedEnvironment, resolved_policy: ResolvedPolicy, answer_options: AnswerOptions
    ) -> SelfConsistency | None:
        """What will make the estimates, if there are to be any. UsageError when nobody can be asked for one."""
        if self.aggregate is None:
            return None
        anchor = resolved_policy.policy if resolved_policy.kind in ("local", "endpoint") else None
        if self.synthesizer is not None:
            anchor = resolve_judge_policy(self.synthesizer, answer_options.policy_options(greedy=False)).policy
        likelihood: Any = None
        if self.aggregate == "mutual" and resolved_policy.kind == "local":
            local: Any = resolved_policy.policy
            likelihood = import_object("wanderlust.training.reference_model:likelihood", extra="train")(
                local.engine.model, local.renderer
            )
        estimate = build_estimator(
            self.aggregate,
            synthesizer=anchor,
            likelihood=likelihood,
            extract=answer_extractor(resolved.env),
            synthesizer_sees_question=self.synthesizer_sees_question,
        )
        estimates = EstimateAccumulator(name=self.aggregate, estimator=estimate, check=environment_check(resolved.env))
        voices = [anchor] if anchor is not None and self.aggregate == "synthesis" else []
        return SelfConsistency(estimates=estimates, judges=voices)


@dataclass(slots=True, kw_only=True)
class SelfConsistency:
    """Rollouts that finished one by one, as groups of siblings again, and what is made of them."""

    estimates: EstimateAccumulator
    judges: list[Policy]
    """Who is asked for the estimates."""
    groups: dict[int, Group] = field(default_factory=dict)

    def add(self, group: Group) -> None:
        """Some of the siblings."""
        mine = self.groups.setdefault(group.index, Group(task=group.task, rollouts=[], index=group.index))
        mine.rollouts += group.rollouts

    def all_groups(self) -> Iterator[Group]:
        """All groups, in the order of the tasks and siblings."""
        for _, group in sorted(self.groups.items()):
            group.rollouts.sort(key=lambda rollout: rollout.sample_index)
            yield group

    async def run(self, progress: Progress) -> None:
        """Make all the estimates."""
        async with open_policies(self.judges):
            whole = list(self.all_groups())
            for start in range(0, len(whole), MAX_CONCURRENT_ESTIMATES):
                await self.estimates.add(whole[start : start + MAX_CONCURRENT_ESTIMATES])
                progress.log_step(
                    "aggregate", min(start + MAX_CONCURRENT_ESTIMATES, len(whole)), of=len(whole), metrics={}
                )


def estimate_table(report: EstimateReport) -> Table:
    """For the terminal."""
    table = Table("", "value", "95% interval", "tasks", title="All samples of a task, aggregated", title_justify="left")
    for label, figure in report.rows():
        has_interval = figure.low is not None and figure.high is not None
        interval = f"{figure.low:.3f} to {figure.high:.3f}" if has_interval else "unknown"
        table.add_row(Text(label), f"{figure.value:.3f}", interval, str(figure.clusters))
    return table


STALL_SECONDS = 10.0
"""How long nothing may finish before a line says what is waited for; then twice as long, and so on."""
REFRESH_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class EvaluationProgress:
    """An observer that follows an evaluation; `progress_updates` around it keeps the figures moving."""

    progress: Progress
    tally: ReportAccumulator
    settings: RolloutSettings
    total: int
    clock: Callable[[], float] = time.monotonic
    stall: float = STALL_SECONDS
    finished: int = 0
    before: int = field(init=False)
    began: float = field(init=False)
    last_change: float = field(init=False)
    next_notice: float = field(init=False)

    def __post_init__(self) -> None:
        self.before, self.next_notice = self.tally.totals["played"], self.stall
        self.began = self.last_change = self.clock()

    def __call__(self, groups: Sequence[Group]) -> None:
        """Something has finished; it is kept and counted already."""
        self.last_change, self.next_notice = self.clock(), self.stall
        self.finished += sum(len(group.rollouts) for group in groups)
        if self.before + self.finished >= self.total:
            self.update_progress()

    def update_progress(self) -> None:
        """Hand the newest figures over."""
        totals, passed = self.tally.totals, self.clock() - self.began
        metrics = {"rollouts_per_s": self.finished / passed if passed else 0.0}
        running = self.tally.running_estimate()
        if running is not None:
            metrics["reward"] = running.value
            if running.low is not None and running.high is not None:
                metrics |= {"low": running.low, "high": running.high}
        metrics["rollouts_failed"] = totals["played"] - totals["scored"]
        self.progress.log_step("eval", totals["played"], of=self.total, metrics=metrics)

    def note_if_stalled(self) -> None:
        """Say what is waited for when nothing has finished for a while."""
        now = self.clock()
        if self.settings.active and now - self.last_change >= self.next_notice:
            self.next_notice *= 2
            self.progress.log_line(describe_waiting(self.settings.active, now))

    async def tick(self) -> None:
        """For ever: figures and waiting, about once a second, and more rarely where counting takes long."""
        while True:
            began = time.perf_counter()
            self.update_progress()
            self.note_if_stalled()
            await asyncio.sleep(max(REFRESH_SECONDS, 20 * (time.perf_counter() - began)))


@asynccontextmanager
async def progress_updates(progress: EvaluationProgress) -> AsyncIterator[None]:
    """Shows how it goes for the time of the block, and frees the event loop from whoever holds it."""
    ticking = asyncio.create_task(progress.tick())
    try:
        with watch_event_loop(progress.progress.log_line):
            yield
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


DEFAULT_ROLLOUT_SECONDS = 3600.0
"""Seconds that a rollout may take where neither the environment nor the caller says so."""


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """Plays what is to be played; afterwards `report` is the report, and `parts` the tallies by a key of the tasks."""

    environment: ResolvedEnvironment
    policy: ResolvedPolicy
    task_options: TaskOptions
    worker_options: WorkerOptions
    policy_spec: PolicySpec
    """The policy, for workers to make."""
    seed: int
    group_by: str | None
    tally: Callable[[], ReportAccumulator]
    total: ReportAccumulator = field(init=False)
    parts: dict[str, ReportAccumulator] = field(default_factory=dict)
    self_consistency: SelfConsistency | None = None
    """What keeps all rollouts in memory and makes something of them in the end."""
    report: Report = field(init=False)

    def __post_init__(self) -> None:
        self.total = self.tally()

    def run(self, store_folder: EvaluationFolder | None, progress: Progress) -> None:
        """Play what is not in the folder yet, and keep it there."""
        began, (tasks, todo) = time.monotonic(), self._todo()
        broken = find_faulty_tasks(tasks)
        for why in broken.values():
            print_note(why)
        play = RolloutSettings(env=self.environment.env, policy=self.policy.policy, limits=self._limits(), retries=1)
        if self.worker_options.ray_workers is not None:
            play = remote_settings(play, self.environment, self.policy_spec, workers=self.worker_options.ray_workers)
        observers: list[Observer] = [self.add_groups]
        if store_folder is not None:
            done = store_folder.finished_jobs(tasks)
            if play.compares:
                done = complete_groups(done, todo)
            self.add_groups(store_folder.groups(done))
            todo = remaining_jobs(todo, done)
            observers.insert(0, store_folder.store.sink(stage=EVALUATION_STAGE, step=0, env=self.environment.name))
        total = self.total.totals["played"] + len(todo)
        watching = EvaluationProgress(progress=progress, tally=self.total, settings=play, total=total)
        for observer in observers:
            observer([_faulty_task_group(job, broken[job.index]) for job in todo if job.index in broken])
        playable = [job for job in todo if job.index not in broken]
        if playable:
            asyncio.run(self._play(playable, observers, watching))
        if self.self_consistency is not None:
            asyncio.run(self.self_consistency.run(progress))
        self.report = self.total.report(time.monotonic() - began)
        if store_folder is not None:
            store_folder.write_report(self.report)

    def add_groups(self, groups: Iterable[Group]) -> None:
        """Add to the tally of all, and to that of the tasks' kind."""
        for group in groups:
            self.total.add([group])
            if self.self_consistency is not None:
                self.self_consistency.add(group)
            if self.group_by is not None and self.group_by in group.task.info:
                self.parts.setdefault(str(group.task.info[self.group_by]), self.tally()).add([group])

    def _todo(self) -> tuple[list[Task], list[RolloutJob]]:
        """The tasks, and every job, played before or not."""
        listed, only = self.environment.env.tasks("eval"), self.task_options.task
        if only is None:
            tasks = choose_tasks(listed, self.task_options.num_tasks)
            if not tasks:
                raise UsageError(f"{self.environment.name} has no tasks in its eval split")
            return tasks, list(rollout_jobs(tasks, seed=self.seed, group_size=self.task_options.samples))
        name, _, sibling = only.rpartition("#") if only.rpartition("#")[2].isdecimal() else (only, "", "")
        candidates = list(islice(listed, MAX_LISTED_TASKS))
        tasks = [task for task in candidates if task.id == name][:1]
        if not tasks:
            raise UsageError(
                f"no task {name!r} in {self.environment.name}; {nearest_names(name, [t.id for t in candidates], kind='tasks')}"
            )
        siblings = [int(sibling)] if sibling else range(self.task_options.samples)
        return tasks, [RolloutJob(tasks[0], self.seed, number, group_size=len(siblings)) for number in siblings]

    def _limits(self) -> Limits:
        own = self.environment.env.limits
        return replace(own, timeout=self.task_options.timeout or own.timeout or DEFAULT_ROLLOUT_SECONDS)

    async def _play(self, todo: list[RolloutJob], observers: Sequence[Observer], watching: EvaluationProgress) -> None:
        most = min(self.task_options.concurrency, len(todo))
        async with (
            episode_workers(self.worker_options, self.policy.policy, concurrency=most) as at_once,
            progress_updates(watching),
        ):
            everybody: list[Observer] = [*observers, watching]
            await play_jobs(watching.settings, todo, observers=everybody, concurrency=at_once)


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
