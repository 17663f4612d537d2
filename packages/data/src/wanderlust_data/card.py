"""The card of a data set: what was read, what each stage took out and why, and what was written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from wanderlust.errors import StoreError, UsageError

CARD_FILE, CARD_PAGE, PLAN_FILE = "card.json", "card.md", "plan.json"
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCount:
    """One stage: what it left, and what it took out by reason."""

    stage: str
    of: str
    """`questions` or `rows`."""
    before: int
    left: int
    removed: dict[str, int] = field(default_factory=dict)
    by_source: dict[str, int] = field(default_factory=dict)
    """What is left of each source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherCount:
    """What a teacher played, over all sources."""

    teacher: str
    played: int
    failed: int
    """Rollouts that an infrastructure failed to the end; they are in no figure."""
    reward: float | None
    """Mean of the scored rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a plan came to.

    Example:
        >>> card = build_data("sums.toml")
        >>> [(stage.stage, stage.left) for stage in card.stages][-1]
        ('budget', 900)
    """

    folder: str
    plan: dict[str, Any]
    plan_digest: str
    stages: list[StageCount]
    teachers: list[TeacherCount]
    files: dict[str, int]
    """Rows of each file that was written."""
    tokens: int
    """Of the rows' answers, as the policies counted them; else a quarter of the characters."""
    label_conflicts: int = 0
    """Duplicates whose answers differ: one of the two is wrong."""
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """JSON data."""
        return asdict(self)

    def page(self) -> str:
        """For people, in Markdown."""
        lines = [f"# {self.plan.get('name', 'data')}", ""]
        lines += ["| stage | of | before | left | taken out |", "|---|---|---:|---:|---|"]
        for one in self.stages:
            removed = ", ".join(f"{reason} {count:,}" for reason, count in one.removed.items())
            lines.append(f"| {one.stage} | {one.of} | {one.before:,} | {one.left:,} | {removed} |")
        if self.stages and len(self.stages[-1].by_source) > 1:
            lines += ["", "| source | rows |", "|---|---:|"]
            lines += [f"| {name} | {count:,} |" for name, count in self.stages[-1].by_source.items()]
        if self.teachers:
            lines += ["", "| teacher | answers | failed | mean reward |", "|---|---:|---:|---:|"]
            for each in self.teachers:
                reward = "" if each.reward is None else f"{each.reward:.3f}"
                lines.append(f"| {each.teacher} | {each.played:,} | {each.failed:,} | {reward} |")
        lines += ["", "| file | rows |", "|---|---:|"]
        lines += [f"| {name} | {count:,} |" for name, count in self.files.items()]
        lines += ["", f"About {self.tokens:,} tokens of answers."]
        if self.label_conflicts:
            lines.append(f"{self.label_conflicts:,} duplicates have another answer than the question that was kept.")
        lines += [f"- {note}" for note in self.notes]
        lines += ["", "```json", json.dumps(self.plan, indent=1, ensure_ascii=False), "```", ""]
        return "\n".join(lines)


def read_card(folder: Path) -> Card | None:
    """The card of a finished data set; None where it is not finished."""
    path = folder / CARD_FILE
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Card)
    except msgspec.MsgspecError as error:
        raise StoreError(f"{path} is no card: {error}; remove it to write it again") from error


class Stages:
    """Counts what each stage leaves. Raises UsageError with all counts when nothing is left."""

    def __init__(self, source_of: Callable[[Any], str]):
        self.counts: list[StageCount] = []
        self._source_of = source_of

    def record(
        self, stage: str, of: str, *, before: int, left: Sequence[Any], removed: dict[str, int] | None = None
    ) -> None:
        """Note a stage that took place."""
        by_source: dict[str, int] = {}
        for one in left:
            name = self._source_of(one)
            by_source[name] = by_source.get(name, 0) + 1
        count = StageCount(
            stage=stage,
            of=of,
            before=before,
            left=len(left),
            removed={reason: n for reason, n in (removed or {}).items() if n},
            by_source=dict(sorted(by_source.items())),
        )
        self.counts.append(count)
        if not left:
            history = ", ".join(f"{one.stage} left {one.left:,} {one.of}" for one in self.counts)
            raise UsageError(f"nothing is left: {history}; change the stage {stage!r}, or read more")
