"""Symbolic equality in processes of their own: right answers, hostile answers, tasks that cannot be read."""

import asyncio
import gc
import subprocess
import sys
from pathlib import Path

import pytest

from patience import wait_until
from tiers import proof_except
from wanderlust.errors import RubricFailure, UsageError
from wanderlust.rubrics import rewards
from wanderlust.rubrics.parsing import whole
from wanderlust.rubrics.rewards import symbolic
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Rollout, Task, Trajectory, Turn, assistant

RUBRIC = Rubric(symbolic(seconds=2.0, processes=1))
"""One for all: each process imports sympy."""


async def judge(said, answer, rubric=RUBRIC):
    trajectory = Trajectory(turns=[Turn(observation=(), action=assistant(said))])
    played = Rollout(task=Task(id="t", answer=answer), seed=0, trajectories=[trajectory])
    return await rubric.score(played, trajectory)


@pytest.mark.parametrize(
    ("said", "answer", "right"),
    [
        (r"so \boxed{\frac{1}{2}}", "0.5", True),
        (r"\boxed{0.5}", r"\frac{1}{2}", True),
        (r"\boxed{(x+1)^2}", "x^2 + 2x + 1", True),
        (r"\boxed{x^2+1}", "x^2 + 2x + 1", False),
        (r"\boxed{\sqrt{8}}", r"2\sqrt{2}", True),
        (r"\boxed{\{2, 1\}}", r"\{1, 2\}", True),
        (r"\boxed{[1, 2)}", "(1, 2)", False),
        (r"\boxed{}", "3", False),
        (r"\boxed{\frac{}", 3, False),
        ("3", 3, False),
        (r"\boxed{" + "1+" * 3000 + "1}", 3001, False),
        ("\\boxed{\ud800\x00\n\"'}", 3, False),
    ],
)
def test_equal_in_mathematics(said, answer, right):
    score = asyncio.run(judge(said, answer))
    assert (score.reward, score.metrics) == (float(right), {"symbolic/gave_up": 0.0})


HOSTILE = [
    r"9^{9^{9^{9}}}",
    r"(x+y+z+1)^{400} (x-y)^{300}",
    r"100000! ^ {100000!}",
    r"\sum_{k=1}^{10^{12}} \frac{1}{k^k}",
]


@pytest.mark.parametrize("expression", proof_except([HOSTILE[1], HOSTILE[2]], HOSTILE, group="seeds"))
def test_no_expression_hangs_the_process(expression):
    async def go():
        beats, score = 0, asyncio.create_task(judge(rf"\boxed{{{expression}}}", "7"))
        while not score.done():
            await asyncio.sleep(0.01)
            beats += 1
        return beats, await score, await judge(r"\boxed{14/2}", "7")

    beats, hostile, after = asyncio.run(go())
    assert hostile.reward == 0.0
    assert after.reward == 1.0
    assert beats > 3 or not hostile.metrics["symbolic/gave_up"]


def test_the_time_limit_is_of_processor_time():
    score = asyncio.run(judge(rf"\boxed{{{HOSTILE[0]}}}", "7", Rubric(symbolic(seconds=0.5))))
    assert score.metrics == {"symbolic/gave_up": 1.0}


@pytest.mark.parametrize("answer", ["", "   ", None])
def test_a_task_that_cannot_be_read_is_a_failure(answer):
    with pytest.raises(RubricFailure, match=r"symbolic on task 't': the task"):
        asyncio.run(judge(r"\boxed{7}", answer))
    assert asyncio.run(judge(r"\boxed{7}", "7")).reward == 1.0


def test_many_at_once_in_several_loops():
    async def go():
        return await asyncio.gather(*(judge(rf"\boxed{{{n}}}", str(n % 7)) for n in range(50)))

    for _ in range(2):
        assert [score.reward for score in asyncio.run(go())] == [float(n < 7) for n in range(50)]


def test_a_process_that_died_is_told_and_replaced(monkeypatch):
    monkeypatch.setattr(rewards, "_WORKER", rewards._WORKER.with_name("rubric.py"))
    with pytest.raises(RubricFailure, match="symbolic on task 't': the process for symbolic mathematics died"):
        asyncio.run(judge(r"\boxed{7}", "7", Rubric(symbolic())))


def test_processes_end_with_their_rubric():
    def children():
        return {child for file in Path("/proc/self/task").glob("*/children") for child in file.read_text().split()}

    before = children()
    rubric = Rubric(symbolic(read=whole))
    assert asyncio.run(judge("7", "7", rubric)).reward == 1.0
    assert len(children() - before) == 1
    del rubric
    gc.collect()
    wait_until(lambda: not children() - before)


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(rewards, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'wanderlust\[math\]'"):
        symbolic()


def test_importing_it_imports_no_mathematics():
    code = "import sys, wanderlust.rubrics.rewards; print('sympy' in sys.modules, 'math_verify' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "False False\n"
    )
