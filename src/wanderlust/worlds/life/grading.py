"""Verification with facts instead of a judge: without a model, repeatable, and always decided.

Facts are the wordings that a text must and must not contain. Not covered: a text that passes can still be rude, odd or
padded; only its length is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from wanderlust.worlds.engine.cow_dict import FrozenRecord
from wanderlust.worlds.engine.events import ScenarioError
from wanderlust.worlds.engine.log import LogEntry
from wanderlust.worlds.engine.scenario import Scenario
from wanderlust.worlds.engine.world import World, may_match
from wanderlust.worlds.verification.oracle import Oracle, TimeWindow
from wanderlust.worlds.verification.verdict import Compat, JudgeAnswer, Verdict
from wanderlust.worlds.verification.verify import verify

Wordings: TypeAlias = tuple[str, ...]
"""Ways of writing one thing; any of them is accepted."""
MAX_CHECKED_ANSWER_CHARS = 1_500
"""Characters of a text; a longer one fails, because listing everything is no answer."""


class AnswerFacts(FrozenRecord):
    """The facts that a text must state."""

    says: tuple[Wordings, ...] = ()
    """For each fact, its wordings: one of them must be in the text."""
    forbidden: Wordings = ()
    """Wordings that must not be in the text."""
    max_chars: int = MAX_CHECKED_ANSWER_CHARS

    def hold_for(self, answer: Any) -> bool:
        """Whether the answer states the facts. Anything but a text is read as JSON. An empty text fails."""
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)
        if not text.strip() or len(text) > self.max_chars:
            return False
        read = _plain(text)
        return all(any(_pattern(way).search(read) for way in ways) for ways in self.says) and not any(
            _pattern(way).search(read) for way in self.forbidden
        )


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[*_`]", "", text).replace("\u2019", "'").replace("\u202f", " ").casefold().split())


@lru_cache(maxsize=4_096)
def _pattern(way: str) -> re.Pattern[str]:
    """The words as whole words; a number not as a part of a longer one."""
    plain = _plain(way)
    before = r"(?<!\w)(?<!\d[.,])" if plain[:1].isalnum() else ""
    after = r"(?!\w)(?![.,]\d)" if plain[-1:].isalnum() else ""
    return re.compile(before + re.escape(plain) + after)


def amount_wordings(value: float) -> Wordings:
    """Ways of writing a price."""
    exact = f"{value:.2f}"
    ways = [exact, f"{value:,.2f}", exact.replace(".", ",")]
    if exact.endswith("0"):
        ways.append(exact[:-1])
    if exact.endswith(".00"):
        ways += [exact[:-3], f"{value:,.0f}"]
    return tuple(dict.fromkeys(ways))


def day_wordings(seconds: float) -> Wordings:
    """Ways of writing a day; its weekday is one of them, so use it where no other day with that name is near."""
    at = datetime.fromtimestamp(seconds, tz=UTC)
    month = f"{at:%B}"
    short = [f"{at.day} {month}", f"{month} {at.day}", f"{at.day} {month[:3]}", f"{month[:3]} {at.day}"]
    ordinal = [f"{at.day}{_suffix(at.day)} {month}", f"{at.day}{_suffix(at.day)} of {month}"]
    ordinal.append(f"{month} {at.day}{_suffix(at.day)}")
    return (f"{at:%A}", f"{at:%Y-%m-%d}", f"{at.day:02d}.{at.month:02d}", *short, *ordinal)


def _suffix(number: int) -> str:
    return "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def clock_wordings(seconds: float) -> Wordings:
    """Ways of writing a time of the day."""
    at = datetime.fromtimestamp(seconds, tz=UTC)
    hour, half = at.hour % 12 or 12, "am" if at.hour < 12 else "pm"
    dotted = f"{half[0]}.m."
    ways = [f"{at:%H:%M}", f"{at.hour}:{at.minute:02d}", f"{at:%H:%M:%S}", f"{at:%H.%M}"]
    ways += [f"{hour}:{at.minute:02d} {half}", f"{hour}:{at.minute:02d}{half}", f"{hour}:{at.minute:02d} {dotted}"]
    if not at.minute:
        ways += [f"{hour} {half}", f"{hour}{half}", f"{hour} {dotted}", f"{hour} o'clock"]
    return tuple(dict.fromkeys(ways))


def wordings(*ways: str) -> Wordings:
    """Ways of writing something, as they are."""
    return ways


def describe_facts(facts: AnswerFacts) -> Iterable[str]:
    """Yield the facts in readable form."""
    yield from (" or ".join(map(repr, ways[:2])) + (" or ..." if len(ways) > 2 else "") for ways in facts.says)
    if facts.forbidden:
        yield "never " + ", ".join(map(repr, facts.forbidden))


GRADING_WINDOW = TimeWindow(before=10.0, after=60.0)
"""Seconds of the world's clock by which a timed act may miss its due time."""
MAX_JUDGE_ROUNDS = 50
"""Rounds of new questions before a verdict is left as it is."""


