"""`evaluate`: play the tasks of an environment, keep every rollout, and report figures with intervals."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any, cast

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment, Limits
from wanderlust.errors import RubricFailure, UsageError, WanderlustError, boundary, nearest_names
from wanderlust.evals.accumulator import ReportAccumulator
from wanderlust.evals.aggregation import SelfConsistency
from wanderlust.evals.evaluation_folder import EvaluationFolder, complete_groups, open_evaluation_folder, remaining_jobs
from wanderlust.evals.progress import EvaluationProgress, progress_updates
from wanderlust.evals.report import Report
from wanderlust.policies.base import TokenPrices
from wanderlust.policies.resolve import PolicyOptions, open_policies, resolve_policy
from wanderlust.runner.control import serve_control
from wanderlust.runner.engine import (
    RolloutJob,
    RolloutSettings,
    SeatPolicies,
    WorkerBackend,
    open_worker_pool,
    rollout_jobs,
    run_blocking,
)
from wanderlust.runner.progress import Logger, NullLogger, Progress, ProgressLogger
from wanderlust.store.run_folder import (
    EVALUATION_STAGE,
)
from wanderlust.tasks.registry import environment_name, resolve_environment
from wanderlust.tasks.selection import MAX_LISTED_TASKS, choose_tasks, find_faulty_tasks, iter_tasks
from wanderlust.types import Group, GroupRubric, Policy, Rollout, RubricLike, Status, Task

Observer = Callable[[Sequence[Group]], None]
"""Called with what finished since the last call, each rollout once; a group may hold only some of its rollouts.

Examples are a progress bar, and `RunStore.sink(stage=..., step=...)`, which stores all of them in one commit.
"""
DEFAULT_ROLLOUT_SECONDS = 3600.0
"""Wall-clock seconds that a rollout may take where neither the environment nor the caller sets a limit."""


async def evaluate(  # noqa: PLR0913 (the whole of `wander eval` as one call)
    env: Environment | str,
    policy: SeatPolicies | str | Path,
    *,
    tasks: Iterable[Task] | None = None,
    split: str = "eval",
    n: int | None = None,
    task: str | None = None,
    samples: int = 1,
    seats: Mapping[str, Policy] | None = None,
    rubric: RubricLike | None = None,
    out: str | Path | None = None,
    resume: bool = True,
    concurrency: int | WorkerBackend = 128,
    ray_workers: int | None = None,
    ray_address: str | None = None,
    limits: Limits | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 (of one rollout, not of this call)
    seed: int = 0,
    group_by: str | None = None,
    pass_threshold: float = 1.0,
    prices: TokenPrices | None = None,
    aggregation: SelfConsistency | None = None,
    observers: Sequence[Observer] = (),
    progress: Logger | bool = True,
    settings: Mapping[str, Any] | None = None,
    name: str = "",
) -> Report:
    """Play every task `samples` times and report the figures with 95% intervals.

    A rollout that fails is in no figure and never counts as reward 0; the report says how many failed and why. With
    `out` every rollout is stored as it finishes, and the same call goes on where it was stopped.

    Args:
        env: An environment, or the name of one as `load_environment` takes it.
        policy: A policy for every seat, a mapping from seats to policies, or a name (a player of the environment, a
            run or a checkpoint folder).
        tasks: Tasks to play; they must end. Default: those of `split`.
        split: Split of the environment that is played.
        n: Number of tasks, spread evenly over the split. Default: all.
        task: Id of the only task to play; `ID#2` is its sample 2.
        samples: Rollouts per task.
        seats: Policies of some seats (a simulated user, an opponent); `policy` plays the others.
        rubric: Scores the rollouts. Default: the environment's rubric.
        out: Folder that keeps the rollouts and the report.
        resume: Whether `out` may hold the same evaluation already, which then goes on. Else it must be new.
        concurrency: Rollouts at once, or the workers that play them.
        ray_workers: Number of Ray workers that play, sharing `concurrency` (needs the extra `ray`).
        ray_address: `HOST:PORT` of their cluster. Default: processes of this machine.
        limits: Bounds of an episode. Default: the environment's.
        timeout: Wall-clock seconds of one rollout. Default: the limits', or an hour.
        seed: Seed of everything random.
        group_by: Key of `Task.info` by which the report is broken down. Default: the environment's.
        pass_threshold: Smallest reward that counts as passed, for pass@k.
        prices: Dollars per million tokens, for the cost.
        aggregation: What is made of all samples of a task together.
        observers: Called with the groups that have finished; what one raises ends the evaluation.
        progress: Whether to draw progress on stderr, or the logger that gets it.
        settings: What the folder says of the evaluation. Default: made from the arguments.
        name: Name of the environment in the store and in messages. Default: as it was given, or its class.

    Returns:
        The report.

    Raises:
        UsageError: when an argument is wrong, or `out` holds another evaluation.
        StoreError: when a rollout cannot be stored.

    Example:
        >>> report = await evaluate(HigherLower(), Endpoint(url, model="small"), n=50, samples=4, out="runs/small")
        >>> report.reward.value
        0.62
    """
    environment = resolve_environment(env).env if isinstance(env, str) else env
    if isinstance(policy, str | Path):
        policy = resolve_policy(str(policy), environment, PolicyOptions(seed=seed)).policy
    name = name or environment_name(env)
    if settings is None:
        listed = {"split": split, "n": n, "task": task, "samples": samples, "seed": seed}
        settings = {"env": name, "policy": policy_name(policy), **listed}
    evaluation = Evaluation(
        name=name,
        settings=RolloutSettings(
            env=environment,
            policy=_seat_policies(environment, policy, seats),
            rubric=rubric,
            limits=_rollout_limits(limits or environment.limits, timeout),
            retries=1,
        ),
        accumulator=partial(ReportAccumulator, pass_threshold=pass_threshold, prices=prices),
        group_by=group_by or environment.group_by,
        aggregation=aggregation,
    )
    choice = iter_tasks(environment, split) if tasks is None else list(tasks)
    jobs = _choose_jobs(choice, f"the split {split!r} of {name}", n=n, only=task, samples=samples, seed=seed)
    backend = partial(_workers, evaluation.settings, concurrency, ray_workers, ray_address=ray_address)
    with _progress(progress) as logger, open_evaluation_folder(out, settings, resume=resume) as folder:
        note = logger.log_line if isinstance(logger, ProgressLogger) else _ignore_line
        with serve_control(folder.store.path, note) if folder is not None else nullcontext():
            return await evaluation.play(jobs, folder, backend, observers=observers, logger=logger)


def evaluate_sync(env: Environment | str, policy: SeatPolicies | str | Path, **options: Any) -> Report:
    """Call `evaluate` and wait for it; works in scripts and where an event loop runs already, as in a notebook.

    Takes the arguments of `evaluate`, returns its report and raises its errors.

    Example:
        >>> print(evaluate_sync("tictactoe", "teacher", n=30))
    """
    return run_blocking(partial(evaluate, env, policy, **options))


def policy_name(policy: SeatPolicies) -> str:
    """The name of a policy in a run's settings: a model and where it is, or the name of a class."""
    if isinstance(policy, Mapping):
        return ", ".join(f"{seat}={policy_name(one)}" for seat, one in policy.items())
    label = getattr(policy, "label", None)
    return label if isinstance(label, str) else type(policy).__name__


