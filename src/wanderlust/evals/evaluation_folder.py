"""Evaluations on disk: the folder, which the same call opens again to go on where it was stopped; two compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanderlust.errors import UsageError
from wanderlust.evals.report import Report
from wanderlust.runner.control import serve_control
from wanderlust.runner.engine import RolloutJob
from wanderlust.store.run_folder import (
    CONFIG_FILE,
    EVALUATION_RECIPE,
    EVALUATION_STAGE,
    PASS_THRESHOLD_KEY,
    REPORT_FILE,
    STORE_FILE,
    RunClock,
    open_folder,
)
from wanderlust.store.store import RunStore
from wanderlust.store.whole_files import replacing
from wanderlust.types import Group, Status, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFolder:
    """An evaluation on disk, open for writing."""

    out: Path
    store: RunStore
    clock: RunClock

    def finished_jobs(self, tasks: Sequence[Task]) -> set[tuple[int, int]]:
        """Position and sibling of what need not be played again; failed rollouts are tried once more.

        Raises UsageError when the tasks are not those of the rollouts that are there.
        """
        done = {(row.group, row.sample_index): row.task for row in self.store.rollouts({"stage": EVALUATION_STAGE})}
        for (index, _), task in done.items():
            if index >= len(tasks) or tasks[index].id != task:
                raise UsageError(f"{self.out}: the environment's tasks have changed since: choose another folder")
        failed = self.store.rollouts({"stage": EVALUATION_STAGE, "status": str(Status.ERROR)})
        return done.keys() - {(row.group, row.sample_index) for row in failed}

    def groups(self, wanted: set[tuple[int, int]]) -> Iterator[Group]:
        """What was played before, one group at a time."""
        for group in self.store.iter_groups(EVALUATION_STAGE, 0):
            group.rollouts = [r for r in group.rollouts if (group.index, r.sample_index) in wanted]
            yield group

    def sink(self, env: str) -> Callable[[Sequence[Group]], None]:
        """Stores the groups that it is called with, as rollouts of this environment."""
        store = self.store.sink(stage=EVALUATION_STAGE, step=0, env=env)

        def keep(groups: Sequence[Group]) -> None:
            store(groups)
            self.clock.record(at_once=False)

        return keep

    def has_report(self, played: int) -> bool:
        """Whether the report of that many rollouts, which are all, was written: it is left as it is then."""
        try:
            return bool(json.loads((self.out / REPORT_FILE).read_text())["played"] == played)
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def record_threshold(self, threshold: float, *, played: int, todo: int) -> None:
        """Store the passing reward for the report that is going to be written, if one is."""
        if todo or not self.has_report(played):
            self.store.set_meta(PASS_THRESHOLD_KEY, threshold)

    def write_report(self, report: Report) -> None:
        """Write the report; the file is the old or the new one, whenever the process is killed."""
        with replacing(self.out / REPORT_FILE) as draft:
            draft.write_text(json.dumps(stored_report(report), indent=2) + "\n")


def stored_report(report: Report) -> dict[str, Any]:
    """The figures and the breakdown as plain JSON data; where code changed meanwhile, those of each version."""
    body = report.as_dict()
    if report.by_code:
        body["by_code"] = {code: stored_report(part) for code, part in report.by_code.items()}
    if report.breakdown:
        parts = {value: part.as_dict() for value, part in report.breakdown.items()}
        body |= {"group_by": report.group_by, "breakdown": parts}
    return body


@contextmanager
def open_evaluation_folder(
    out: str | Path | None,
    settings: Mapping[str, Any],
    *,
    resume: bool = True,
    note: Callable[[str], None] | None = None,
) -> Iterator[EvaluationFolder | None]:
    """Create the folder `out` of an evaluation, or open it again; None without one.

    With `note`, which gets a line for each command, it can be paused and stopped from outside.
    Raises UsageError when `out` is something else, or an evaluation with other settings, or with `resume=False` exists.
    """
    if out is None:
        yield None
        return
    out = Path(out)
    if not resume and out.exists():
        raise UsageError(f"{out} exists already: choose another folder, or resume it")
    _begin(out, settings)
    path = out / STORE_FILE
    with (
        RunStore.open(path) if path.exists() else RunStore.create(path) as store,
        nullcontext() if note is None else serve_control(store.path, note),
    ):
        yield EvaluationFolder(out=out, store=store, clock=RunClock(store))


def _begin(out: Path, settings: Mapping[str, Any]) -> None:
    run = open_folder(out)
    if run is None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out} exists already: choose another folder")
        with replacing(out / CONFIG_FILE) as draft:
            draft.write_text(json.dumps({"recipe": EVALUATION_RECIPE, "config": settings}, indent=2) + "\n")
        return
    if run.recipe != EVALUATION_RECIPE:
        raise UsageError(f"{out} is no evaluation, but a run of {run.recipe}: choose another folder")
    other = [f"{n} was {run.config.get(n)} and is {v}" for n, v in settings.items() if run.config.get(n) != v]
    if other:
        raise UsageError(f"{out} holds another evaluation ({'; '.join(other)}): choose another folder")


def remaining_jobs(todo: Iterable[RolloutJob], done: set[tuple[int, int]]) -> list[RolloutJob]:
    """The jobs that were not played yet."""
    return [job for job in todo if (job.index, job.sample_index) not in done]


def complete_groups(done: set[tuple[int, int]], todo: Iterable[RolloutJob]) -> set[tuple[int, int]]:
    """What was played, without groups that miss a sibling: where siblings are compared, all are played again."""
    short = {job.index for job in todo if (job.index, job.sample_index) not in done}
    return {(index, sibling) for index, sibling in done if index not in short}
