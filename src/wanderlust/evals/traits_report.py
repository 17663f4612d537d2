"""Traits of reasoning: figures with their intervals, as a table, as JSON and as a picture of four panels."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from wanderlust._lazy import needs_extra
from wanderlust.evals.statistics import Estimate
from wanderlust.runner.terminal import Table

TRAITS_FILE, TRAITS_PICTURE_FILE = "traits.json", "traits.png"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPoint:
    """Accuracy at a number of tokens."""

    tokens: float
    """Completion tokens per task, on average."""
    accuracy: Estimate
    share: float | None = None
    """Share of the thinking at which it was cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelPoint:
    """The majority of k samples, each cut to 1/k of its tokens, beside one sample in full."""

    k: int
    parallel: TokenPoint
    serial: TokenPoint
    gain: Estimate
    """The first less the second, paired by task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceReport:
    """Confidence that was stated, against what was right."""

    stated: int
    missing: int
    """Samples that state none."""
    unreadable: int
    """Samples that state something else than a number from 0 to 1, or from 0 % to 100 %."""
    brier: Estimate | None
    """Mean squared distance from what was right."""
    excess: Estimate | None
    """Mean confidence less accuracy: above 0, it is overconfident."""
    error: float | None
    """Expected calibration error: distance of confidence and accuracy, over CONFIDENCE_BINS."""
    bins: tuple[tuple[float, float, int], ...]
    """Mean confidence, accuracy and samples of each bin that has any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraitsReport:
    """Traits of one policy in one environment; figures that the samples cannot tell are None."""

    tasks: int
    samples: int
    failed: int
    """Rollouts without a score, or of several seats: in no figure."""
    tokens_unknown: int
    """Samples whose policy reports no tokens: pieces of text are counted."""
    cut_by: str
    """`forced`: the policy answered after each cut. `read`: answers were read from the text."""
    uncut: int
    """Samples that are in no figure of cuts: several turns, thinking without an end, or an answer that failed."""
    accuracy: Estimate | None
    by_tokens: tuple[TokenPoint, ...]
    by_share: tuple[TokenPoint, ...]
    overthinking: Estimate | None
    """Share of the tokens of right samples after the first cut from which the answer is right."""
    difficulty: Estimate | None
    """Rank correlation over tasks of tokens with difficulty, which other samples of the task tell."""
    difficulty_points: tuple[tuple[float, float], ...]
    """Difficulty and mean tokens of each task."""
    parallel: tuple[ParallelPoint, ...]
    agreement: Estimate | None
    """Share of a task's samples that give its most frequent answer."""
    majority: Estimate | None
    """Accuracy of that answer."""
    majority_gain: Estimate | None
    """The same less the accuracy of a sample, paired by task."""
    confidence: ConfidenceReport

    def table(self) -> Table:
        """For the terminal."""
        title = f"Traits of reasoning: {self.samples} samples of {self.tasks} tasks"
        table = Table("", "value", "95% interval", "tokens", title=title)

        def row(name: str, value: Estimate | None, tokens: float | None = None) -> None:
            if value is not None:
                spent = "" if tokens is None else f"{tokens:.0f}"
                table.add_row(name, f"{value.value:.3f}", value.interval, spent)

        row("accuracy", self.accuracy)
        for point in self.by_tokens:
            row("accuracy by length", point.accuracy, point.tokens)
        for point in self.by_share:
            row(f"accuracy with {point.share:.0%} of the thinking", point.accuracy, point.tokens)
        row("overthinking: share of tokens after the first right answer", self.overthinking)
        row("rank correlation of tokens with difficulty", self.difficulty)
        for pair in self.parallel:
            row(f"parallel: majority of {pair.k} short samples", pair.parallel.accuracy, pair.parallel.tokens)
            row("serial: one sample in full", pair.serial.accuracy, pair.serial.tokens)
            row("gain of parallel", pair.gain)
        row("agreement with the most frequent answer", self.agreement)
        row("accuracy of the most frequent answer", self.majority)
        row("gain over a sample", self.majority_gain)
        row("confidence: less accuracy", self.confidence.excess)
        row("confidence: Brier score", self.confidence.brier)
        if self.confidence.error is not None:
            table.add_row("confidence: calibration error", f"{self.confidence.error:.3f}", "", "")
        for name, count in self.missing().items():
            table.add_row(name, str(count), "", "")
        return table

    def missing(self) -> dict[str, int]:
        """What is missing from figures, by name; what is 0 is left out."""
        counts = {
            "rollouts that failed, in no figure": self.failed,
            "samples whose tokens are unknown: pieces counted": self.tokens_unknown,
            f"samples whose thinking could not be cut ({self.cut_by})": self.uncut,
            "samples without a stated confidence": self.confidence.missing if self.confidence.stated else 0,
            "samples whose confidence is no number": self.confidence.unreadable,
        }
        return {name: count for name, count in counts.items() if count}

    def save(self, folder: Path) -> None:
        """Write the figures and their picture into the folder of the evaluation."""
        (folder / TRAITS_FILE).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        self.draw(folder / TRAITS_PICTURE_FILE)

    def draw(self, path: Path) -> None:
        """Write a PNG: accuracy against tokens, tokens against difficulty, parallel against serial, and confidence."""
        with needs_extra("train"):
            from wanderlust.evals.charts import COLORS, chart, draw_estimates
        with chart(path, size=(9.6, 7.2), panels=4, rows=2) as (lengths, difficulty, parallel, confidence):
            for axes, color, label, points in (
                (lengths, COLORS[0], "samples by length", self.by_tokens),
                (lengths, COLORS[1], f"thinking cut ({self.cut_by})", self.by_share),
                (parallel, COLORS[2], "parallel: majority of k short", [one.parallel for one in self.parallel]),
                (parallel, COLORS[3], "serial: one in full", [one.serial for one in self.parallel]),
            ):
                draw_estimates(axes, [(one.tokens, one.accuracy) for one in points], color=color, label=label)
            lengths.set(title="accuracy against tokens", xlabel="completion tokens", ylabel="accuracy")
            if self.difficulty_points:
                difficulty.scatter(*zip(*self.difficulty_points, strict=True), s=9, color=COLORS[0], alpha=0.5)
            rank = "" if self.difficulty is None else f", rank correlation {self.difficulty.value:.2f}"
            difficulty.set(title=f"tokens against difficulty{rank}", xlabel="failure rate of the task", ylabel="tokens")
            for one in self.parallel:
                parallel.annotate(f"k={one.k}", (one.parallel.tokens, one.parallel.accuracy.value))
            parallel.set(title="parallel against serial", xlabel="completion tokens per task", ylabel="accuracy")
            confidence.plot([0, 1], [0, 1], color=COLORS[4], linewidth=0.8, linestyle="--")
            if bins := self.confidence.bins:
                stated, right, counts = zip(*bins, strict=True)
                sizes = [12 + 100 * count / max(counts) for count in counts]
                confidence.scatter(stated, right, s=sizes, color=COLORS[0])
            title = "stated confidence" if bins else "no confidence was stated"
            confidence.set(title=title, xlabel="confidence", ylabel="accuracy")