def _seat_policies(env: Environment, policy: SeatPolicies, seats: Mapping[str, Policy] | None) -> SeatPolicies:
    if not seats:
        return policy
    if unknown := seats.keys() - set(env.seats):
        raise UsageError(f"no seat {sorted(unknown)[0]!r} in {type(env).__name__}; there are: {', '.join(env.seats)}")
    others = policy if isinstance(policy, Mapping) else dict.fromkeys(env.seats, policy)
    return {**others, **seats}


def _rollout_limits(limits: Limits, timeout: float | None) -> Limits:
    return replace(limits, timeout=timeout or limits.timeout or DEFAULT_ROLLOUT_SECONDS)


def _choose_jobs(
    listed: Iterable[Task], name: str, *, n: int | None, only: str | None, samples: int, seed: int
) -> list[RolloutJob]:
    """Every job of the evaluation, played before or not; a list of tasks may be of any length."""
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


@contextmanager
def _progress(progress: Logger | bool) -> Iterator[Logger]:
    if progress is True:
        with Progress() as drawn:
            yield drawn
    else:
        yield NullLogger() if progress is False else progress


def _ignore_line(line: str) -> None:
    """Nobody reads lines."""


@asynccontextmanager
async def _workers(
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


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """One evaluation: plays what is left, and accumulates the figures of all rollouts and of each part."""

    name: str
    settings: RolloutSettings
    accumulator: Callable[[], ReportAccumulator]
    group_by: str | None = None
    aggregation: SelfConsistency | None = None
    total: ReportAccumulator = field(init=False)
    parts: dict[str, ReportAccumulator] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.total = self.accumulator()

    async def play(
        self,
        todo: list[RolloutJob],
        folder: EvaluationFolder | None,
        backend: Callable[..., Any],
        *,
        observers: Sequence[Observer],
        logger: Logger,
    ) -> Report:
        """Play the jobs that are not in the folder yet, store them there, and return the report of all."""
        began, tasks = time.monotonic(), list({job.index: job.task for job in todo}.values())
        faulty = find_faulty_tasks(tasks)
        everybody: list[Observer] = [*observers, self.add]
        if folder is not None:
            done = folder.finished_jobs(tasks)
            if self.settings.compares:
                done = complete_groups(done, todo)
            self.add(folder.groups(done))
            todo = remaining_jobs(todo, done)
            everybody.insert(0, folder.store.sink(stage=EVALUATION_STAGE, step=0, env=self.name))
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
                self.parts.setdefault(part, self.accumulator()).add([group])

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


def report_of_groups(groups: Iterable[Group], seconds: float = 0.0) -> Report:
    """The report of groups that were played before, as `RunStore.groups` returns them."""
    total = ReportAccumulator()
    total.add(groups)
    return replace(total.report(seconds), task_rows=tuple(total.rows()))


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
