"""What a distillation came to: teacher and student on the same tasks, what a task costs each, and the break-even."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wanderlust.evals.report import render_html, render_text
from wanderlust.evals.statistics import Estimate
from wanderlust.runner.terminal import Table

TEACHER, AFTER_SFT, STUDENT = "teacher", "student after SFT", "student"
COLUMNS = ("", "reward", "over the teacher", "seconds", "tokens in + out", "$ per 1,000")
REPORT_FILE, PAGE_FILE, PICTURE_FILE = "report.json", "report.md", "distil.png"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A policy in the exam. Means are per task."""

    name: str
    """`teacher`, `student after SFT` or `student`."""
    policy: str
    reward: Estimate | None
    """None when nothing was scored."""
    over_teacher: Estimate | None
    """The difference to the teacher, paired by task."""
    failed: int
    """Rollouts that an infrastructure failed; they are in no figure."""
    latency: float | None
    """Median wall-clock seconds of a task that is played alone."""
    tokens_in: float
    tokens_out: float
    processor_seconds: float | None
    """Of this machine, all threads, the environment's own included; None where it was not measured."""
    dollars: float | None
    """Of 1,000 tasks; None where the price is not known."""
    priced_by: str
    """`tokens`, `processor time`, or empty without a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distillation:
    """A finished distillation."""

    path: Path
    """Its folder."""
    student: Path
    """The run whose checkpoint is the student: `--policy` takes it."""
    tasks: int
    """Held-out tasks of the exam."""
    rows: int
    """Answers of the teacher that the student was trained on."""
    sides: tuple[Side, ...]
    making: Mapping[str, float | None]
    """Dollars of the stages `answers`, `sft` and `rl`; None where the price is not known."""
    at_least: bool
    """Whether a stage was interrupted, so that its processor time is only in part known."""
    core_price: float
    """Dollars per hour of a processor core."""

    def __getitem__(self, name: str) -> Side:
        return next(side for side in self.sides if side.name == name)

    @property
    def making_dollars(self) -> float | None:
        """Dollars of all stages together."""
        known = [value for value in self.making.values() if value is not None]
        return sum(known) if len(known) == len(self.making) else None

    @property
    def cost_ratio(self) -> float | None:
        """Dollars of the student for each dollar of the teacher."""
        ours, theirs = self[STUDENT].dollars, self[TEACHER].dollars
        return ours / theirs if theirs and ours is not None else None

    @property
    def break_even(self) -> float | None:
        """Tasks after which the student has paid for its making; None where it saves nothing, or prices are unknown."""
        ours, theirs, making = self[STUDENT].dollars, self[TEACHER].dollars, self.making_dollars
        if ours is None or theirs is None or making is None or ours >= theirs:
            return None
        return 1000 * making / (theirs - ours)

    @property
    def findings(self) -> Iterator[str]:
        """Quality, cost and break-even, in a sentence each."""
        over, ratio, making = self[STUDENT].over_teacher, self.cost_ratio, self.making_dollars
        if over is not None:
            clear = over.low is not None and over.high is not None and not over.low <= 0 <= over.high
            verdict = ("better" if over.value > 0 else "worse") if clear else "not shown to differ"
            yield f"The student against the teacher: {over} reward, {verdict}."
        if ratio is None:
            yield "The teacher's price is not known: give --price-in and --price-out, in dollars per million tokens."
        elif ratio < 1:
            yield f"The student costs 1/{1 / ratio:.0f} of the teacher."
        else:
            yield f"The student costs {ratio:.1f} times the teacher: it saves nothing."
        if making is not None:
            stages = ", ".join(f"{name} ${value:.3g}" for name, value in self.making.items())
            least = "at least " if self.at_least else ""
            paid = f", paid back after {self.break_even:,.0f} tasks" if self.break_even is not None else ""
            yield f"Making it cost {least}${making:.3g} ({stages}){paid}."
        priced = "tokens" if self[TEACHER].priced_by == "tokens" else "processor time"
        yield (
            f"The teacher is priced by {priced}, the student by processor time: ${self.core_price:g} an hour of a core."
            " Seconds are the median of tasks played alone."
        )

    def table(self) -> Table:
        """Teacher and student, a row each."""
        title = f"{self.tasks} held-out tasks; {self.rows:,} answers of the teacher"
        table = Table(title=title, title_justify="left")
        for name in COLUMNS:
            table.add_column(name, justify="right" if name else "left", no_wrap=True)
        for cells in self._rows():
            table.add_row(*cells)
        return table

    def page(self) -> str:
        """For people, in Markdown."""
        lines = [f"# Distillation: {self[TEACHER].policy}", ""]
        lines += [f"{self.tasks} held-out tasks. {self.rows:,} answers of the teacher were rows of SFT.", ""]
        lines += ["| " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
        lines += ["| " + " | ".join(cells) + " |" for cells in self._rows()]
        return "\n".join([*lines, "", f"![quality and cost]({PICTURE_FILE})", "", *self.findings, ""])

    def as_dict(self) -> dict[str, Any]:
        """JSON data."""
        figures = ("making_dollars", "cost_ratio", "break_even")
        plain = asdict(self) | {"path": str(self.path), "student": str(self.student)}
        return plain | {name: getattr(self, name) for name in figures} | {"findings": [*self.findings]}

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for side in self.sides:
            yield (
                side.name,
                "unknown" if side.reward is None else str(side.reward),
                "" if side.over_teacher is None else str(side.over_teacher),
                "" if side.latency is None else f"{side.latency:.3g}",
                f"{side.tokens_in:.0f} + {side.tokens_out:.0f}",
                "unknown" if side.dollars is None else f"{side.dollars:.3g}",
            )

    def __str__(self) -> str:
        return "\n".join([render_text(self.table()), *self.findings])

    def _repr_html_(self) -> str:
        return render_html(self.table())
