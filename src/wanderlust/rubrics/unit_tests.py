"""Code is worth what its hidden tests say, in any sandbox.

What is not covered: the tests run in the process of the code that they test, so code that looks for the token in its
own process can claim to have passed. It cannot do so by merely ending early.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from wanderlust.core.errors import RubricFailure
from wanderlust.core.types import Task
from wanderlust.rubrics.part import Judged, RewardFunction
from wanderlust.rubrics.reading import Reader, last_code


class Ran(Protocol):
    """What a command came to."""

    @property
    def code(self) -> int: ...
    @property
    def stdout(self) -> bytes: ...


class Sandbox(Protocol):
    """Anything that runs a command with `stdin` and bounds it: in time, memory and output."""

    def run(self, command: Sequence[str], /, *, stdin: bytes) -> Awaitable[Ran]: ...


Opening = Callable[[], AbstractAsyncContextManager[Sandbox]]
"""A fresh sandbox for one judgement."""


def hidden_tests(task: Task) -> Sequence[str]:
    """The task's own tests: `info["tests"]`, a list of Python snippets."""
    tests = task.info.get("tests")
    if not isinstance(tests, list | tuple) or not tests or not all(isinstance(test, str) for test in tests):
        raise RubricFailure('the task has no tests: info["tests"] is a list of Python snippets')
    return tests


def unit_tests(
    open: Opening,
    *,
    read: Reader = last_code,
    tests: Callable[[Task], Sequence[str]] = hidden_tests,
    command: Sequence[str] = ("python3", "-"),
) -> RewardFunction:
    """`unit_tests`: the share of the task's tests that pass, each run by itself after the code that was read.

    A test passes when the program reaches its end and leaves with 0. No code is 0. What a sandbox raises is a
    failure of the rubric, what the code does is not. `command` reads the program from its standard input.
    """

    async def unit_tests(completion: str, task: Task) -> Judged:
        wanted, code, passed = tests(task), read(completion), 0
        if code is not None:
            async with open() as sandbox:
                for test in wanted:
                    token = secrets.token_hex(16)
                    program = f"{code}\n{test}\nprint({token!r})\n".encode(errors="replace")
                    ran = await sandbox.run(command, stdin=program)
                    passed += ran.code == 0 and ran.stdout.rstrip().endswith(token.encode())
        return Judged(value=passed / len(wanted), metrics={"passed": float(passed), "tests": float(len(wanted))})

    return unit_tests
