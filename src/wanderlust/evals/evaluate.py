"""Plays tasks and reports what came out.

Judges again what was played before, with another rubric; nothing is played.

The folder of an evaluation: begun once, gone on with whenever the same command comes again.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from wanderlust.environment import Environment, Limits
from wanderlust.errors import RubricFailure, UsageError, WanderlustError, boundary
from wanderlust.evals.accumulator import ReportAccumulator
from wanderlust.evals.report import Report
from wanderlust.runner.engine import (
    RolloutJob,
    RolloutSettings,
    SeatPolicies,
    WorkerBackend,
    open_worker_pool,
    rollout_jobs,
)
from wanderlust.store.run_folder import (
    CONFIG_FILE,
    EVALUATION_RECIPE,
    EVALUATION_STAGE,
    REPORT_FILE,
    STORE_FILE,
    open_folder,
)
from wanderlust.store.store import RunStore
from wanderlust.types import Group, GroupRubric, Rollout, RubricLike, Status, Task

Observer = Callable[[Sequence[Group]], None]
"""Sees what has finished since it was called last, each rollout once: groups that may hold some of the siblings only.

A progress bar, or `RunStore.sink(stage=..., step=...)`, which keeps all of it in one commit.
"""


async def evaluate(
    env: Environment,
    policy: SeatPolicies,
    *,
    tasks: Iterable[Task],
    rubric: RubricLike | None = None,
    samples: int = 1,
    observers: Sequence[Observer] = (),
    concurrency: int | WorkerBackend = 64,
    seed: int = 0,
    limits: Limits | None = None,
) -> Report:
    """Play every task `samples` times; `tasks` must end. Without `rubric` and `limits` the environment's are used.

    A rollout that fails is in no estimate and never counts as reward 0; the report says how many failed and why.
    What an observer raises ends the evaluation.
    """
    tally, started = ReportAccumulator(), time.monotonic()
    play = RolloutSettings(env=env, policy=policy, rubric=rubric, limits=limits, retries=1)
    todo = rollout_jobs(tasks, seed=seed, group_size=samples)
    await play_jobs(play, todo, observers=[*observers, tally.add], concurrency=concurrency)
    return tally.report(time.monotonic() - started)


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
    tally = ReportAccumulator()
    tally.add(groups)
    return tally.report(seconds)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFolder:
    """An evaluation on disk, open for writing."""

    out: Path
    store: RunStore

    def finished_jobs(self, tasks: Sequence[Task]) -> set[tuple[int, int]]:
        """Position and sibling of what need not be played again; failed rollouts are tried once more.

        Raises UsageError when the tasks are not those of the rollouts that are there.
        """
        done = {(row.group, row.sample_index): row.task for row in self.store.rollouts({"stage": EVALUATION_STAGE})}
        for (index, _), task in done.items():
            if index >= len(tasks) or tasks[index].id != task:
                raise UsageError(f"{self.out}: the environment's tasks have changed since: name another folder")
        failed = self.store.rollouts({"stage": EVALUATION_STAGE, "status": str(Status.ERROR)})
        return done.keys() - {(row.group, row.sample_index) for row in failed}

    def groups(self, wanted: set[tuple[int, int]]) -> Iterator[Group]:
        """What was played before, one group at a time."""
        for group in self.store.iter_groups(EVALUATION_STAGE, 0):
            group.rollouts = [r for r in group.rollouts if (group.index, r.sample_index) in wanted]
            yield group

    def write_report(self, report: Report) -> None:
        """Write the report."""
        (self.out / REPORT_FILE).write_text(json.dumps(report.as_dict(), indent=2) + "\n")


@contextmanager
def open_evaluation_folder(out: Path | None, settings: Mapping[str, Any]) -> Iterator[EvaluationFolder | None]:
    """The folder `out`, begun or opened again; None without one.

    Raises UsageError when `out` is something else, or an evaluation with other settings.
    """
    if out is None:
        yield None
        return
    _begin(out, settings)
    path = out / STORE_FILE
    with RunStore.open(path) if path.exists() else RunStore.create(path) as store:
        yield EvaluationFolder(out=out, store=store)


def _begin(out: Path, settings: Mapping[str, Any]) -> None:
    run = open_folder(out)
    if run is None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out} exists already: name another folder with --out")
        out.mkdir(parents=True, exist_ok=True)
        draft = out / f"{CONFIG_FILE}.new"
        draft.write_text(json.dumps({"recipe": EVALUATION_RECIPE, "config": settings}, indent=2) + "\n")
        draft.rename(out / CONFIG_FILE)
        return
    if run.recipe != EVALUATION_RECIPE:
        raise UsageError(f"{out} is no evaluation, but a run of {run.recipe}: name another folder with --out")
    other = [f"{n} was {run.config.get(n)} and is {v}" for n, v in settings.items() if run.config.get(n) != v]
    if other:
        raise UsageError(f"{out} holds another evaluation ({'; '.join(other)}): name another folder with --out")


def remaining_jobs(todo: Iterable[RolloutJob], done: set[tuple[int, int]]) -> list[RolloutJob]:
    """The jobs that were not played yet."""
    return [job for job in todo if (job.index, job.sample_index) not in done]


def complete_groups(done: set[tuple[int, int]], todo: Iterable[RolloutJob]) -> set[tuple[int, int]]:
    """What was played, without groups that miss a sibling: where siblings are compared, all are played again."""
    short = {job.index for job in todo if (job.index, job.sample_index) not in done}
    return {(index, sibling) for index, sibling in done if index not in short}
