"""What a reasoner came to: held-out sets before and after, form and skill, stability of RL, and what was forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from wanderlust.evals.charts import chart, draw_line
from wanderlust.evals.report import render_html, render_text
from wanderlust.evals.statistics import Difference, Estimate
from wanderlust.runner.terminal import Table

BASE, AFTER_SFT, AFTER_RL = "base", "after SFT", "after RL"
EXAMS = (BASE, AFTER_SFT, AFTER_RL)
COLUMNS = ("held-out set", *EXAMS, "over the base", "over SFT", "constant")
WORSE = -0.02
"""Difference below which a set counts as worse."""
REPORT_FILE, PAGE_FILE, PICTURE_FILE = "report.json", "report.md", "reasoner.png"
COLORS = ("#868e96", "#d9480f", "#0b7285")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    """Answers of one policy to the questions of one set."""

    right: Estimate
    """Share that the set's scorer gives 1."""
    answered: float
    """Share with an answer between the tags: the form."""
    right_of_answered: float | None
    """Share of these that is right: the skill. None where nothing is answered."""
    tokens: float
    """Mean of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutSet:
    """A set that was never trained on."""

    name: str
    family: str
    exams: Mapping[str, Exam]
    """By EXAMS."""
    over_base: Difference
    """Right answers after RL over the base, paired by question; p-values are corrected for the number of sets."""
    over_sft: Difference
    """The same over the policy that RL starts from."""
    constant: float
    """Share of the questions whose answer is the most frequent one: what answering always the same can be worth."""

    @property
    def better(self) -> bool:
        """Whether it is clearly above the base."""
        return self.over_base.clear and self.over_base.value > 0

    @property
    def worse(self) -> bool:
        """Whether it lost more than 2 points against the base."""
        return self.over_base.value < WORSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitored:
    """One figure of the RL run: mean of its first and of its last steps, and what is wrong with it."""

    name: str
    first: float
    last: float
    fault: str = ""
    """Empty where nothing is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinualRow:
    """Right answers to new questions of both halves of the training sets, after one phase."""

    phase: str
    """`start`, `1: A`, `2: B` or `3: A`."""
    first: Estimate
    second: Estimate
    """Of half A, and of half B."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonerReport:
    """A finished recipe."""

    path: Path
    """Its folder."""
    student: Path
    """The run whose checkpoint it hands out: `--policy` takes it."""
    policy: str
    left_out: Mapping[str, str]
    """Sets that are neither trained on nor held out, and why."""
    base_rates: Mapping[str, float]
    """Share of right answers of the base, sampled, to questions of the split `train`, by set."""
    training: Sequence[str]
    """Names of the sets that are trained on."""
    questions: int
    """Their questions, before the filter."""
    kept: int
    """Those that the policy after SFT answers right now and then."""
    filtered: bool
    """Whether RL was on these; it is on all of them where too few are left."""
    held_out: tuple[HeldOutSet, ...]
    stability: tuple[Monitored, ...]
    continual: tuple[ContinualRow, ...]
    forgetting: Estimate | None
    """What training on B cost on A: after phase 2 less after phase 1, paired by question. None without that stage."""
    failures: Mapping[str, int]
    """Rollouts that failed, by exam; they are in no figure. Empty where none did."""

    @property
    def stable(self) -> bool:
        """Whether nothing that is monitored went wrong."""
        return not any(one.fault for one in self.stability)

    @property
    def findings(self) -> Iterator[str]:
        """Held-out sets, form and skill, stability and forgetting, in a sentence each."""
        better = [one.name for one in self.held_out if one.better]
        worse = [one.name for one in self.held_out if one.worse]
        yield (
            f"{len(better)} of {len(self.held_out)} held-out sets are clearly better than the base (5% of chance for "
            f"all sets together, Holm); {len(worse)} are worse by more than 2 points{': ' if worse else ''}"
            f"{', '.join(worse)}."
        )
        by_rl = sum(one.over_sft.clear and one.over_sft.value > 0 for one in self.held_out)
        yield f"RL alone, over the policy after SFT: {by_rl} of {len(self.held_out)} are better."
        yield self._form_and_skill()
        above = sum(one.exams[AFTER_RL].right.value > one.constant for one in self.held_out)
        yield f"In {above} of them it is right more often than the most frequent answer would be."
        faults = [f"{one.name}: {one.fault}" for one in self.stability if one.fault]
        yield f"RL was not stable: {'; '.join(faults)}." if faults else "RL was stable in all that is monitored."
        if self.forgetting is not None:
            yield f"Training on B after A changed A by {self.forgetting}."
        if self.failures:
            told = ", ".join(f"{count} of {name}" for name, count in self.failures.items())
            yield f"Rollouts failed and are in no figure: {told}."

    def _form_and_skill(self) -> str:
        told = []
        for name in EXAMS:
            exams = [one.exams[name] for one in self.held_out]
            answered = fmean(one.answered for one in exams)
            right = fmean(one.right.value for one in exams)
            skill = f", {right / answered:.0%} of these right" if answered else ""
            told.append(f"{name} {answered:.0%} answered{skill}")
        return f"Form and skill: {'; '.join(told)}."

    def table(self) -> Table:
        """The held-out sets, a row each."""
        title = f"{len(self.training)} sets trained on, {self.kept:,} of {self.questions:,} questions kept"
        table = Table(title=title, title_justify="left")
        for name in COLUMNS:
            table.add_column(name, justify="left" if name == COLUMNS[0] else "right", no_wrap=True)
        for cells in self._rows():
            table.add_row(*cells)
        return table

    def page(self) -> str:
        """For people, in Markdown."""
        lines = [f"# Reasoner from {self.policy}", "", *self.findings, ""]
        lines += ["Shares of right answers, greedy. `constant` is what the most frequent answer would get.", ""]
        lines += markdown_table(COLUMNS, self._rows())
        lines += ["", f"![held-out sets]({PICTURE_FILE})", "", "## Form and skill", ""]
        lines += markdown_table(
            ("held-out set", *(f"{name}: answered, right of these" for name in EXAMS)), self._form_rows()
        )
        lines += ["", "## Stability of RL", ""]
        lines += markdown_table(
            ("figure", "first steps", "last steps", ""),
            (
                (one.name, f"{one.first:.3g}", f"{one.last:.3g}", one.fault or "as it should be")
                for one in self.stability
            ),
        )
        if self.continual:
            lines += ["", "## Continual training", ""]
            lines += markdown_table(
                ("phase", "A", "B"), ((one.phase, str(one.first), str(one.second)) for one in self.continual)
            )
        lines += ["", "## Sets", "", f"Trained on: {', '.join(self.training)}.", ""]
        if self.base_rates:
            rates = ", ".join(f"{name} {rate:.2f}" for name, rate in self.base_rates.items())
            lines += [f"Sampled base rates: {rates}."]
        lines += ["", *(f"- {name} is left out: {reason}." for name, reason in self.left_out.items())]
        return "\n".join([*lines, ""])

    def as_dict(self) -> dict[str, Any]:
        """JSON data."""
        plain = asdict(self) | {"path": str(self.path), "student": str(self.student), "stable": self.stable}
        plain["better"] = sum(one.better for one in self.held_out)
        plain["worse"] = sum(one.worse for one in self.held_out)
        return plain | {"findings": [*self.findings]}

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for one in self.held_out:
            exams = (f"{one.exams[name].right.value:.3f}" for name in EXAMS)
            yield (one.name, *exams, str(one.over_base), str(one.over_sft), f"{one.constant:.3f}")

    def _form_rows(self) -> Iterator[tuple[str, ...]]:
        for one in self.held_out:
            exams = [one.exams[name] for name in EXAMS]
            skills = ["" if each.right_of_answered is None else f"{each.right_of_answered:.2f}" for each in exams]
            yield (one.name, *(f"{each.answered:.2f}, {skill}" for each, skill in zip(exams, skills, strict=True)))

    def __str__(self) -> str:
        return "\n".join([render_text(self.table()), *self.findings])

    def _repr_html_(self) -> str:
        return render_html(self.table())


def markdown_table(columns: Sequence[str], rows: Iterator[tuple[str, ...]]) -> list[str]:
    """Lines of a table."""
    head = ["| " + " | ".join(columns) + " |", "|---|" + "---:|" * (len(columns) - 1)]
    return [*head, *("| " + " | ".join(cells) + " |" for cells in rows)]


def draw_reasoner(report: ReasonerReport, path: Path) -> None:
    """Write a PNG: the held-out sets before and after, and both halves over the phases of continual training."""
    panels, height = 2 if report.continual else 1, 0.42 * len(report.held_out) + 1.4
    size = (6 + 3.4 * (panels - 1), height)
    with chart(path, size=size, panels=panels, width_ratios=[6, 3.4][:panels]) as (sets, *phases):
        for shift, (name, color) in enumerate(zip(EXAMS, COLORS, strict=True)):
            for place, one in enumerate(report.held_out):
                right, at = one.exams[name].right, place + 0.22 * (1 - shift)
                low, high = (right.value if end is None else end for end in (right.low, right.high))
                sets.plot([low, high], [at, at], color=color, linewidth=1.2)
                sets.plot([right.value], [at], color=color, marker="o", markersize=4, label="" if place else name)
        constant = [(one.constant, place) for place, one in enumerate(report.held_out)]
        draw_line(sets, constant, color="#000000", label="most frequent answer", marker="|", linestyle="none")
        sets.set_yticks([*range(len(report.held_out))], [one.name for one in report.held_out])
        sets.set(xlabel="right, greedy, 95% intervals", title="held-out sets", xlim=(-0.02, 1.02))
        for axes in phases:
            for label, color, halves in (
                ("A", COLORS[1], [(one.phase, one.first.value) for one in report.continual]),
                ("B", COLORS[2], [(one.phase, one.second.value) for one in report.continual]),
            ):
                draw_line(axes, halves, color=color, label=label, marker="o")
            axes.set(title="continual training", xlabel="phase", ylabel="right, new questions")
