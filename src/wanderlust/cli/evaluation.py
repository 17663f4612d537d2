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

from wanderlust._lazy import load
from wanderlust.cli.options import Answers, Hands, Questions
from wanderlust.cli.output import note
from wanderlust.cli.progress import Progress
from wanderlust.environment import Limits
from wanderlust.errors import UsageError, near
from wanderlust.evals.accumulator import Tally
from wanderlust.evals.aggregation import EstimateReport, Estimates
from wanderlust.evals.evaluate import Kept, Observer, left, perform, whole_groups
from wanderlust.evals.report import Report
from wanderlust.policies.resolve import SCRIPT, Answering, Voice, find_judge, opened, policy_of
from wanderlust.rubrics.label_free import checks, reads
from wanderlust.rubrics.references import Name, estimator
from wanderlust.runner.engine import Crew, Job, Play, jobs
from wanderlust.runner.watchdog import freed, waiting
from wanderlust.store.run_folder import STAGE_KEPT
from wanderlust.tasks.registry import Found, environment
from wanderlust.tasks.selection import MOST, choose, faults
from wanderlust.types import Group, Policy, Rollout, Status, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The policy of an evaluation as it was named: all that a worker needs to make it."""

    policy: str
    voice: Voice


@asynccontextmanager
async def at_work(hands: Hands, policy: Policy, *, most: int) -> AsyncIterator[int | Crew]:
    """Whoever plays at most so many episodes at once: this process, or a crew that leaves with the block.

    Raises UsageError or WorkerFailure of one line when there is no Ray, or its workers do not start.
    """
    if hands.ray is None:
        async with opened([policy]):
            yield most
        return
    crew = load("wanderlust.runner.ray:ray_crew", extra="ray")
    async with crew(hands.ray, each=ceil(most / hands.ray), address=hands.ray_address) as workers:
        yield workers


def sendable(play: Play, found: Found, named: Named, *, workers: int) -> Play:
    """The same play, whose environment and policy are made where it is played."""
    remade = load("wanderlust.runner.ray:Remade", extra="ray")
    voice = replace(named.voice, concurrency=ceil(named.voice.concurrency / workers))
    policy = remade(policy_of, _anywhere(named.policy), found.target, voice)
    return replace(play, env=remade(environment, found.target), policy=policy)


def _anywhere(policy: str) -> str:
    """The same policy from any folder."""
    file, colon, member = policy.rpartition(":")
    if SCRIPT.fullmatch(policy) and file.endswith(".py"):
        return f"{Path(file).resolve()}{colon}{member}"
    return str(Path(policy).resolve()) if Path(policy).exists() else policy


AT_ONCE = 16
"""Tasks whose estimates are made at once."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Estimating:
    """What is made of the samples of a task together."""

    estimate: Name | None = None
    """Distil one answer from each task's samples, and say what it earns beside them (docs/teachers.md)."""
    anchor: str | None = None
    """Who writes a synthesis: as --policy, but no player. Default: the policy itself."""
    shows_question: bool = False
    """Show the anchor the question as well as the samples."""

    def checked(self, questions: Questions) -> dict[str, Any]:
        """The options by name. Raises UsageError where they do not go together."""
        if self.estimate is None and (self.anchor is not None or self.shows_question):
            raise UsageError("--anchor and --shows-question are for --estimate synthesis")
        if self.estimate is not None and (questions.samples < 2 or questions.exact):
            raise UsageError("--estimate distils an answer from several samples of a task: add --samples 8")
        return asdict(self)

    def together(self, found: Found, asked: Answering, answers: Answers) -> Together | None:
        """What will make the estimates, if there are to be any. UsageError when nobody can be asked for one."""
        if self.estimate is None:
            return None
        anchor = asked.policy if asked.kind in ("local", "endpoint") else None
        if self.anchor is not None:
            anchor = find_judge(self.anchor, answers.voice(greedy=False)).policy
        likelihood: Any = None
        if self.estimate == "mutual" and asked.kind == "local":
            local: Any = asked.policy
            likelihood = load("wanderlust.training.reference_model:likelihood", extra="train")(
                local.engine.model, local.renderer
            )
        estimate = estimator(
            self.estimate,
            anchor=anchor,
            likelihood=likelihood,
            extract=reads(found.env),
            shows_question=self.shows_question,
        )
        estimates = Estimates(name=self.estimate, estimator=estimate, check=checks(found.env))
        voices = [anchor] if anchor is not None and self.estimate == "synthesis" else []
        return Together(estimates=estimates, voices=voices)


