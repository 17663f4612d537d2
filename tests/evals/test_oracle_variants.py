"""The oracle's answer, spoilt: what a sound reward notices and a flawed one pays for."""

from __future__ import annotations

import asyncio
import re

import pytest

from wanderlust.environment import SingleTurnEnvironment
from wanderlust.evals.probe.battery import run_probes
from wanderlust.evals.probe.oracle_variants import ALTERATIONS
from wanderlust.evals.probe.report import ProbeReport
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Task, user

TASKS = [
    Task(
        id=str(n),
        prompt=(user(f"Case {n}: name the three colours of flag {n}."),),
        answer=[f"c{n % 7}", f"d{n % 5}", f"{3 * n + 100}"],
    )
    for n in range(20)
]
KNOWS = Scripted(lambda messages, rng: ", ".join(TASKS[int(messages[0].content.split()[1][:-1])].answer))


def found(*rewards) -> ProbeReport:
    env = SingleTurnEnvironment(TASKS, rubric=Rubric(*rewards))
    return asyncio.run(run_probes(env, tasks=TASKS, oracle=KNOWS, battery=[]))


def names(findings: ProbeReport) -> set[str]:
    return {flaw.result.name for flaw in findings.flaws}


def exact(completion, answer):
    return float(completion == ", ".join(answer))


def anywhere(completion, answer):
    return float(", ".join(answer) in completion)


def each_time(completion, answer):
    said = completion.split(", ")
    return sum(item in answer for item in said) / len(said)


def each_once(completion, answer):
    return len({*re.split(", |\n", completion)} & {*answer}) / 3


def filled(completion, answer):
    return float(completion.replace("{answer}", "7").replace("{target}", answer[-1]) == ", ".join(answer))


@pytest.mark.parametrize(
    ("reward", "caught"),
    [
        (exact, set()),
        (each_once, {"hedged", "overfull"}),  # a list as long as one likes, and wrong items cost nothing
        (anywhere, {"hedged", "overfull"}),
        (each_time, {"one-item"}),
        (filled, {"field-target"}),
    ],
)
def test_a_spoilt_answer_earns_where_the_reward_is_flawed(reward, caught) -> None:
    assert names(found(reward)) == caught


def test_a_number_that_nobody_looks_at_is_no_template() -> None:
    def ends_in_anything(completion, answer):
        return float(completion.split(", ")[:2] == answer[:2] and completion.count(",") == 2)

    assert names(found(ends_in_anything)) == set()


def test_without_an_oracle_nothing_is_spoilt() -> None:
    env = SingleTurnEnvironment(TASKS, rubric=Rubric(anywhere))
    findings = asyncio.run(run_probes(env, tasks=TASKS, battery=[]))
    assert {one.name for one in ALTERATIONS} & {one.name for one in findings.results} == set()
    assert findings.skipped == ["random-calls", "random-example"]
