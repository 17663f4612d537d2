"""Verification with facts instead of a judge: without a model, repeatable, and always decided.

`facts.py` says what facts are. Not covered: a text that passes can still be rude, odd or padded; only its length is
bounded. A judge beside the facts (`FactGrader.judged_verdict`) can look at that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from wanderlust.types import Policy
from wanderlust_worlds.engine.events import ScenarioError
from wanderlust_worlds.engine.log import LogEntry
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.engine.world import World, may_match
from wanderlust_worlds.verification.equal_effects import EqualEffects
from wanderlust_worlds.verification.facts import AnswerFacts
from wanderlust_worlds.verification.online import match_online
from wanderlust_worlds.verification.oracle import Oracle, TimeWindow
from wanderlust_worlds.verification.verdict import Compat, JudgeAnswer, JudgeQuestion, Verdict
from wanderlust_worlds.verification.verify import verify
from wanderlust_worlds.verification.world_judge import WorldJudge, verify_with_judge

GRADING_WINDOW = TimeWindow(before=10.0, after=60.0)
"""Seconds of the world's clock by which a timed act may miss its due time."""
MAX_JUDGE_ROUNDS = 50
"""Rounds of new questions before a verdict is left as it is."""


class FactGrader:
    """Grades logs of one scenario, and is the gate of its worlds. Made once per scenario, and shared."""

    def __init__(self, scenario: Scenario, window: TimeWindow | None = None):
        self.facts = facts_of(scenario)
        self.oracle = Oracle.of(scenario, window or GRADING_WINDOW)
        self.effects = EqualEffects(scenario)
        self._awaited = {act.act.id for act in self.oracle.acts if act.awaited}

    def __call__(self, world: World, line: LogEntry) -> None:
        """Mark the expected act as done that the write is: found by matching all writes, as verification does.

        What others' events wait for is matched together with the acts before it (`match_online`).
        """
        if not line.writes:
            return
        log = self.effects.canonical(world.log)
        number = len(log) - 1
        match_online(world, log[number], self.oracle, log=log, answers=self.answer)
        if number not in world.done.values():
            self._mark_next(world, log[number], number)

    def _mark_next(self, world: World, line: LogEntry, number: int) -> None:
        """Mark the first expected act that the line certainly is and that nobody's event waits for."""
        for act in world.expected:
            if act.id in self._awaited or (act.app, act.action) != (line.app, line.action):
                continue
            try:
                same = may_match(world, act, line=line)
            except (LookupError, ValueError):  # a result that the act refers to is not there
                continue
            facts = self.facts.get(act.id, {})
            if same and all(one.hold_for(line.args.get(name, "")) for name, one in facts.items()):
                world.mark_done(act.id, number)
                return

    def answer(self, question: JudgeQuestion) -> bool:
        """Whether what was written states the facts. Without facts the answer is no."""
        facts = self.facts.get(question.event, {})
        return all(name in facts and facts[name].hold_for(value) for name, value in question.actual.items())

    def verdict(self, log: Sequence[LogEntry], *, compat: Compat = "strict") -> Verdict:
        """The verdict on a log. Facts answer the open questions; without facts the answer is no."""
        answers: dict[str, JudgeAnswer] = {}
        lines = self.effects.canonical(log)
        verdict = verify(lines, self.oracle, compat=compat)
        for _ in range(MAX_JUDGE_ROUNDS):
            fresh = [one for one in verdict.questions if one.key not in answers]
            if not fresh:
                break
            for question in fresh:
                answers[question.key] = JudgeAnswer(key=question.key, same=self.answer(question), judge="facts")
            verdict = verify(lines, self.oracle, answers=answers.values(), compat=compat)
        return verdict

    async def judged_verdict(
        self, log: Sequence[LogEntry], judge: Policy | WorldJudge, *, compat: Compat = "strict"
    ) -> Verdict:
        """The verdict of facts and judge together: the judge is asked about the texts that state the facts.

        It can reject what the facts accept, and never accept what they reject. A judge's answer that cannot be read
        leaves the verdict undecided. Raises PolicyFailure when the judge fails for good.
        """
        verdict = self.verdict(log, compat=compat)
        if not verdict.accepted:
            return verdict
        return await verify_with_judge(self.effects.canonical(log), self.oracle, judge, compat=compat)


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
