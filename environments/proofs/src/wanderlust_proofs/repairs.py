"""One-line repairs of small Python functions, judged by unit tests alone.

Each task shows a function of three numbers with one wrong line, and tests that the right function passes. The
answer names a line and writes it anew. The repaired function is run in a sandbox on the arguments of the shown tests
and of hidden ones; the reward is 1 when all results are right. A quarter of all right functions is held out: none of
them occurs in training.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias
from zlib import crc32

from wanderlust.environment import Episode, SingleTurnEnvironment
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import RewardResult, Rubric
from wanderlust.tools.sandbox import Sandbox, open_sandbox
from wanderlust.types import Message, Policy, Task, user
from wanderlust_proofs.function_calls import FunctionCalls

NAMES, RESULTS = "abc", "xyz"
"""The arguments, and what the lines set, one each."""
FORMS: Mapping[str, Callable[[int], int]] = {
    "{}": lambda value: value,
    "{} + 1": lambda value: value + 1,
    "{} - 1": lambda value: value - 1,
    "{} * 2": lambda value: value * 2,
}
"""What a line may make of one argument."""
EXPRESSIONS = tuple(form.format(name) for name in NAMES for form in FORMS)
SHOWN_TESTS, HIDDEN_TESTS = 3, 9
HELD_OUT_MODULUS = 4
"""One of this many right functions is held out."""

Function: TypeAlias = tuple[str, ...]
"""The expression of each line."""


def write_function(lines: Sequence[str]) -> str:
    """The whole function as Python."""
    body = "".join(f"    {line}\n" for line in lines)
    return f"def f({', '.join(NAMES)}):\n{body}    return [{', '.join(RESULTS)}]\n"


def _lines(function: Function) -> list[str]:
    return [f"{name} = {expression}" for name, expression in zip(RESULTS, function, strict=True)]


def _value(expression: str, arguments: Sequence[int]) -> int:
    values = dict(zip(NAMES, arguments, strict=True))
    return FORMS[f"{{}}{expression[1:]}"](values[expression[0]])


def _values(function: Function, arguments: Sequence[int]) -> list[int]:
    return [_value(expression, arguments) for expression in function]


def _report(arguments: Sequence[int], now: Sequence[int], wanted: Sequence[int]) -> str:
    """What a test says of the results."""
    given = " ".join(f"{name} {value}" for name, value in zip(NAMES, arguments, strict=True))
    wrong = [f"{name} is {a}, not {b}" for name, a, b in zip(RESULTS, now, wanted, strict=True) if a != b]
    return f"{given}: {', '.join(wrong) or 'right'}"


def is_held_out_function(function: Function) -> bool:
    """Whether a right function belongs to the evaluation."""
    return crc32("/".join(function).encode()) % HELD_OUT_MODULUS == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A task's content."""

    right: Function
    line: int
    """The wrong line, from 0."""
    instead: str
    """The expression that stands there."""
    tests: tuple[tuple[list[int], list[int]], ...]
    """Arguments and results, the shown ones first."""

    @property
    def wrong(self) -> Function:
        """The function as it is shown."""
        return (*self.right[: self.line], self.instead, *self.right[self.line + 1 :])


def draw_repair(rng: Random, *, held_out: bool) -> Repair:
    """A right function, a wrong line, and tests: the wrong function fails a shown test at least."""
    while True:
        right = tuple(rng.choice(EXPRESSIONS) for _ in RESULTS)
        line, instead = rng.randrange(len(right)), rng.choice(EXPRESSIONS)
        arguments = [rng.sample(range(1, 10), len(NAMES)) for _ in range(SHOWN_TESTS + HIDDEN_TESTS)]
        fails = any(_value(instead, one) != _value(right[line], one) for one in arguments[:SHOWN_TESTS])
        if fails and is_held_out_function(right) == held_out:
            tests = tuple((one, _values(right, one)) for one in arguments)
            return Repair(right=right, line=line, instead=instead, tests=tests)


_ANSWER = re.compile(r"\s*([1-9])\s*:\s*(.+?)\s*")


def apply_answer(lines: Sequence[str], answer: str) -> list[str] | None:
    """The lines with the one that `NUMBER: LINE` writes anew; None where the answer has not this form."""
    found = _ANSWER.fullmatch(answer.strip())
    if found is None or int(found[1]) > len(lines) or "\n" in found[2]:
        return None
    number = int(found[1]) - 1
    return [*lines[:number], found[2], *lines[number + 1 :]]


