"""The report of an evaluation: values, tables and plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from io import StringIO
from typing import Any

from wanderlust.errors import one_line
from wanderlust.evals.statistics import Estimate
from wanderlust.runner.terminal import Console, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCount:
    """Rollouts that failed alike."""

    count: int
    first: str
    """The message of the first one, in the order of tasks and samples."""
    places: Mapping[str, int] = field(default_factory=dict)
    """How many were raised at each place in the user's own files, most first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The resources that an evaluation took."""

    turns: int
    tokens_in: int
    tokens_out: int
    tokens_cached: int = 0
    """Of `tokens_in`, those that the server had cached, where it says so."""
    tokens_reasoning: int = 0
    """Of `tokens_out`, those of reasoning, where the server says so."""
    seconds: float
    """Wall-clock time of the whole evaluation, or of the part of it that was played last."""
    latency: Mapping[str, float]
    """`p50`, `p90`, `p99` and `max` of the wall-clock seconds of the rollouts that did not fail; empty without any."""
    dollars: float | None
    """Of the policy's tokens; None when no prices are known."""
    judge_dollars: float | None = None
    """Of judges with prices; None without any."""

    def describe(self) -> Iterator[tuple[str, str]]:
        """For the terminal."""
        cached = f" ({self.tokens_cached:,} cached)" if self.tokens_cached else ""
        reasoning = f" ({self.tokens_reasoning:,} reasoning)" if self.tokens_reasoning else ""
        yield "tokens", f"{self.tokens_in:,} prompt{cached}, {self.tokens_out:,} completion{reasoning}"
        if self.latency:
            spread = ", ".join(f"{name} {seconds:.3g}" for name, seconds in self.latency.items())
            yield "seconds per rollout", spread
        known = [value for value in (self.dollars, self.judge_dollars) if value is not None]
        if known:
            judges = "" if self.judge_dollars is None else f" (judges ${self.judge_dollars:,.4f})"
            yield "cost", f"${sum(known):,.4f}{judges}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """The results of one task, of a seat that learns."""

    task: str
    played: int
    scored: int
    reward: float | None
    """Mean over the scored rollouts; None without any."""
    passed: int
    """Scored rollouts whose reward is at least the passing one."""
    seat: str = ""
    """Whose results they are; empty where an episode has one seat."""


MAX_BREAKDOWN_COLUMNS = 4
"""Values of a breakdown that are shown side by side."""
PER_TASK_FIELDS = ("group_by", "breakdown", "task_rows", "aggregate", "traits", "by_code")
"""Fields of a report that are not in its JSON."""
TEXT_COLUMNS = 110
"""Characters per line of a table that is rendered as text."""


def render_text(table: Table) -> str:
    """A table as plain text, TEXT_COLUMNS wide."""
    console = Console(width=TEXT_COLUMNS, color_system=None, file=StringIO())
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip("\n")


def render_html(table: Table) -> str:
    """A table as HTML, for notebooks; what stands in it is escaped."""
    return f"<pre>{escape(render_text(table))}</pre>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Numbers of one evaluation. Rollouts that failed are in no estimate; `errors` says how many and why.

    With several seats, the names in `rewards` are the seats', and those in `parts` and `metrics` begin with one.
    """

    tasks: int
    played: int
    scored: int
    rewards: Mapping[str, Estimate]
    """By seat."""
    passes: Mapping[str, Estimate]
    """`pass@k` and `pass^k`, over the tasks with at least k scored samples; empty when no task was played twice."""
    parts: Mapping[str, Estimate]
    """Raw value per reward function; where a scored rollout lacks one, it counts as 0."""
    metrics: Mapping[str, Estimate]
    """Over the rollouts that have the metric."""
    errors: Mapping[str, ErrorCount]
    """By class of failure: the wall that was crossed."""
    stops: Mapping[str, int]
    """The number of rollouts by stop reason."""
    usage: Usage
    group_by: str = ""
    """Key of `Task.info` that `breakdown` goes by."""
    breakdown: Mapping[str, Report] = field(default_factory=dict)
    """Reports of the tasks with each value of that key."""
    task_rows: Sequence[TaskRow] = ()
    """One row per task, of several seats that learn one for each."""
    by_code: Mapping[str, Report] = field(default_factory=dict)
    """Where the code, rubric, tasks or settings changed meanwhile: a report for each digest, and no common figure."""
    not_started: int = 0
    """Rollouts that were asked for and not started, because the run had reached a bound of its own."""
    stopped: str = ""
    """Why they were not, in one line."""
    aggregate: Any = None
    """What all samples of a task say together, where that was asked for."""
    traits: Any = None
    """The `TraitsReport`, where that was asked for."""

    @property
    def reward(self) -> Estimate | None:
        """The only seat's reward, None when nothing was scored; ValueError with several seats."""
        if not self.rewards:
            return None
        (only,) = self.rewards.values()
        return only

    @property
    def failed(self) -> int:
        """Rollouts without a score."""
        return self.played - self.scored

    @property
    def incomplete(self) -> bool:
        """Whether something that was asked for is missing: failed or not started rollouts, estimates that failed."""
        return bool(self.failed or self.not_started or (self.aggregate is not None and self.aggregate.failed))

    @property
    def coverage(self) -> float:
        """Share of the rollouts that could be scored; 0 when none was played."""
        return self.scored / self.played if self.played else 0.0

    def as_dict(self) -> dict[str, Any]:
        """The figures as plain JSON data, without breakdown and rows of tasks."""
        whole = replace(self, group_by="", breakdown={}, task_rows=(), aggregate=None, traits=None, by_code={})
        plain = {name: value for name, value in asdict(whole).items() if name not in PER_TASK_FIELDS}
        codes = {"by_code": {code: part.as_dict() for code, part in self.by_code.items()}} if self.by_code else {}
        return plain | {"failed": self.failed, "coverage": self.coverage} | codes

    def breakdown_table(self) -> Table:
        """The values of `group_by` side by side with all figures; many of them one below the other, rewards alone."""
        many = len(self.breakdown) > MAX_BREAKDOWN_COLUMNS
        table = Table(title=f"by {self.group_by}" + (" (all figures with --json)" if many else ""))
        table.add_column("")
        if many:
            for name in ("reward", "scored"):
                table.add_column(name)
            for value, part in self.breakdown.items():
                rewards = ", ".join(str(estimate) for estimate in part.rewards.values())
                table.add_row(one_line(value, 40), rewards, f"{part.scored} of {part.played}")
            return table
        for value in self.breakdown:
            table.add_column(one_line(value, 20))
        columns = [part.estimates() for part in self.breakdown.values()]
        for name in dict.fromkeys(name for column in columns for name in column):
            table.add_row(one_line(name), *(str(column.get(name, "")) for column in columns))
        return table

    def estimates(self) -> dict[str, Estimate]:
        """All figures by name: rewards, pass@k, parts, metrics."""
        rewards = {("reward" if len(self.rewards) == 1 else f"{seat}: reward"): e for seat, e in self.rewards.items()}
        return {**rewards, **self.passes, **self.parts, **self.metrics}

    def __str__(self) -> str:
        return render_text(self.table())

    def _repr_html_(self) -> str:
        return render_html(self.table())

    def table(self, title: str = "") -> Table:
        """For the terminal: estimates with intervals, then what failed."""
        table = Table(title=title or None)
        table.add_column("")
        table.add_column("value", justify="right")
        table.add_column("95% interval")
        table.add_column("rollouts", justify="right")
        for code, part in (self.by_code or {"": self}).items():
            if code:
                table.add_row(f"made by {code[:8]}", "", "", f"{part.scored} of {part.played}")
            for name, estimate in part.estimates().items():
                cells = f"{estimate.value:.3f}", estimate.interval, str(estimate.count)
                table.add_row(one_line(name), *cells)
            table.add_section()
        table.add_row("scored", f"{self.coverage:.1%}", "", f"{self.scored} of {self.played}")
        for name, errors in self.errors.items():
            table.add_row(one_line(name), "failed", one_line(errors.first), str(errors.count))
            for place, times in errors.places.items():
                table.add_row("", "at", one_line(place), str(times))
        for name, count in self.stops.items():
            if name not in self.errors:
                table.add_row(f"ended: {one_line(name)}", "", "", str(count))
        if self.not_started:
            table.add_row("not started", "", self.stopped, str(self.not_started))
        table.add_section()
        for what, figure in self.usage.describe():
            table.add_row(what, "", figure)
        return table


def task_table(rows: Sequence[TaskRow], limit: int = 50) -> Table:
    """The tasks with the lowest rewards first; those without a score before them."""
    ordered = sorted(rows, key=lambda row: (row.reward is not None, row.reward or 0.0, row.task))
    left = len(ordered) - limit
    table = Table(title="by task" + (f" ({left} more with --json)" if left > 0 else ""))
    seats = ("seat",) if any(row.seat for row in rows) else ()
    for name in ("task", *seats, "reward", "passed", "scored"):
        table.add_column(name, justify="left" if name in ("task", "seat") else "right")
    for row in ordered[:limit]:
        reward = "unknown" if row.reward is None else f"{row.reward:.3f}"
        table.add_row(
            one_line(row.task), *(row.seat for _ in seats), reward, str(row.passed), f"{row.scored} of {row.played}"
        )
    return table
