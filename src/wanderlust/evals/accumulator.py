"""Counts rollouts in any order, for the report, which does not depend on the order, and for the progress until then."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from math import fsum

from wanderlust.errors import EnvironmentFailure
from wanderlust.evals.report import ErrorCount, Report, TaskRow, Usage
from wanderlust.evals.statistics import Estimate, estimate, pass_all_k, pass_at_k, percentile
from wanderlust.policies.base import TokenPrices
from wanderlust.runner.engine import RolloutSettings
from wanderlust.runner.progress import Logger, ProgressLogger
from wanderlust.runner.watchdog import describe_waiting, watch_event_loop
from wanderlust.store.records import count_tokens, sum_usage
from wanderlust.types import Group, Rollout, Score, Status

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
REFRESH_GROWTH = 1.02
"""Growth of the number of values after which the running estimate is computed again."""


@dataclass(slots=True)
class Column:
    """One figure of many rollouts: twelve bytes each."""

    tasks: array[int] = field(default_factory=lambda: array("i"))
    """Numbers of the tasks."""
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, task: int, value: float) -> None:
        """Add the value of one rollout."""
        self.tasks.append(task)
        self.values.append(value)

    def clusters(self) -> dict[int, list[float]]:
        """The values by task."""
        out: dict[int, list[float]] = {}
        for task, value in zip(self.tasks, self.values, strict=True):
            out.setdefault(task, []).append(value)
        return out


@dataclass(slots=True)
class SeatScores:
    """The scores of one seat."""

    rewards: Column = field(default_factory=Column)
    trainable: bool = False
    """Whether the seat is one that learns in training, and so one that is judged."""
    parts: dict[str, Column] = field(default_factory=dict)
    metrics: dict[str, Column] = field(default_factory=dict)

    def add(self, task: int, score: Score) -> None:
        """Add the score of one rollout."""
        self.rewards.add(task, score.reward)
        for columns, values in ((self.parts, score.parts), (self.metrics, score.metrics)):
            for name, value in values.items():
                if name not in columns:
                    columns[name] = Column()
                columns[name].add(task, value)

    def estimates(self) -> tuple[dict[str, Estimate], dict[str, Estimate]]:
        """Estimates of the parts, which count as 0 where a score lacks one, and of the metrics, which do not."""
        scored = Counter(self.rewards.tasks)
        parts = {}
        for name, column in sorted(self.parts.items()):
            clusters = column.clusters()
            whole = [clusters.get(task, []) + [0.0] * (n - len(clusters.get(task, ()))) for task, n in scored.items()]
            parts[name] = estimate(whole)
        return parts, {name: estimate(column.clusters().values()) for name, column in sorted(self.metrics.items())}


@dataclass(slots=True)
class ReportAccumulator:
    """Keeps the numbers of rollouts, not the rollouts."""

    pass_threshold: float = 1.0
    """The reward from which on a rollout counts as passed."""
    prices: TokenPrices | None = None
    scores: dict[str, SeatScores] = field(default_factory=dict)
    """By seat."""
    failures: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    """(group, sample index, message) of the first failure, by class."""
    places: dict[str, Counter[str]] = field(default_factory=dict)
    """By class, how often it was raised at each place in the user's own files."""
    totals: Counter[str] = field(default_factory=Counter)
    stop_reasons: Counter[str] = field(default_factory=Counter)
    tasks: dict[str, int] = field(default_factory=dict)
    """The number of each task, by its id."""
    played: array[int] = field(default_factory=lambda: array("i"))
    """Rollouts by the number of the task."""
    seconds: array[float] = field(default_factory=lambda: array("d"))
    """The seconds of each rollout that did not fail."""
    judge_costs: array[float] = field(default_factory=lambda: array("d"))
    """Dollars that judges with prices took for a rollout."""
    last_estimate: Estimate | None = None

    def add(self, groups: Iterable[Group]) -> None:
        """Count every rollout of these groups, which may be parts of groups."""
        for group in groups:
            for rollout in group.rollouts:
                self._count(rollout)
                if rollout.status is Status.ERROR:
                    self.totals[f"failed {rollout.stop_reason}"] += 1
                    message = (group.index, rollout.sample_index, rollout.error or "")
                    if rollout.failure is not None and rollout.failure.place:
                        self.places.setdefault(rollout.stop_reason, Counter())[rollout.failure.place] += 1
                    self.failures[rollout.stop_reason] = min(self.failures.get(rollout.stop_reason, message), message)
                else:
                    self.seconds.append(rollout.seconds)

    def _count(self, rollout: Rollout) -> None:
        task = self.tasks.setdefault(rollout.task.id, len(self.tasks))
        if task == len(self.played):
            self.played.append(0)
        self.played[task] += 1
        self.stop_reasons[rollout.stop_reason] += 1
        turns = [turn for seat in rollout.trajectories for turn in seat.turns]
        scored = [(seat, seat.score) for seat in rollout.trajectories if seat.score is not None]
        (read, written), cached = count_tokens(turns), sum_usage(turns, "cached_tokens")
        self.totals.update(played=1, scored=bool(scored), turns=len(turns), tokens_in=read, tokens_out=written)
        self.totals.update(tokens_cached=cached, tokens_reasoning=sum_usage(turns, "reasoning_tokens"))
        for seat, score in scored:
            if seat.seat not in self.scores:
                self.scores[seat.seat] = SeatScores()
            self.scores[seat.seat].trainable |= seat.trainable
            self.scores[seat.seat].add(task, score)
            self.judge_costs.extend(  # which stand beside the number of the judge's calls
                value
                for name, value in score.metrics.items()
                if name.rpartition("/")[2] == "cost" and f"{name.removesuffix('cost')}calls" in score.metrics
            )

    def _first(self) -> Column:
        """The rewards of the first seat that learns, of the first where none does."""
        seats = self.judged_seats()
        return self.scores[seats[0]].rewards if seats else Column()

    def judged_seats(self) -> list[str]:
        """The seats that learn in training; all where none does."""
        return [name for name, seat in self.scores.items() if seat.trainable] or [*self.scores]

    def running_estimate(self) -> Estimate | None:
        """The mean reward of the first seat that learns so far; None before the first score."""
        column = self._first()
        if column.values and (
            self.last_estimate is None or len(column.values) >= REFRESH_GROWTH * self.last_estimate.count
        ):
            self.last_estimate = estimate(column.clusters().values())
        return self.last_estimate

    def rows(self) -> list[TaskRow]:
        """The rewards of the seats that learn, task by task, in the order of the tasks' ids."""
        by_seat = {seat: self.scores[seat].rewards.clusters() for seat in self.judged_seats()} or {"": {}}
        return [
            TaskRow(
                task=name,
                seat=seat if len(self.scores) > 1 else "",
                played=self.played[task],
                scored=len(rewards.get(task, ())),
                reward=fsum(rewards[task]) / len(rewards[task]) if task in rewards else None,
                passed=sum(value >= self.pass_threshold for value in rewards.get(task, ())),
            )
            for name, task in sorted(self.tasks.items())
            for seat, rewards in by_seat.items()
        ]

    @property
    def dollars(self) -> float | None:
        """What the tokens cost; None without prices."""
        totals = self.totals
        if self.prices is None:
            return None
        return self.prices.cost(totals["tokens_in"], totals["tokens_out"], totals["tokens_cached"])

    @property
    def judge_dollars(self) -> float | None:
        """What judges with prices took; None without any. Exact, so that the order of rollouts changes no digit."""
        return fsum(self.judge_costs) if self.judge_costs else None

    def report(self, seconds: float) -> Report:
        """The report on everything counted so far; `seconds` is the wall-clock time it took."""
        parts: dict[str, Estimate] = {}
        metrics: dict[str, Estimate] = {}
        for seat, scores in sorted(self.scores.items()):
            for into, estimates in zip((parts, metrics), scores.estimates(), strict=True):
                into.update((self._label(seat) + name, value) for name, value in estimates.items())
        ordered = sorted(self.seconds)
        usage = Usage(
            turns=self.totals["turns"],
            tokens_in=self.totals["tokens_in"],
            tokens_out=self.totals["tokens_out"],
            tokens_cached=self.totals["tokens_cached"],
            tokens_reasoning=self.totals["tokens_reasoning"],
            seconds=seconds,
            latency={name: percentile(ordered, share) for name, share in PERCENTILES.items()} if ordered else {},
            dollars=self.dollars,
            judge_dollars=self.judge_dollars,
        )
        return Report(
            tasks=len(self.tasks),
            played=self.totals["played"],
            scored=self.totals["scored"],
            rewards={n: estimate(seat.rewards.clusters().values()) for n, seat in sorted(self.scores.items())},
            passes=self._passes(),
            parts=parts,
            metrics=metrics,
            errors={
                name: ErrorCount(
                    count=self.totals[f"failed {name}"],
                    first=first[2],
                    places=dict(sorted(self.places.get(name, Counter()).items(), key=lambda one: (-one[1], one[0]))),
                )
                for name, first in sorted(self.failures.items())
            },
            stops=dict(sorted(self.stop_reasons.items())),
            usage=usage,
        )

    def _passes(self) -> dict[str, Estimate]:
        """pass@k and pass^k of every seat that learns, for k = 1, 2, 4, ... and the most samples that a task has."""
        out: dict[str, Estimate] = {}
        for seat in sorted(self.judged_seats()):
            scores = self.scores[seat]
            counted = [
                (len(values), sum(value >= self.pass_threshold for value in values))
                for values in scores.rewards.clusters().values()
            ]
            most = max(samples for samples, _ in counted)
            for k in sorted({2**n for n in range(most.bit_length())} | {most}) if most > 1 else ():
                enough = [(samples, right) for samples, right in counted if samples >= k]
                out[f"{self._label(seat)}pass@{k}"] = estimate([[pass_at_k(n, c, k)] for n, c in enough])
                if k > 1:  # pass^1 is pass@1
                    out[f"{self._label(seat)}pass^{k}"] = estimate([[pass_all_k(n, c, k)] for n, c in enough])
        return out

    def _label(self, seat: str) -> str:
        return f"{seat}: " if len(self.scores) > 1 else ""


