"""Programming tasks judged by hidden unit tests. What a model wrote runs in a sandbox, or not at all.

Not covered, whatever the sandbox: a solution shares its process with the tests, so one that looks for them can read
them, and can fake the sign of success. Look at what was written before you believe a reward that came too easily.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from wanderlust.core.contracts import Environment, Episode, Limits
from wanderlust.core.errors import SandboxFailure, UsageError, boundary
from wanderlust.core.extras import load
from wanderlust.core.messages import user
from wanderlust.core.types import Task

SECONDS = 10.0
"""Wall-clock seconds that a solution and its tests may take."""
LONGEST = 100_000
"""Characters of code; more is not run."""
ASK = "Write the whole function in one Python code block, imports included.\n\n```python\n{}\n```"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTask:
    """A function to write."""

    id: str
    ask: str
    """The beginning of the program, as valid Python: imports, signature, docstring."""
    tests: str
    """A program that raises when the solution before it is wrong. Never shown."""
    solution: str
    """A program that passes."""


class Executor(Protocol):
    """Finds out whether code passes tests."""

    async def run(self, code: str, tests: str) -> bool:
        """True when the code and then the tests ran to their end."""
        ...


class Ran(Protocol):
    """What a sandbox says of a process that ended."""

    @property
    def stdout(self) -> Any:
        """Text or bytes."""
        ...


class Sandbox(Protocol):
    """Runs a program away from everything that matters."""

    async def run(self, argv: Sequence[str], *, stdin: Any = ..., timeout: float | None = ...) -> Ran:  # noqa: ASYNC109 (the sandbox ends the process itself)
        """Start `argv`, feed it `stdin` (bytes), wait at most `timeout` wall-clock seconds."""
        ...


class Refusing:
    """The default: nothing that a model wrote is run."""

    async def run(self, code: str, tests: str) -> bool:
        """Raises UsageError."""
        raise UsageError(REFUSED)


REFUSED = "a model's code is run in a sandbox only: make the environment with sandbox=..., or with an executor=..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandboxed:
    """Runs code and tests as one Python program in a sandbox."""

    sandbox: Sandbox
    python: str = "python3"
    """The interpreter's path inside the sandbox."""
    seconds: float = SECONDS

    async def run(self, code: str, tests: str) -> bool:
        """True when the last line of the output is the sign that stands behind the tests."""
        sign = hashlib.sha256(f"{tests}/{code}".encode(errors="replace")).hexdigest()
        program = f"{code}\n\n{tests}\n\nprint()\nprint({sign!r})\n".encode(errors="replace")
        with boundary(SandboxFailure):
            ran = await self.sandbox.run([self.python, "-I", "-"], stdin=program, timeout=self.seconds)
        said = ran.stdout.decode(errors="replace") if isinstance(ran.stdout, bytes) else str(ran.stdout)
        return bool(said.rstrip().endswith(sign))


def code_in(text: str) -> str:
    """The last block of Python in an answer; the whole answer when there is no block."""
    blocks = re.findall(r"```(?:python|py)?[ \t]*\n(.*?)```", text, re.DOTALL)
    return str(blocks[-1]) if blocks else text


class CodeEnvironment(Environment):
    """One function per task; the reward `passed` is 1 when all hidden tests pass.

    A task's prompt and answer hold what `CodeTask` has. Without a sandbox or an executor no episode is played: each
    says so, before the model is asked.
    """

    limits = Limits(max_turns=1)

    def __init__(
        self,
        problems: Callable[[], Sequence[CodeTask]],
        *,
        sandbox: Sandbox | None = None,
        executor: Executor | None = None,
    ):
        self.problems = problems
        self.executor: Executor = executor or (Sandboxed(sandbox=sandbox) if sandbox else Refusing())

    def tasks(self, split: str = "train") -> list[Task]:
        """The problems, in every split the same ones: hold out what you need to."""
        return [
            Task(
                id=one.id,
                prompt=(user(ASK.format(one.ask.rstrip())),),
                answer={"tests": one.tests, "solution": one.solution},
                info={"ask": one.ask},
            )
            for one in self.problems()
        ]

    async def run(self, episode: Episode) -> None:
        """One answer, run against the tests."""
        if isinstance(self.executor, Refusing):
            raise UsageError(REFUSED)
        task = episode.task
        code = code_in((await episode.agent.act(*task.prompt)).content)
        passed = len(code) <= LONGEST and "\0" not in code
        if passed:
            passed = await self.executor.run(f"{task.info['ask']}\n\n\n{code}", task.answer["tests"])
        episode.reward("passed", float(passed))


class HumanEval(CodeEnvironment):
    """HumanEval: 164 Python functions with hidden tests; needs the extra `code` and a sandbox."""

    def __init__(self, *, sandbox: Sandbox | None = None, executor: Executor | None = None):
        super().__init__(_humaneval, sandbox=sandbox, executor=executor)


def _humaneval() -> list[CodeTask]:
    problems: list[CodeTask] = load("wanderlust.environments.sources.humaneval:problems", extra="code")()
    return problems
