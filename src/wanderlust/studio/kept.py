"""The folder of an evaluation: begun once, gone on with whenever the same command comes again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanderlust.core.errors import StoreError, UsageError
from wanderlust.core.types import Group, Status, Task
from wanderlust.evals.report import Report
from wanderlust.recipes.folder import CONFIG, EVALUATION, PLAY, REPORT, STORE, open_folder
from wanderlust.rollout.engine import Job
from wanderlust.rollout.store import RunStore
from wanderlust.studio.output import command

STAGE = "evaluate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An evaluation on disk, open for writing."""

    out: Path
    store: RunStore

    def played(self, tasks: Sequence[Task]) -> set[tuple[int, int]]:
        """Position and sibling of what need not be played again; failed rollouts are tried once more.

        Raises UsageError when the tasks are not those of the rollouts that are there.
        """
        done = {(row.group, row.sibling): row.task for row in self.store.rollouts({"stage": STAGE})}
        for (index, _), task in done.items():
            if index >= len(tasks) or tasks[index].id != task:
                raise UsageError(f"{self.out}: the environment's tasks have changed since: name another folder")
        failed = self.store.rollouts({"stage": STAGE, "status": str(Status.ERROR)})
        return done.keys() - {(row.group, row.sibling) for row in failed}

    def groups(self, wanted: set[tuple[int, int]]) -> Iterator[Group]:
        """What was played before, one group at a time."""
        for group in self.store.each_group(STAGE, 0):
            group.rollouts = [r for r in group.rollouts if (group.index, r.sibling) in wanted]
            yield group

    def end(self, whole: Report) -> None:
        """Write the report."""
        (self.out / REPORT).write_text(json.dumps(whole.as_dict(), indent=2) + "\n")


@contextmanager
def kept(out: Path | None, settings: Mapping[str, Any]) -> Iterator[Kept | None]:
    """The folder `out`, begun or opened again; None without one.

    Raises UsageError when `out` is something else, or an evaluation with other settings.
    """
    if out is None:
        yield None
        return
    _begin(out, settings)
    path = out / STORE
    with RunStore.open(path) if path.exists() else RunStore.create(path) as store:
        yield Kept(out=out, store=store)


def _begin(out: Path, settings: Mapping[str, Any]) -> None:
    run = open_folder(out)
    if run is None:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out} exists already: name another folder with --out")
        out.mkdir(parents=True, exist_ok=True)
        draft = out / f"{CONFIG}.new"
        draft.write_text(json.dumps({"recipe": EVALUATION, "config": settings}, indent=2) + "\n")
        draft.rename(out / CONFIG)
        return
    if run.recipe != EVALUATION:
        raise UsageError(f"{out} is no evaluation, but a run of {run.recipe}: name another folder with --out")
    other = [f"{n} was {run.config.get(n)} and is {v}" for n, v in settings.items() if run.config.get(n) != v]
    if other:
        raise UsageError(f"{out} holds another evaluation ({'; '.join(other)}): name another folder with --out")


def left(todo: Iterable[Job], done: set[tuple[int, int]]) -> list[Job]:
    """The jobs that were not played yet."""
    return [job for job in todo if (job.index, job.sibling) not in done]


def whole_groups(done: set[tuple[int, int]], todo: Iterable[Job]) -> set[tuple[int, int]]:
    """What was played, without groups that miss a sibling: where siblings are compared, all are played again."""
    short = {job.index for job in todo if (job.index, job.sibling) not in done}
    return {(index, sibling) for index, sibling in done if index not in short}


def again(settings: Mapping[str, Any], **more: Any) -> str:
    """The command with these settings; those that are None or False are left out, and a seed of 0."""
    words: list[str | Path] = []
    for name, value in {**settings, **more}.items():
        if name == "env" or value is None or value is False or (name, value) in (("seed", 0), ("samples", 1)):
            continue
        option = f"--{name.replace('_', '-')}"
        words += [option] if value is True else [option, str(value)]
    return command("eval", str(settings["env"]), *words)


def evaluation(path: Path) -> tuple[Path, Mapping[str, Any]]:
    """The store of a run and the settings it was made with; `path` is the run's folder or the store itself."""
    folder = path.parent if path.is_file() else path
    run = open_folder(folder)
    store = path if path.is_file() else folder / STORE
    if not store.is_file():
        raise StoreError(f"{path}: there is no run here" if run is None else f"{path}: nothing was played yet")
    return store, run.config if run is not None and run.recipe in (EVALUATION, PLAY) else {}
