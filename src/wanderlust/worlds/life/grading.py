"""Verification with facts in the place of a judge: no model, no chance, and no verdict left open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from wanderlust.worlds.engine.events import PlannedCall, ScenarioError
from wanderlust.worlds.engine.log import LogEntry
from wanderlust.worlds.engine.scenario import Scenario
from wanderlust.worlds.engine.world import World, may_match
from wanderlust.worlds.life.answer_checks import AnswerFacts
from wanderlust.worlds.verify.oracle import Oracle, TimeWindow
from wanderlust.worlds.verify.verdict import Compat, JudgeAnswer, JudgeQuestion, Verdict
from wanderlust.worlds.verify.verify import verify

GRADING_WINDOW = TimeWindow(before=10.0, after=60.0)
"""How far from its moment a timed act may be."""
MAX_JUDGE_ROUNDS = 50
"""Times that a verdict may turn on new questions."""


class FactGrader:
    """Grades logs of one scenario, and lets its worlds go on (it is a gate). Made once per scenario, and shared."""

    def __init__(self, scenario: Scenario):
        self.facts = facts_of(scenario)
        self.oracle = Oracle.of(scenario, GRADING_WINDOW)

    def __call__(self, world: World, line: LogEntry) -> None:
        """Fulfil the first expected act that a write certainly is: facts included."""
        if not line.writes:
            return
        for act in world.expected:
            if act.app == line.app and act.action == line.action and self._is(world, act, line):
                world.mark_done(act.id, len(world.log) - 1)
                return

    def _is(self, world: World, act: PlannedCall, line: LogEntry) -> bool:
        try:
            hard = may_match(world, act, line=line)
        except (LookupError, ValueError):  # what it takes from a result is not there
            return False
        return hard and all(
            facts.hold_for(line.args.get(name, "")) for name, facts in self.facts.get(act.id, {}).items()
        )

    def verdict(self, log: Sequence[LogEntry], *, compat: Compat = "strict") -> Verdict:
        """What is to be said of a log; open questions are answered by the facts; where there are none, with no."""
        answers: dict[str, JudgeAnswer] = {}
        verdict = verify(log, self.oracle, compat=compat)
        for _ in range(MAX_JUDGE_ROUNDS):
            fresh = [one for one in verdict.questions if one.key not in answers]
            if not fresh:
                break
            answers.update((one.key, self._answer(one)) for one in fresh)
            verdict = verify(log, self.oracle, answers=answers.values(), compat=compat)
        return verdict

    def _answer(self, question: JudgeQuestion) -> JudgeAnswer:
        facts = self.facts.get(question.event, {})
        same = all(name in facts and facts[name].hold_for(value) for name, value in question.actual.items())
        return JudgeAnswer(key=question.key, same=same, judge="facts")


@dataclass(frozen=True, slots=True)
class StructuralVerifier:
    """The verifier of any scenario, without a model: by facts where it has some, else by comparing alone."""

    grader: FactGrader | None
    oracle: Oracle
    compat: Compat

    @classmethod
    def of(cls, scenario: Scenario, compat: Compat = "strict") -> StructuralVerifier:
        """The oracle is made once."""
        grader = FactGrader(scenario) if "facts" in scenario.info else None
        return cls(grader, Oracle.of(scenario) if grader is None else grader.oracle, compat)

    def __call__(self, log: Sequence[LogEntry]) -> Verdict:
        """What is to be said of a log."""
        if self.grader is not None:
            return self.grader.verdict(log, compat=self.compat)
        return verify(log, self.oracle, compat=self.compat)


def facts_of(scenario: Scenario) -> Mapping[str, Mapping[str, AnswerFacts]]:
    """By act and argument what its text must say. Raises ScenarioError where `info` has something else."""
    try:
        return msgspec.convert(scenario.info.get("facts", {}), dict[str, dict[str, AnswerFacts]])
    except msgspec.ValidationError as error:
        raise ScenarioError(f"scenario {scenario.id!r}: its facts: {error}") from error


def missing_facts(scenario: Scenario) -> list[str]:
    """What an oracle would fail by, one line each: soft arguments without facts, or whose own words miss them."""
    facts = facts_of(scenario)
    return [line for act in scenario.oracle for line in _missing_facts_of(scenario, act, facts.get(act.id, {}))]


def _missing_facts_of(scenario: Scenario, act: PlannedCall, facts: Mapping[str, AnswerFacts]) -> Iterable[str]:
    action = next(app for app in scenario.apps if app.name == act.app).actions[act.action]
    soft: dict[str, Any] = {name: value for name, value in act.args.items() if action.check(name).soft}
    for name, value in soft.items():
        if name not in facts:
            yield f"{act.id}: {name} is soft and has no facts"
        elif not facts[name].hold_for(value):
            yield f"{act.id}: {name} misses its own facts: {value!r} and {facts[name]}"
    yield from (f"{act.id}: there is no soft {name}" for name in facts.keys() - soft.keys())