@dataclass(slots=True, kw_only=True)
class Together:
    """Rollouts that finished one by one, as groups of siblings again, and what is made of them."""

    estimates: Estimates
    voices: list[Policy]
    """Who is asked for the estimates."""
    groups: dict[int, Group] = field(default_factory=dict)

    def add(self, group: Group) -> None:
        """Some of the siblings."""
        mine = self.groups.setdefault(group.index, Group(task=group.task, rollouts=[], index=group.index))
        mine.rollouts += group.rollouts

    def whole(self) -> Iterator[Group]:
        """All groups, in the order of the tasks and siblings."""
        for _, group in sorted(self.groups.items()):
            group.rollouts.sort(key=lambda rollout: rollout.sibling)
            yield group

    async def estimate(self, progress: Progress) -> None:
        """Make all the estimates."""
        async with opened(self.voices):
            whole = list(self.whole())
            for start in range(0, len(whole), AT_ONCE):
                await self.estimates.add(whole[start : start + AT_ONCE])
                progress.show("estimate", min(start + AT_ONCE, len(whole)), of=len(whole), figures={})


def estimate_table(found: EstimateReport) -> Table:
    """For the terminal."""
    table = Table("", "value", "95% interval", "tasks", title="All samples of a task together", title_justify="left")
    for label, figure in found.rows():
        known = figure.low is not None and figure.high is not None
        interval = f"{figure.low:.3f} to {figure.high:.3f}" if known else "unknown"
        table.add_row(Text(label), f"{figure.value:.3f}", interval, str(figure.clusters))
    return table


STALL_SECONDS = 10.0
"""How long nothing may finish before a line says what is waited for; then twice as long, and so on."""
REFRESH_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class Watching:
    """An observer that follows an evaluation; `watched` around it keeps the figures moving."""

    progress: Progress
    tally: Tally
    play: Play
    total: int
    clock: Callable[[], float] = time.monotonic
    stall: float = STALL_SECONDS
    finished: int = 0
    before: int = field(init=False)
    began: float = field(init=False)
    moved: float = field(init=False)
    patience: float = field(init=False)

    def __post_init__(self) -> None:
        self.before, self.patience = self.tally.totals["played"], self.stall
        self.began = self.moved = self.clock()

    def __call__(self, groups: Sequence[Group]) -> None:
        """Something has finished; it is kept and counted already."""
        self.moved, self.patience = self.clock(), self.stall
        self.finished += sum(len(group.rollouts) for group in groups)
        if self.before + self.finished >= self.total:
            self.show()

    def show(self) -> None:
        """Hand the newest figures over."""
        totals, passed = self.tally.totals, self.clock() - self.began
        figures = {"rollouts_per_s": self.finished / passed if passed else 0.0}
        running = self.tally.running()
        if running is not None:
            figures["reward"] = running.value
            if running.low is not None and running.high is not None:
                figures |= {"low": running.low, "high": running.high}
        figures["failed"] = totals["played"] - totals["scored"]
        self.progress.show("evaluate", totals["played"], of=self.total, figures=figures)

    def look(self) -> None:
        """Say what is waited for when nothing has finished for a while."""
        now = self.clock()
        if self.play.active and now - self.moved >= self.patience:
            self.patience *= 2
            self.progress.tell(waiting(self.play.active, now))

    async def tick(self) -> None:
        """For ever: figures and waiting, about once a second, and more rarely where counting takes long."""
        while True:
            began = time.perf_counter()
            self.show()
            self.look()
            await asyncio.sleep(max(REFRESH_SECONDS, 20 * (time.perf_counter() - began)))


@asynccontextmanager
async def watched(watching: Watching) -> AsyncIterator[None]:
    """Shows how it goes for the time of the block, and frees the event loop from whoever holds it."""
    ticking = asyncio.create_task(watching.tick())
    try:
        with freed(watching.progress.tell):
            yield
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


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
    together: Together | None = None
    """What keeps all rollouts in memory and makes something of them in the end."""
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
            observers.insert(0, folder.store.sink(stage=STAGE_KEPT, step=0, env=self.found.name))
        total = self.total.totals["played"] + len(todo)
        watching = Watching(progress=progress, tally=self.total, play=play, total=total)
        for observer in observers:
            observer([_refused(job, broken[job.index]) for job in todo if job.index in broken])
        playable = [job for job in todo if job.index not in broken]
        if playable:
            asyncio.run(self._play(playable, observers, watching))
        if self.together is not None:
            asyncio.run(self.together.estimate(progress))
        self.whole = self.total.report(time.monotonic() - began)
        if folder is not None:
            folder.end(self.whole)

    def count(self, groups: Iterable[Group]) -> None:
        """Add to the tally of all, and to that of the tasks' kind."""
        for group in groups:
            self.total.add([group])
            if self.together is not None:
                self.together.add(group)
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
