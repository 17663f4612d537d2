"""Code is worth what its hidden tests say; here in a plain subprocess, because the sandbox is handed in."""

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from wanderlust.errors import RubricFailure
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Rollout, Task, Trajectory, Turn, assistant
from wanderlust_coding.unit_tests import unit_tests


@dataclass
class Ran:
    code: int
    stdout: bytes


class Subprocess:
    async def run(self, command, *, stdin):
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command[1:], stdin=-1, stdout=-1, stderr=subprocess.DEVNULL
        )
        out, _ = await process.communicate(stdin)
        return Ran(process.returncode, out)


@asynccontextmanager
async def opened():
    yield Subprocess()


CODE = Task(id="c", answer=["assert solution.double(2) == 4", "assert solution.double('a') == 'aa'"])
TOGETHER = Task(id="c", answer=["assert double(2) == 4", "assert double('a') == 'aa'"])


def passed(said, task=CODE, **options):
    trajectory = Trajectory(turns=[Turn(observation=(), action=assistant(said))])
    played = Rollout(task=task, seed=0, trajectories=[trajectory])
    return asyncio.run(Rubric(unit_tests(opened, **options)).score(played, trajectory))


@pytest.mark.parametrize(
    ("code", "share"),
    [
        ("def double(x):\n    return x + x", 1.0),
        ("def double(x):\n    return 4", 0.5),
        ("import os\nos._exit(0)", 0.0),
        ("raise SystemExit(0)", 0.0),
        ("def double(x:", 0.0),
        ("print('\ud800')", 0.0),
    ],
)
@pytest.mark.parametrize(("task", "options"), [(CODE, {}), (TOGETHER, {"apart": False})], ids=["apart", "together"])
def test_code_is_worth_what_its_tests_say(code, share, task, options):
    score = passed(f"Here:\n```python\n{code}\n```", task, **options)
    assert (score.reward, score.metrics) == (share, {"unit_tests/passed": 2 * share, "unit_tests/tests": 2.0})


@pytest.mark.parametrize(
    "code",
    [
        "class Any:\n    def __eq__(self, other):\n        return True\ndef double(x):\n    return Any()",
        "import sys\ndef double(x):\n    print(sys._getframe(1).f_code.co_consts[-1])\n    sys.exit(0)",
        "import sys, builtins\nprint(*sys._getframe().f_code.co_consts)\nraise SystemExit(0)",
    ],
)
def test_by_default_code_cannot_claim_to_have_passed(code):
    assert passed(f"```python\n{code}\n```").reward == 0.0


def test_a_test_that_does_not_call_the_solution_is_a_failure_and_no_zero():
    with pytest.raises(
        RubricFailure, match=r"solution\.NAME\(\.\.\.\).*'assert double\(2\) == 4' does not.*apart=False"
    ):
        passed("```python\ndef double(x):\n    return x + x\n```", TOGETHER)


def test_no_code_is_worth_nothing_and_no_tests_are_a_failure():
    assert passed("no idea").reward == 0.0
    with pytest.raises(RubricFailure, match="the task has no tests"):
        passed("```\nx\n```", Task(id="c"))


APART = Task(
    id="a",
    answer={
        "tests": [
            "assert solution.double(2) == 4",
            "given = [1, {(2,): {3}, 'x': None}, frozenset(), 2.5, True, float('inf')]\n"
            "back = solution.same(given, more=given)\n"
            "assert back == (given, given) and type(back) is tuple and given is not back[0]",
        ]
    },
)
SAME = "def same(one, more):\n    return one, more\n"


@pytest.mark.parametrize(
    ("code", "share"),
    [
        (f"{SAME}def double(x):\n    return x + x", 1.0),
        (SAME, 0.5),
        ("class Any:\n    def __eq__(self, other):\n        return True\ndef double(x):\n    return Any()", 0.0),
        ("import sys\nfor module in list(sys.modules.values()):\n    module.json = None", 0.0),
        ("raise SystemExit(0)", 0.0),
        ("import os\nos._exit(0)", 0.0),
    ],
)
def test_apart_only_plain_data_comes_back(code, share):
    assert passed(f"```python\n{code}\n```", APART, apart=True).reward == share


def test_code_builds_on_what_stands_before_it():
    said = "```python\ndef double(x):\n    return twice * x\n```"
    for apart, task in ((True, CODE), (False, TOGETHER)):
        assert passed(said, task, apart=apart, before=lambda task: "twice = 2").reward > 0
        assert passed(said, task, apart=apart).reward == 0


def test_apart_a_test_that_cannot_begin_is_a_failure():
    with pytest.raises(RubricFailure, match="the tests could not begin: exit status 1"):
        passed("```\nx\n```", Task(id="c", answer=["solution not ( python"]), apart=True)
    with pytest.raises(RubricFailure, match="the tests could not begin"):
        passed("```\nx\n```", APART, apart=True, command=("python3", "-c", ""))
