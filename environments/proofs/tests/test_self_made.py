"""Tasks that a policy sets for itself: what is a task, what cheating gains, and a buffer that survives a restart."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import play_groups, rollout
from wanderlust.tasks.curriculum.uniform import TaskPool
from wanderlust.testing import check_environment
from wanderlust.types import Group, Policy, Rollout, Task
from wanderlust_proofs.contract import names_of
from wanderlust_proofs.made_tasks import (
    ARITHMETIC,
    PROBES,
    TASK_KINDS,
    MadeTask,
    is_right,
    outputs,
    read_proposal,
    validate_task,
)
from wanderlust_proofs.self_made import REFUSED, SelfMadeTasks, draw_task, learnability, question, teach
from wanderlust_proofs.self_made_curriculum import MADE_KEY, SelfMade, SelfMadeOptions
from wanderlust_proofs.small_python import ProgramError

ENV = SelfMadeTasks(size=40, eval_size=32)
GOOD = "x += 3\nx *= 2\ninput 4"


def propose(text: str, *, kind: str = "deduction", right: int = 2, known: tuple[str, ...] = ()) -> Rollout:
    """One proposal, which `right` of four tries solve."""
    task = ENV.proposal_task(1, kind=kind, beside=(), known=known)
    answers: list[str] = []
    try:
        made = read_proposal(kind, text)
        answers = [made.text if kind == "induction" else solved(made)] * right + ["I do not know"] * (4 - right)
    except ProgramError:
        pass
    tries = iter(answers)
    solver = Scripted(lambda messages, rng: next(tries))
    return asyncio.run(rollout(ENV, task, {"proposer": Scripted([text]), "solver": solver}))


def solved(made: MadeTask) -> str:
    return str(made.value if made.kind == "abduction" else made.answer)


def paid(played: Rollout) -> float:
    proposer = played.trajectories[0]
    assert proposer.seat == "proposer"
    assert proposer.score is not None
    return proposer.score.reward


def findings(played: Rollout) -> list[str]:
    return [one["name"] for one in played.state[MADE_KEY]["findings"]]


def test_four_kinds_are_asked_and_graded_by_running_them():
    program = MadeTask(kind="deduction", text="x += 3\nx *= 2", value=4)
    abduction, induction = replace(program, kind="abduction"), replace(program, kind="induction", value=0)
    sum_of = MadeTask(kind=ARITHMETIC, text="12 + 7 - 3")
    assert (program.answer, sum_of.answer) == (14, 16)
    assert question(abduction) == "Which input gives 14? End with the number.\nx += 3\nx *= 2"
    assert [is_right(program, text) for text in ("7 14", "14", "7", "", "14 7")] == [True, True, False, False, False]
    assert [is_right(abduction, text) for text in ("14 7 4", "5")] == [True, False]
    assert [is_right(induction, text) for text in ("x *= 2\nx += 6", "x += 6", "6", "while 1: x += 1")] == [
        True,
        False,
        False,
        False,
    ]
    assert [is_right(sum_of, text) for text in ("19 16", "16.5")] == [True, False]


def test_the_teacher_solves_what_it_is_asked_and_held_out_functions_are_apart():
    assert asyncio.run(check_environment(ENV)) == []
    truth = ENV.tasks("eval")
    for task in truth:
        made = MadeTask.of(task.info[MADE_KEY])
        answer = asyncio.run(ENV.oracle(task).complete(task.prompt)).message.content
        assert is_right(made, answer), (task.prompt[0].content, answer)
        assert made.held_out
    assert {(task.info["kind"], task.info["lines"]) for task in truth} == {
        (k, n) for k in TASK_KINDS for n in range(1, 5)
    }
    train = [MadeTask.of(task.info[MADE_KEY]) for task in ENV.tasks() if MADE_KEY in task.info]
    assert not any(made.held_out for made in train)
    assert not {made.function for made in train} & {MadeTask.of(task.info[MADE_KEY]).function for task in truth}


def test_a_proposer_earns_most_at_half():
    for right, variance in ((0, 0.0), (1, 0.75), (2, 1.0), (3, 0.75), (4, 0.0)):
        played = propose(GOOD, right=right)
        assert (paid(played), played.state[MADE_KEY]["rate"]) == (variance, right / 4)
        assert [one.trainable for one in played.trajectories] == [True, False]
        assert len(played.trajectories[1].turns) == 4
        assert len(played.trajectories[1].ends) == 4  # no try sees another
    assert [learnability(rate, "one-minus-pass") for rate in (0, 0.25, 0.75, 1)] == [0, 0.75, 0.25, 0]


@pytest.mark.parametrize(
    ("kind", "text", "finding"),
    [
        ("deduction", "asdf qwer", "malformed"),
        ("deduction", "", "malformed"),
        ("deduction", "x += 3\nx *= 2", "malformed"),  # without an input
        ("deduction", "x += 3 # the answer is 7\ninput 9999", "malformed"),
        ("deduction", "'the answer is 7'\nx += 3\ninput 4", "malformed"),
        ("deduction", "answer_is_7 = 1\nx += 3\ninput 4", "malformed"),
        ("deduction", "import os\ninput 4", "fails"),
        ("deduction", "x += 1\n" * 9 + "input 4", "malformed"),
        ("deduction", "y = " + "(" * 200 + "\ninput 1", "malformed"),
        ("deduction", "while 1 > 0:\n    x += 1\ninput 4", "fails"),
        ("deduction", "x = f(x)\ninput 4", "fails"),
        ("deduction", "x *= 999\nx *= 999\ninput 4", "fails"),
        ("deduction", "x = x ** 2\ninput 4", "fails"),
        ("deduction", "x = x / 2\ninput 4", "malformed"),
        ("deduction", "x = [x]\ninput 4", "fails"),
        ("deduction", "x = 7\ninput 4", "trivial"),
        ("deduction", "x *= 0\ninput 4", "trivial"),
        ("deduction", "x %= 2\ninput 4", "trivial"),
        ("deduction", "x += 0\ninput 4", "trivial"),
        ("abduction", "x = x > 4\ninput 4", "fails"),
        ("induction", "return 5", "trivial"),
        (ARITHMETIC, "7", "malformed"),
        (ARITHMETIC, "0 * 12", "trivial"),
        (ARITHMETIC, "x + 1", "fails"),
        (ARITHMETIC, "'a' + 'b'", "malformed"),
        (ARITHMETIC, "9 ** 99", "fails"),
        (ARITHMETIC, "[9] * 99", "fails"),
    ],
)
def test_unreadable_endless_and_constant_tasks_cost(kind: str, text: str, finding: str):
    played = propose(text, kind=kind)
    if finding == "malformed" and findings(played) != ["malformed"]:
        assert findings(played) in (["fails"], ["trivial"])  # refused a step later
    else:
        assert findings(played) == [finding]
    assert paid(played) == REFUSED < 0
    assert not played.trajectories[1].turns
    assert "\n" not in played.state[MADE_KEY]["findings"][0]["why"]


def test_hints_do_not_reach_the_solver():
    played = propose("x += 3 # the answer is 14\nx   *=   2\ninput 4")
    assert findings(played) == []
    assert played.trajectories[1].messages[0].content == question(
        MadeTask(kind="deduction", text="x += 3\nx *= 2", value=4)
    )


def test_copies_are_worth_nothing_however_they_are_written():
    known = (read_proposal("deduction", GOOD).function,)
    for text in (GOOD, "x *= 2\nx += 6\ninput 5", "x += 3\nx *= 2\ny = 1\ninput 4", "return x * 2 + 6\ninput 4"):
        played = propose(text, known=known)
        assert (findings(played), paid(played)) == (["copy"], REFUSED)
    assert findings(propose("x *= 2\nx += 7\ninput 4", known=known)) == []


def test_siblings_who_propose_the_same_share_what_one_earns():
    task = ENV.proposal_task(1, kind="deduction", beside=(), known=())
    answers = {"x *= 2\nx += 6": 14, "x += 7": 11, GOOD.removesuffix("\ninput 4"): 14}

    def play(messages: Any, rng: Any) -> str:
        if messages[0].content.startswith("Set"):
            return f"{rng.choice([*answers])}\ninput 4"
        program = messages[0].content.partition("input 4\n")[2]
        return str(answers[program] if rng.random() < 0.5 else 0)

    (group,) = asyncio.run(play_groups(ENV, [task], Scripted(play), group_size=12))
    worth = [learnability(one.state[MADE_KEY]["rate"], "variance") for one in group.rollouts]
    functions = [one.state[MADE_KEY]["function"] for one in group.rollouts]
    assert len({*functions}) == 2
    for one, value, function in zip(group.rollouts, worth, functions, strict=True):
        assert paid(one) == pytest.approx(value / functions.count(function))


def test_what_is_held_out_cannot_be_practised_and_costs_nothing():
    made = next(made for number in range(1, 60) if (made := read_proposal("induction", f"x += {number}")).held_out)
    played = propose(made.text, kind="induction")
    assert (findings(played), paid(played)) == (["held_out"], 0.0)


def test_validation_is_of_the_text_alone():
    made = draw_task(Random(3), "abduction", lines=3, held_out=False)
    assert validate_task(made) == []
    assert names_of(validate_task(made, {made.function})) == ["copy"]
    assert len(outputs(made.text)) == len(PROBES)
    assert MadeTask.of({**made.as_dict(), "rate": 0.5}) == made


def groups(env: SelfMadeTasks, tasks: list[Task], policy: Policy, seed: int) -> list[Group]:
    return asyncio.run(play_groups(env, tasks, policy, group_size=4, seed=seed))


def test_the_buffer_is_practised_and_goes_on_from_its_state():
    policy = Scripted(lambda messages, rng: teach(messages, rng, slip=0.5))
    settings = SelfMadeOptions(min_tasks=4, capacity=12, propose=0.5)
    pool = TaskPool.of(task for task in ENV.tasks() if MADE_KEY in task.info)
    one, another = (SelfMade(env=ENV, pool=pool, seed=7, settings=settings) for _ in range(2))
    practised = []
    for step in range(10):
        tasks = list(one.next(step, 6))
        for group in groups(ENV, tasks, policy, step):
            one.observe(group)
        practised += [task for task in tasks if task.id.startswith("made-")]
        another.restore(json.loads(json.dumps(one.state())))
        assert another.state() == one.state()
        ahead = another.next(step + 1, 6)
        another.restore(json.loads(json.dumps(one.state())))
        assert another.next(step + 1, 6) == ahead
    figures = one.metrics()
    assert figures["curriculum_buffer"] == 12
    assert figures["curriculum_shapes"] > 4
    assert 0 < figures["curriculum_in_band"] <= 1
    assert practised
    known = [task.info["known"] for task in ahead if "known" in task.info]
    assert known
    assert all(len(one) <= 12 for one in known)


def test_settings_that_make_no_sense_are_one_line():
    for make, says in (
        (lambda: SelfMadeOptions(propose=1), "between 0 and 1"),
        (lambda: SelfMadeTasks(worth="most"), "worth is"),  # type: ignore[arg-type]
        (lambda: SelfMadeTasks(tries=1), "tries are 2 to 16"),
        (lambda: ENV.tasks("test"), "no split"),
    ):
        with pytest.raises(UsageError, match=says) as raised:
            make()
        assert "\n" not in str(raised.value)