def report_of_groups(groups: Iterable[Group], seconds: float = 0.0) -> Report:
    """The report of groups that were played before, as `RunStore.groups` returns them."""
    total = ReportAccumulator()
    total.add(groups)
    return replace(total.report(seconds), task_rows=tuple(total.rows()))


def scored_report(groups: Iterable[Group]) -> Report:
    """The report of groups. Raises EnvironmentFailure when nothing could be scored: there is nothing to learn from."""
    result = report_of_groups(groups)
    if result.played and not result.scored:
        name, errors = next(iter(result.errors.items()), ("nothing was scored", None))
        raise EnvironmentFailure(f"all {result.played} rollouts failed: {name}: {errors.first if errors else ''}")
    return result


STALL_SECONDS = 10.0
"""How long nothing may finish before a line says what is waited for; then twice as long, and so on."""
REFRESH_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class VersionTally:
    """Figures of an evaluation: of all rollouts, by what made them, and by a key of the tasks' info."""

    pass_threshold: float = 1.0
    prices: TokenPrices | None = None
    group_by: str = ""
    """Key of `Task.info`; empty for none."""
    total: ReportAccumulator = field(init=False)
    by_code: dict[str, ReportAccumulator] = field(default_factory=dict)
    """By digest of what made the rollouts; several where changes were accepted."""
    parts: dict[tuple[str, str], ReportAccumulator] = field(default_factory=dict)
    """By digest, and by value of `group_by`."""

    def __post_init__(self) -> None:
        self.total = self._accumulator()

    def _accumulator(self) -> ReportAccumulator:
        return ReportAccumulator(pass_threshold=self.pass_threshold, prices=self.prices)

    def add(self, group: Group) -> None:
        """Count the rollouts of a group, in all and in the part that their task belongs to."""
        self.total.add([group])
        part = str(group.task.info[self.group_by]) if self.group_by and self.group_by in group.task.info else None
        for code in dict.fromkeys(rollout.provenance for rollout in group.rollouts):
            same = replace(group, rollouts=[r for r in group.rollouts if r.provenance == code])
            self.by_code.setdefault(code, self._accumulator()).add([same])
            if part is not None:
                self.parts.setdefault((code, part), self._accumulator()).add([same])

    def report(self, seconds: float) -> Report:
        """The report of everything that was added; rollouts of different code are in no common figure."""
        of_codes = {
            code: replace(
                played.report(seconds),
                group_by=self.group_by,
                breakdown={value: part.report(0.0) for (of, value), part in sorted(self.parts.items()) if of == code},
                task_rows=tuple(played.rows()),
            )
            for code, played in self.by_code.items()
        }
        if len(of_codes) == 1:
            return next(iter(of_codes.values()))
        whole, none = self.total.report(seconds), dict[str, Estimate]()
        return replace(whole, rewards=none, passes=none, parts=none, metrics=none, by_code=of_codes)


@dataclass(slots=True, kw_only=True)
class EvaluationProgress:
    """An observer that follows an evaluation; `progress_updates` around it keeps the figures moving."""

    progress: Logger
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
            if len(self.tally.scores) > 1:
                metrics[f"reward/{self.tally.judged_seats()[0]}"] = running.value
            if running.low is not None and running.high is not None:
                metrics |= {"low": running.low, "high": running.high}
        metrics["rollouts_failed"] = totals["played"] - totals["scored"]
        self.progress.log_step("evaluate", totals["played"], of=self.total, metrics=metrics)

    def note_if_stalled(self) -> None:
        """Say what is waited for when nothing has finished for a while."""
        now = self.clock()
        if self.settings.active and now - self.last_change >= self.next_notice:
            self.next_notice *= 2
            self.note(describe_waiting(self.settings.active, now))

    def note(self, line: str) -> None:
        """Print a line, where the logger can."""
        if isinstance(self.progress, ProgressLogger):
            self.progress.log_line(line)

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
        with watch_event_loop(progress.note):
            yield
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
