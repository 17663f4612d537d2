"""Verification with facts instead of a judge: without a model, repeatable, and always decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from wanderlust.worlds.engine.events import ScenarioError
from wanderlust.worlds.engine.log import LogEntry
from wanderlust.worlds.engine.scenario import Scenario
from wanderlust.worlds.engine.world import World, may_match
from wanderlust.worlds.life.answer_checks import AnswerFacts
from wanderlust.worlds.verification.oracle import Oracle, TimeWindow
from wanderlust.worlds.verification.verdict import Compat, JudgeAnswer, Verdict
from wanderlust.worlds.verification.verify import verify

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
