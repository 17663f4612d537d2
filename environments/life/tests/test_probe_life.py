"""`probe` of a life: it finds what graders by keywords pay, and nothing with the facts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from wanderlust.evals.probe.battery import run_probes
from wanderlust.evals.probe.report import ProbeReport
from wanderlust.policies.resolve import players_of
from wanderlust_life.assistant_life import AssistantLife
from wanderlust_worlds.verification.facts import Amount, AnswerFacts, AnyOf, Count, Day, Pairs, Says, TextFact
from wanderlust_worlds.verification.grading import FactGrader
from wanderlust_worlds.verification.reading import Text, fits_day, read_text
from wanderlust_worlds.verification.verdict import JudgeQuestion


class KeywordGrader(FactGrader):
    """The grader that reviews found wanting: what a fact is about need only occur, denied or in a list."""

    def answer(self, question: JudgeQuestion) -> bool:
        facts: Mapping[str, AnswerFacts] = self.facts.get(question.event, {})
        return all(name in facts and occurs(facts[name], value) for name, value in question.actual.items())


def occurs(facts: AnswerFacts, value: Any) -> bool:
    if facts.fields is not None:
        return facts.hold_for(value)
    return all(map(partial(is_named, read_text(str(value))), facts.facts))


def is_named(text: Text, fact: TextFact) -> bool:
    match fact:
        case Says():
            return any(way.lower() in text.plain for way in fact.ways)
        case Day():
            return not fact.needed or any(fits_day(one.days, fact.at) for one in text.mentions if one.kind == "day")
        case Amount() | Count():
            return any(fact.value in one.numbers for one in text.mentions)
        case Pairs():
            return all(any(way.lower() in text.plain for way in ways) for pair in fact.pairs for ways in pair)
        case AnyOf():
            return any(all(map(partial(is_named, text), choice)) for choice in fact.choices)
    return True


class KeywordLife(AssistantLife):
    """A life under that grader."""

    def scenario_and_grader(self, name):
        scenario, _ = super().scenario_and_grader(name)
        return scenario, KeywordGrader(scenario)


def probed(env: AssistantLife) -> ProbeReport:
    tasks = list(env.tasks("eval"))[: 2 * len(env.families)]
    return asyncio.run(run_probes(env, tasks=tasks, oracle=players_of(env)["oracle"](), battery=()))


def test_what_keywords_pay_is_found():
    report = probed(KeywordLife(["too-late", "spent-on-rides", "clear-scans"], levels=(1,)))
    assert report.crashes == []
    assert {"denied", "left-open"} <= {flaw.result.name for flaw in report.flaws}


@pytest.mark.parametrize(
    "family",
    [
        "least-paid",
        *(
            pytest.param(one, marks=pytest.mark.proof("rewards"))
            for one in ("spent-on-rides", "too-late", "clear-scans")
        ),
    ],
)
def test_a_family_by_itself_is_probed_too(family):
    weak = probed(KeywordLife([family], levels=(1, 2, 3)))
    assert weak.verdict == "flaw found"
    assert probed(AssistantLife([family], levels=(1, 2, 3))).flaws == []


class ForgetfulGrader(FactGrader):
    """A grader that asks for no amount: then one sentence is right for every order that was delivered."""

    def __init__(self, scenario):
        super().__init__(scenario)
        self.facts = {
            act: {
                name: structs.replace(one, facts=tuple(fact for fact in one.facts if not isinstance(fact, Amount)))
                for name, one in arguments.items()
            }
            for act, arguments in self.facts.items()
        }


def test_one_sentence_for_every_task_is_found():
    class Forgetful(AssistantLife):
        def scenario_and_grader(self, name):
            scenario, _ = super().scenario_and_grader(name)
            return scenario, ForgetfulGrader(scenario)

    weak = probed(Forgetful(["too-late"], levels=(1, 2, 3)))
    assert "usual" in {flaw.result.name for flaw in weak.flaws}
    assert probed(AssistantLife(["too-late"], levels=(1, 2, 3))).flaws == []


@pytest.mark.proof("rewards")
def test_facts_pay_none_of_it():
    report = probed(AssistantLife(levels=(1,)))
    spoilt = {one.name: one.reward.value for one in report.results if one.name in ("denied", "left-open", "candidates")}
    assert spoilt == {"denied": 0.0, "left-open": 0.0, "candidates": 0.0}
    assert (report.flaws, report.crashes) == ([], [])