class FactGrader:
    """Grades logs of one scenario, and is the gate of its worlds. Made once per scenario, and shared."""

    def __init__(self, scenario: Scenario):
        self.facts = facts_of(scenario)
        self.oracle = Oracle.of(scenario, GRADING_WINDOW)

    def __call__(self, world: World, line: LogEntry) -> None:
        """Mark the first expected act as done that the write certainly is, facts included."""
        if not line.writes:
            return
        for act in world.expected:
            if (act.app, act.action) != (line.app, line.action):
                continue
            try:
                same = may_match(world, act, line=line)
            except (LookupError, ValueError):  # a result that the act refers to is not there
                continue
            facts = self.facts.get(act.id, {})
            if same and all(one.hold_for(line.args.get(name, "")) for name, one in facts.items()):
                world.mark_done(act.id, len(world.log) - 1)
                return

    def verdict(self, log: Sequence[LogEntry], *, compat: Compat = "strict") -> Verdict:
        """The verdict on a log. Facts answer the open questions; without facts the answer is no."""
        answers: dict[str, JudgeAnswer] = {}
        verdict = verify(log, self.oracle, compat=compat)
        for _ in range(MAX_JUDGE_ROUNDS):
            fresh = [one for one in verdict.questions if one.key not in answers]
            if not fresh:
                break
            for question in fresh:
                facts = self.facts.get(question.event, {})
                same = all(name in facts and facts[name].hold_for(value) for name, value in question.actual.items())
                answers[question.key] = JudgeAnswer(key=question.key, same=same, judge="facts")
            verdict = verify(log, self.oracle, answers=answers.values(), compat=compat)
        return verdict


@dataclass(frozen=True, slots=True)
class StructuralVerifier:
    """The verifier of any scenario, without a model: with facts where it has some, else by comparison alone."""

    grader: FactGrader | None
    oracle: Oracle
    compat: Compat

    @classmethod
    def of(cls, scenario: Scenario, compat: Compat = "strict") -> StructuralVerifier:
        """The verifier of a scenario."""
        grader = FactGrader(scenario) if "facts" in scenario.info else None
        return cls(grader, Oracle.of(scenario) if grader is None else grader.oracle, compat)

    def __call__(self, log: Sequence[LogEntry]) -> Verdict:
        """The verdict on a log."""
        if self.grader is not None:
            return self.grader.verdict(log, compat=self.compat)
        return verify(log, self.oracle, compat=self.compat)


def facts_of(scenario: Scenario) -> Mapping[str, Mapping[str, AnswerFacts]]:
    """The facts of each soft argument, by act and argument. Raises ScenarioError where `info` does not fit."""
    try:
        return msgspec.convert(scenario.info.get("facts", {}), dict[str, dict[str, AnswerFacts]])
    except msgspec.ValidationError as error:
        raise ScenarioError(f"scenario {scenario.id!r}: its facts: {error}") from error


def missing_facts(scenario: Scenario) -> list[str]:
    """Faults of a scenario's facts, one line each: a soft argument without facts, or whose own text fails them."""
    facts_by_act, lines = facts_of(scenario), []
    for act in scenario.oracle:
        facts = facts_by_act.get(act.id, {})
        action = next(app for app in scenario.apps if app.name == act.app).actions[act.action]
        soft: dict[str, Any] = {name: value for name, value in act.args.items() if action.check(name).soft}
        for name, value in soft.items():
            if name not in facts:
                lines.append(f"{act.id}: {name} is soft and has no facts")
            elif not facts[name].hold_for(value):
                lines.append(f"{act.id}: {name} misses its own facts: {value!r} and {facts[name]}")
        lines += [f"{act.id}: there is no soft {name}" for name in facts.keys() - soft.keys()]
    return lines
