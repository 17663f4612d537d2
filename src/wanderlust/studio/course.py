"""One evaluation from beginning to end: what was played before, what is left, and what came of all of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from wanderlust.core.contracts import Limits
from wanderlust.core.errors import UsageError
from wanderlust.core.types import Group, Rollout, Status, Task
from wanderlust.evals.evaluate import Observer, perform
from wanderlust.evals.report import Report
from wanderlust.evals.split import MOST, choose, faults
from wanderlust.evals.tally import Tally
from wanderlust.rollout.engine import Job, Play, jobs
from wanderlust.studio.crewing import Named, at_work, sendable
from wanderlust.studio.kept import STAGE, Kept, left, whole_groups
from wanderlust.studio.options import Hands, Questions
from wanderlust.studio.output import near, note
from wanderlust.studio.progress import Progress
from wanderlust.studio.resolve import Answering, Found
from wanderlust.studio.watching import Watching, watched

LONGEST = 3600.0
"""Seconds that a rollout may take where neither the environment nor the caller says so."""


@dataclass(slots=True, kw_only=True)
class Course:
    """Plays what is to be played; afterwards `whole` is the report, and `parts` the tallies by a key of the tasks."""

    found: Found
    asked: Answering
    questions: Questions
    hands: Hands
    named: Named
    """The policy, for workers to make."""
    seed: int
    by: str | None
    tally: Callable[[], Tally]
    total: Tally = field(init=False)
    parts: dict[str, Tally] = field(default_factory=dict)
    whole: Report = field(init=False)

    def __post_init__(self) -> None:
        self.total = self.tally()

    def run(self, folder: Kept | None, progress: Progress) -> None:
        """Play what is not in the folder yet, and keep it there."""
        began, (tasks, todo) = time.monotonic(), self._todo()
        broken = faults(tasks)
        for why in broken.values():
            note(why)
        play = Play(env=self.found.env, policy=self.asked.policy, limits=self._limits(), retries=1)
        if self.hands.ray is not None:
            play = sendable(play, self.found, self.named, workers=self.hands.ray)
        observers: list[Observer] = [self.count]
        if folder is not None:
            done = folder.played(tasks)
            if play.compares:
                done = whole_groups(done, todo)
            self.count(folder.groups(done))
            todo = left(todo, done)
            observers.insert(0, folder.store.sink(stage=STAGE, step=0, env=self.found.name))
        total = self.total.totals["played"] + len(todo)
        watching = Watching(progress=progress, tally=self.total, play=play, total=total)
        for observer in observers:
            observer([_refused(job, broken[job.index]) for job in todo if job.index in broken])
        playable = [job for job in todo if job.index not in broken]
        if playable:
            asyncio.run(self._play(playable, observers, watching))
        self.whole = self.total.report(time.monotonic() - began)
        if folder is not None:
            folder.end(self.whole)

    def count(self, groups: Iterable[Group]) -> None:
        """Add to the tally of all, and to that of the tasks' kind."""
        for group in groups:
            self.total.add([group])
            if self.by is not None and self.by in group.task.info:
                self.parts.setdefault(str(group.task.info[self.by]), self.tally()).add([group])

    def _todo(self) -> tuple[list[Task], list[Job]]:
        """The tasks, and every job, played before or not."""
        listed, only = self.found.env.tasks("eval"), self.questions.only
        if only is None:
            tasks = choose(listed, self.questions.tasks)
            if not tasks:
                raise UsageError(f"{self.found.name} has no tasks in its eval split")
            return tasks, list(jobs(tasks, seed=self.seed, group_size=self.questions.samples))
        name, _, sibling = only.rpartition("#") if only.rpartition("#")[2].isdecimal() else (only, "", "")
        known = list(islice(listed, MOST))
        tasks = [task for task in known if task.id == name][:1]
        if not tasks:
            raise UsageError(
                f"no task {name!r} in {self.found.name}; {near(name, [t.id for t in known], kind='tasks')}"
            )
        siblings = [int(sibling)] if sibling else range(self.questions.samples)
        return tasks, [Job(tasks[0], self.seed, number, group_size=len(siblings)) for number in siblings]

    def _limits(self) -> Limits:
        own = self.found.env.limits
        return replace(own, timeout=self.questions.timeout or own.timeout or LONGEST)

    async def _play(self, todo: list[Job], observers: Sequence[Observer], watching: Watching) -> None:
        most = min(self.questions.concurrency, len(todo))
        async with at_work(self.hands, self.asked.policy, most=most) as at_once, watched(watching):
            everybody: list[Observer] = [*observers, watching]
            await perform(watching.play, todo, observers=everybody, concurrency=at_once)


def _refused(job: Job, why: str) -> Group:
    """A rollout that was not played, on the record."""
    task = Task(id=job.task.id)
    failed = Rollout(
        task=task, seed=job.seed, sibling=job.sibling, status=Status.ERROR, stop="EnvironmentFailure", error=why
    )
    return Group(task=task, rollouts=[failed], index=job.index)
