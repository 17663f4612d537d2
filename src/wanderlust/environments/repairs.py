"""One-line repairs of small Python functions, judged by unit tests alone.

Each task shows a function of lists with one wrong line, and tests that the right function passes. The
answer names a line and writes it anew. The repaired function is run in a sandbox on the arguments of the shown tests
and of hidden ones; the reward is 1 when all results are right. A quarter of all right functions is held out: none of
them occurs in training.
"""

from __future__ import annotations

import ast
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias
from zlib import crc32

from wanderlust.environment import Episode, SingleTurnEnvironment
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.function_calls import FunctionCalls
from wanderlust.rubrics.rubric import RewardResult, Rubric
from wanderlust.tools.sandbox import Sandbox, SandboxBounds, open_sandbox
from wanderlust.types import Message, Policy, Task, user

EXPRESSIONS: Mapping[str, Callable[[list[int]], list[int]]] = {
    "s[::-1]": lambda s: s[::-1],
    "sorted(s)": sorted,
    "s[1:]": lambda s: s[1:],
    "s[:-1]": lambda s: s[:-1],
    "s[1:] + s[:1]": lambda s: s[1:] + s[:1],
    "s[-1:] + s[:-1]": lambda s: s[-1:] + s[:-1],
    "s + s[:1]": lambda s: s + s[:1],
    "s[-1:] + s": lambda s: s[-1:] + s,
    "s + [0]": lambda s: [*s, 0],
    "[0] + s": lambda s: [0, *s],
    "s[:2] + s[1:]": lambda s: s[:2] + s[1:],
    "s[:-1] + s[-2:]": lambda s: s[:-1] + s[-2:],
    "s[::2]": lambda s: s[::2],
    "s + s[::-1]": lambda s: s + s[::-1],
    "s[:1] + s[:0:-1]": lambda s: s[:1] + s[:0:-1],
    "s[-2::-1] + s[-1:]": lambda s: s[-2::-1] + s[-1:],
}
"""What a line may set `s` to."""
LINES = 3
MIN_LENGTH, MAX_LENGTH = 3, 5
"""Length of the lists in the tests."""
SHOWN_TESTS, HIDDEN_TESTS = 3, 9
HELD_OUT_MODULUS = 4
"""One of this many right functions is held out."""

Function: TypeAlias = tuple[str, ...]
"""The expressions of its lines."""
_TRIALS = tuple(Random("repairs").sample(range(1, 10), length) for length in (3, 4, 5, 5))


def write_line(expression: str) -> str:
    """The line as Python."""
    return f"s = {expression}"


def write_function(lines: Sequence[str]) -> str:
    """The whole function as Python."""
    return "".join(["def f(s):\n", *(f"    {line}\n" for line in lines), "    return s\n"])


def _value(function: Function, argument: Sequence[int]) -> list[int]:
    value = [*argument]
    for expression in function:
        value = EXPRESSIONS[expression](value)
    return value


def _behaviour(function: Function) -> tuple[tuple[int, ...], ...]:
    """Its results for lists without repeated numbers: functions of equal behaviour are equal."""
    return tuple(tuple(_value(function, trial)) for trial in _TRIALS)


def _edits(function: Function) -> Iterator[Function]:
    """All functions that differ from this one in one line."""
    for number, line in enumerate(function):
        for other in EXPRESSIONS:
            if other != line:
                yield (*function[:number], other, *function[number + 1 :])


def is_held_out(function: Function) -> bool:
    """Whether a right function belongs to the evaluation, decided by what it does."""
    return crc32(repr(_behaviour(function)).encode()) % HELD_OUT_MODULUS == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A task's content."""

    wrong: Function
    right: Function
    tests: tuple[tuple[list[int], list[int]], ...]
    """Arguments and results, the shown ones first."""


def draw_repair(rng: Random, *, held_out: bool) -> Repair:
    """A right function, a wrong one, and tests: the wrong one fails a shown test at least."""
    while True:
        right = tuple(rng.choice(list(EXPRESSIONS)) for _ in range(LINES))
        wrong = rng.choice(list(_edits(right)))
        if is_held_out(right) != held_out or _behaviour(wrong) == _behaviour(right):
            continue
        lengths = [rng.randint(MIN_LENGTH, MAX_LENGTH) for _ in range(SHOWN_TESTS + HIDDEN_TESTS)]
        arguments = [rng.sample(range(1, 10), length) for length in lengths]
        if any(_value(wrong, one) != _value(right, one) for one in arguments[:SHOWN_TESTS]):
            return Repair(wrong=wrong, right=right, tests=tuple((one, _value(right, one)) for one in arguments))