@asynccontextmanager
async def repair_sandbox() -> AsyncIterator[Sandbox]:
    """An isolated sandbox for a batch of repairs. Raises SandboxFailure where this machine has none."""
    sandbox = await open_sandbox()
    try:
        yield sandbox
    finally:
        await sandbox.close()


class Repairs(SingleTurnEnvironment):
    """Repair one line so that all tests pass; the reward is 1 or 0.

    `teacher` looks at the first test that fails, and takes any expression that mends it: it is often wrong.
    """

    choose_by = "tests_passed/shown"
    prefixes = True

    def __init__(self, size: int = 5000, eval_size: int = 500):
        """`size` tasks for training, `eval_size` for evaluation."""
        if size < 1 or eval_size < 1:
            raise UsageError(f"size and eval_size are at least 1, not {size} and {eval_size}")
        self.size, self.eval_size = size, eval_size
        self.calls = FunctionCalls(repair_sandbox, seconds=1.0)
        super().__init__(rubric=Rubric(self.tests_passed))
        self.players = {"teacher": lambda: Scripted(self._teach)}

    def tasks(self, split: str = "train") -> list[Task]:
        """The tasks of `train` or `eval`, whose right functions differ. Raises UsageError for another split."""
        if split not in ("train", "eval"):
            raise UsageError(f"there is no split {split!r}: one of train, eval")
        count = self.size if split == "train" else self.eval_size
        return [self._task(split, number) for number in range(count)]

    def oracle(self, task: Task) -> Policy:
        """Writes the line that was there before."""
        return Scripted([task.answer["line"]])

    async def run(self, episode: Episode) -> None:
        """One answer, and the results of the repaired function in `episode.state["behaviour"]`."""
        task = episode.task
        calls = [arguments for arguments, _ in task.answer["tests"]]
        found: list[Any] = [None] * len(calls)
        episode.state.update(form=False, behaviour=found)
        answer = await episode.agent.act(*task.prompt)
        lines = apply_answer(task.info["lines"], answer.content)
        if lines is not None:
            found = await self.calls.results(write_function(lines), "f", calls)
        episode.state.update(form=lines is not None, behaviour=found)
        shown = [*zip(calls, found, strict=True)][: task.info["shown"]]
        report = [f"f{tuple(arguments)} is {'an error' if one is None else one[0]}" for arguments, one in shown]
        episode.state["feedback"] = "\n".join(report)

    def tests_passed(self, task: Task, state: Mapping[str, Any]) -> RewardResult:
        """1 when the repaired function passes every test."""
        tests, shown = task.answer["tests"], task.info["shown"]
        passed = [_is(result, wanted) for result, (_, wanted) in zip(state["behaviour"], tests, strict=True)]
        metrics = {"form": float(state["form"]), "shown": sum(passed[:shown]) / shown}
        return RewardResult(value=float(all(passed)), metrics=metrics)

    def _task(self, split: str, number: int) -> Task:
        repair = draw_repair(Random(f"repairs/{split}/{number}"), held_out=split == "eval")
        lines = _lines(repair.wrong)
        text = [f"{n}: {line}" for n, line in enumerate(lines, 1)]
        for arguments, wanted in repair.tests[:SHOWN_TESTS]:
            text.append(_report(arguments, _values(repair.wrong, arguments), wanted))
        return Task(
            id=f"{split}-{number}",
            prompt=(user("\n".join(text)),),
            answer={
                "line": f"{repair.line + 1}: {_lines(repair.right)[repair.line]}",
                "tests": [[arguments, wanted] for arguments, wanted in repair.tests],
            },
            info={"lines": lines, "shown": SHOWN_TESTS},
        )

    def _teach(self, messages: Sequence[Message], rng: Random) -> str:
        """Takes an expression that mends the first test that fails."""
        test = next(line for line in messages[0].content.splitlines() if " not " in line)
        *arguments, _, wanted = map(int, re.findall(r"-?\d+", test))
        name = test.partition(": ")[2][0]
        fitting = [one for one in EXPRESSIONS if _value(one, arguments) == wanted]
        return f"{RESULTS.index(name) + 1}: {name} = {rng.choice(fitting)}"


def _is(result: Any, wanted: list[int]) -> bool:
    """Whether a call gave this list of whole numbers; `True` is no 1."""
    if not isinstance(result, list) or not isinstance(result[0], list) or result[0] != wanted:
        return False
    return all(type(number) is int for number in result[0])
