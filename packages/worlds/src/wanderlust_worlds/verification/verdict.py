"""Verdicts of verification: decision, reasons, and the questions a judge would have to answer. All plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

import msgspec

from wanderlust_worlds.engine.argument_checks import text_distance
from wanderlust_worlds.engine.cow_dict import FrozenRecord

Decision: TypeAlias = Literal["accept", "reject", "undecided"]
Compat: TypeAlias = Literal["strict", "are", "gaia2_cli"]
Fault: TypeAlias = Literal[
    "missing", "extra", "order", "time", "event", "milestone", "minefield", "count", "judge", "limit"
]


class Reason(FrozenRecord):
    """A reason against acceptance."""

    fault: Fault
    """The kind: an act of the oracle left out, a write too many, a wrong order, a time outside its window, an event
    that never came, a milestone missed, a minefield stepped on, counts that differ (`are` and `gaia2_cli`), a judge's
    answer that is missing, a search that was given up.
    """
    text: str
    event: str = ""
    """The id of the event that it is about."""
    line: int = -1
    """The line of the log that it is about."""


class JudgeQuestion(FrozenRecord):
    """A question for a judge: whether the written arguments mean the same as the wanted ones."""

    event: str
    line: int
    app: str
    action: str
    about: Mapping[str, str]
    """The arguments that differ, and what each of them is."""
    wanted: Mapping[str, Any]
    actual: Mapping[str, Any]
    """Those arguments, as the oracle has them and as the agent wrote them."""

    @property
    def key(self) -> str:
        """The same for the same question, wherever in the log it comes up."""
        encoded = msgspec.json.encode([self.app, self.action, self.about, self.wanted, self.actual], order="sorted")
        return blake2b(encoded, digest_size=16).hexdigest()

    @property
    def distance(self) -> float:
        """The share of words that only the wanted or only the written arguments have, from 0 to 1."""
        return text_distance(list(self.wanted.values()), list(self.actual.values()))


class JudgeAnswer(FrozenRecord):
    """A judge's answer. Kept with the verdict, so that the verdict can be found again without the judge."""

    key: str
    same: bool | None
    """None when the answer could not be read."""
    text: str = ""
    """The answer as the judge wrote it."""
    judge: str = ""
    """The judge's name."""


class Verdict(FrozenRecord):
    """The result of verifying a log."""

    decision: Decision
    matched: Mapping[str, int] = {}
    """The line in which each of the oracle's acts happened, as far as one was found; in a rejected log a best guess."""
    missing: tuple[str, ...] = ()
    """The oracle's acts that were not found."""
    extra: tuple[int, ...] = ()
    """Lines with the agent's writes that are no act of the oracle."""
    reasons: tuple[Reason, ...] = ()
    """Empty when the log is accepted."""
    questions: tuple[JudgeQuestion, ...] = ()
    """Open questions about `matched`, which the next step needs answered. `gaia2_cli` accepts with open ones."""
    answers: tuple[JudgeAnswer, ...] = ()
    """The judges' answers so far."""
    marks: Mapping[str, bool] = {}
    """Milestones and minefields: whether each was kept."""
    compat: Compat = "strict"

    @property
    def accepted(self) -> bool:
        """Whether the agent did what the oracle does. False also where that is not known."""
        return self.decision == "accept"

    @property
    def share(self) -> float:
        """The share of the oracle's acts that were certainly done, from 0 to 1; 1 when there are none."""
        total = len(self.matched) + len(self.missing)
        unsure = set() if self.accepted else {question.event for question in self.questions}
        return sum(event not in unsure for event in self.matched) / total if total else 1.0

    def faults(self, kind: Fault) -> int:
        """Number of reasons of this kind."""
        return sum(reason.fault == kind for reason in self.reasons)

    def record(self) -> dict[str, Any]:
        """The verdict as JSON data; `read_verdict` takes it back."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        return body

    def __str__(self) -> str:
        return f"{self.decision}: {'; '.join(r.text for r in self.reasons) or f'{len(self.matched)} acts done'}"


def read_verdict(record: Mapping[str, Any]) -> Verdict:
    """The verdict that `record` gave."""
    return msgspec.convert(record, Verdict)


def answers_by_key(answers: Iterable[JudgeAnswer]) -> dict[str, bool]:
    """The answers that could be read, by the questions' keys."""
    return {answer.key: answer.same for answer in answers if answer.same is not None}
