"""Reward code by its hidden tests, in any sandbox.

By default code and tests have each a process, and the code can only answer calls. Not covered: with `apart=False` the
tests run in the process of the code that they test, so code that looks for the token in its own process, or returns
objects that are equal to everything, can claim to have passed. It cannot do so by merely ending early.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from wanderlust.errors import RubricFailure, one_line
from wanderlust.rubrics.parsing import AnswerReader, last_code
from wanderlust.rubrics.rubric import RewardFunction, RewardResult
from wanderlust.types import Task

_WORKER = Path(__file__).with_name("unit_test_runner.py")


class CommandOutput(Protocol):
    """The result of a command."""

    @property
    def code(self) -> int: ...
    @property
    def stdout(self) -> bytes: ...


class CommandRunner(Protocol):
    """Runs a command with `stdin`, bounded in time, memory and output: a `Sandbox`, or less than one."""

    def run(self, command: Sequence[str], /, *, stdin: bytes) -> Awaitable[CommandOutput]: ...


OpenRunner = Callable[[], AbstractAsyncContextManager[CommandRunner]]
"""A fresh sandbox for one judgement."""


def hidden_tests(task: Task) -> Sequence[str]:
    """The task's own tests: Python snippets, as the list `answer` or as the list `answer["tests"]`.

    They belong in the answer, which is hidden from policies and agents' programs; programs see `info`.
    """
    tests = task.answer.get("tests") if isinstance(task.answer, Mapping) else task.answer
    if not isinstance(tests, list | tuple) or not tests or not all(isinstance(test, str) for test in tests):
        raise RubricFailure('the task has no tests: its answer, or answer["tests"], is a list of Python snippets')
    return tests


def no_setup_code(task: Task) -> str:
    """No program."""
    return ""


def unit_tests(
    open: OpenRunner,
    *,
    read: AnswerReader = last_code,
    tests: Callable[[Task], Sequence[str]] = hidden_tests,
    before: Callable[[Task], str] = no_setup_code,
    apart: bool = True,
    command: Sequence[str] = ("python3", "-I", "-"),
) -> RewardFunction:
    """Make `unit_tests`: the share of the task's tests that pass, each run by itself after the code.

    A test passes when the program reaches its end with exit status 0. Without code the value is 0. An exception of the
    sandbox is a RubricFailure, an error of the code is not. `before` is a program that the code may build on. `command`
    reads Python from its standard input.

    The code has a process of its own: tests find it as `solution`, whose functions they call with plain data
    (`assert solution.double(2) == 4`), and get plain data back. A test that cannot even begin (no Python in the
    sandbox, a mistake in the test), or that does not name `solution`, is a failure of the rubric.

    With `apart=False` the code stands before the test in one process (`assert double(2) == 4`), which a policy that is
    trained on it learns to cheat: only for code that is trusted, or tests that need its classes and exceptions.
    """
    run = _run_in_two_processes if apart else _run_in_one_process

    async def unit_tests(completion: str, task: Task) -> RewardResult:
        wanted, code, passed = tests(task), read(completion), 0
        if code is not None:
            code = f"{before(task)}\n{code}"
            unaware = [test for test in wanted if apart and "solution" not in test]
            if unaware:
                raise RubricFailure(
                    f"a test calls the code as solution.NAME(...), and {one_line(unaware[0], 60)!r} does not: write it"
                    " so, or pass apart=False, where the code can fake its result"
                )
            async with open() as sandbox:
                for test in wanted:
                    passed += await run(code, test, sandbox=sandbox, command=command)
        return RewardResult(value=passed / len(wanted), metrics={"passed": float(passed), "tests": float(len(wanted))})

    return unit_tests


async def _run_in_one_process(code: str, test: str, *, sandbox: CommandRunner, command: Sequence[str]) -> bool:
    token = secrets.token_hex(16)
    program = f"{code}\n{test}\nprint({token!r})\n".encode(errors="replace")
    ran = await sandbox.run(command, stdin=program)
    return ran.code == 0 and ran.stdout.rstrip().endswith(token.encode())


async def _run_in_two_processes(code: str, test: str, *, sandbox: CommandRunner, command: Sequence[str]) -> bool:
    began, passed, worker = secrets.token_hex(16), secrets.token_hex(16), _WORKER.read_text("utf-8")
    program = f"{worker}\nrun_test({code!a}, {test!a}, worker={worker!a}, {began=}, {passed=})\n".encode()
    ran = await sandbox.run(command, stdin=program)
    if not ran.stdout.startswith(began.encode()):
        last = one_line(getattr(ran, "stderr", b"").decode(errors="replace").strip().rpartition("\n")[2])
        raise RubricFailure(f"the tests could not begin: {last or f'exit status {ran.code}'}")
    return ran.code == 0 and ran.stdout.rstrip().endswith(passed.encode())