_ANSWER = re.compile(r"\s*([1-9])\s*:\s*(.+?)\s*")


def apply_answer(lines: Sequence[str], answer: str) -> list[str] | None:
    """The lines with the one that `NUMBER: LINE` writes anew; None where the answer has not this form."""
    found = _ANSWER.fullmatch(answer.strip())
    if found is None or int(found[1]) > len(lines) or "\n" in found[2]:
        return None
    number = int(found[1]) - 1
    return [*lines[:number], found[2], *lines[number + 1 :]]


@asynccontextmanager
async def repair_sandbox(bounds: SandboxBounds) -> AsyncIterator[Sandbox]:
    """An isolated sandbox for a batch of repairs. Raises SandboxFailure where this machine has none."""
    sandbox = await open_sandbox(bounds)
    try:
        yield sandbox
    finally:
        await sandbox.close()


class Repairs(SingleTurnEnvironment):
    """Repair one line so that all tests pass; the reward is 1 or 0.

    `teacher` tries edits in a random order and takes the first one that passes the first shown test: it is often wrong.
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
        calls = [[argument] for argument, _ in task.answer["tests"]]
        found: list[Any] = [None] * len(calls)
        episode.state.update(form=False, behaviour=found)
        answer = await episode.agent.act(*task.prompt)
        lines = apply_answer(task.info["lines"], answer.content)
        if lines is not None:
            found = await self.calls.results(write_function(lines), "f", calls)
        episode.state.update(form=lines is not None, behaviour=found)
        shown = [*zip(calls, found, strict=True)][: task.info["shown"]]
        report = [f"f({argument}) is {'an error' if one is None else one[0]}" for (argument,), one in shown]
        episode.state["feedback"] = "\n".join(report)

    def tests_passed(self, task: Task, state: Mapping[str, Any]) -> RewardResult:
        """1 when the repaired function passes every test."""
        tests, shown = task.answer["tests"], task.info["shown"]
        passed = [_is(result, wanted) for result, (_, wanted) in zip(state["behaviour"], tests, strict=True)]
        metrics = {"form": float(state["form"]), "shown": sum(passed[:shown]) / shown}
        return RewardResult(value=float(all(passed)), metrics=metrics)

    def _task(self, split: str, number: int) -> Task:
        repair = draw_repair(Random(f"repairs/{split}/{number}"), held_out=split == "eval")
        lines = [write_line(expression) for expression in repair.wrong]
        changed = next(n for n in range(LINES) if repair.wrong[n] != repair.right[n])
        shown = repair.tests[:SHOWN_TESTS]
        report = [f"f({argument}) == {wanted}, is {_value(repair.wrong, argument)}" for argument, wanted in shown]
        text = [*(f"{n}: {line}" for n, line in enumerate(lines, 1)), *report]
        return Task(
            id=f"{split}-{number}",
            prompt=(user("\n".join(text)),),
            answer={
                "line": f"{changed + 1}: {write_line(repair.right[changed])}",
                "tests": [[argument, wanted] for argument, wanted in repair.tests],
            },
            info={"lines": lines, "shown": SHOWN_TESTS},
        )

    def _teach(self, messages: Sequence[Message], rng: Random) -> str:
        lines = messages[0].content.splitlines()
        wrong = tuple(line.partition(" = ")[2] for line in lines[:LINES])
        argument, wanted = (ast.literal_eval(text) for text in re.findall(r"\[.*?\]", lines[LINES])[:2])
        edits = [*_edits(wrong)]
        rng.shuffle(edits)
        chosen = next((one for one in edits if _value(one, argument) == wanted), edits[0])
        number = next(n for n in range(LINES) if chosen[n] != wrong[n])
        return f"{number + 1}: {write_line(chosen[number])}"


def _is(result: Any, wanted: list[int]) -> bool:
    """Whether a call gave this list of whole numbers; `True` is no 1."""
    if not isinstance(result, list) or not isinstance(result[0], list) or result[0] != wanted:
        return False
    return all(type(number) is int for number in result[0])
