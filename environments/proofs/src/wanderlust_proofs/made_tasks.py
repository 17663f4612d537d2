"""Small tasks that a policy makes: read, validated and graded by running them with `small_python`.

Four kinds. Of a program on `x` and an input, *deduction* asks for the output, *abduction* for an input with the same
output, *induction* for a program with the same outputs. *Arithmetic* asks for the value of an expression. A program is
some lines that change `x`, such as `x += 3`. Nothing here needs a sandbox, and equal texts have equal verdicts.

Not covered: whether a task is useful, or different enough from others for people. Two programs are taken as copies of
each other when their outputs agree on `PROBES`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Self
from zlib import crc32

from wanderlust_proofs.contract import Finding
from wanderlust_proofs.small_python import (
    ProgramError,
    SmallProgram,
    evaluate_expression,
    is_function,
    parse_expression,
    parse_program,
)

PROGRAM_KINDS = ("deduction", "abduction", "induction")
ARITHMETIC = "arithmetic"
TASK_KINDS = (*PROGRAM_KINDS, ARITHMETIC)
PROBES = tuple(range(10))
"""Inputs on which a program is run to see what it does."""
SHOWN = (0, 1, 5)
"""Inputs whose outputs an induction shows; those of the other probes are hidden."""
MAX_PROPOSAL_CHARS, MAX_LINES = 240, 8
MAX_VALUE = 999
"""Of a value that anybody has to read or write."""
MIN_OUTPUTS = 4
"""Different outputs on the probes that a program must have: guessing one of them is right in a fourth at most."""
HELD_OUT_MODULUS = 8
"""One of this many functions and expressions is kept for evaluations."""
_INPUT = re.compile(r"input (-?\d{1,3})")
_NUMBER = re.compile(r"-?\d{1,6}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTask:
    """A task as it was understood: what is not here has no effect.

    Example:
        >>> MadeTask(kind="deduction", text="x += 3\\nx *= 2", value=4).answer
        14
    """

    kind: str
    text: str
    """The program's lines or the expression, as Python writes them."""
    value: int = 0
    """The input of a program; 0 where there is none."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """From plain data, whose other keys are left out."""
        return cls(kind=str(data["kind"]), text=str(data["text"]), value=int(data["value"]))

    @property
    def answer(self) -> int:
        """The output, or the value of the expression. Raises ProgramError."""
        if self.kind == ARITHMETIC:
            return _whole(evaluate_expression(parse_expression(self.text), {}))
        return _whole(_program(self.text).run([self.value]))

    @property
    def function(self) -> str:
        """Digest of what the task is about: equal for programs with equal outputs. Raises ProgramError."""
        about = self.text if self.kind == ARITHMETIC else str(outputs(self.text))
        return blake2b(f"{self.kind}/{about}".encode(), digest_size=4).hexdigest()

    @property
    def shape(self) -> str:
        """Its kind and operations without the numbers, such as `deduction += *=`; bounded."""
        operations = re.findall(r"[-+*/%<>=]+|\b[a-w]+\b", self.text)
        return " ".join([self.kind, *operations])[:80]

    @property
    def held_out(self) -> bool:
        """Whether it belongs to the evaluations, in whichever kind of program. Raises ProgramError."""
        about = self.text if self.kind == ARITHMETIC else str(outputs(self.text))
        return crc32(about.encode()) % HELD_OUT_MODULUS == 0

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@lru_cache(maxsize=4096)
def outputs(text: str) -> tuple[int, ...]:
    """What a program's lines make of each probe. Raises ProgramError."""
    program = _program(text)
    return tuple(_whole(program.run([probe])) for probe in PROBES)


def read_proposal(kind: str, text: str) -> MadeTask:
    """Read what a proposer wrote. Raises ProgramError where it is no task of that kind."""
    if len(text) > MAX_PROPOSAL_CHARS:
        raise ProgramError(f"the task has more than {MAX_PROPOSAL_CHARS} characters")
    if kind == ARITHMETIC:
        return MadeTask(kind=kind, text=ast.unparse(_bounded(parse_expression(text))))
    lines = text.rstrip().splitlines()
    value = 0
    if kind != "induction":
        given = _INPUT.fullmatch(lines[-1].strip()) if lines else None
        if given is None:
            raise ProgramError("the last line is not `input` and a number")
        lines, value = lines[:-1], int(given[1])
    if not lines or len(lines) > MAX_LINES:
        raise ProgramError(f"the program has no line, or more than {MAX_LINES}")
    node = _program("\n".join(lines)).node
    if any(len(name) > 1 and not is_function(name) for name in _names(node)):
        raise ProgramError("a name has more than one letter")
    text = "\n".join(map(ast.unparse, node.body[:-1]))
    if any(type(one.value) is not int for one in _constants(node)):
        raise ProgramError("numbers are whole, and there is no text")
    return MadeTask(kind=kind, text=text, value=value)


def validate_task(task: MadeTask, known: Collection[str] = ()) -> list[Finding]:
    """What is wrong with a task; `known` has the functions of tasks that it must not repeat. Empty for a sound one."""
    try:
        answer, again, function = task.answer, task.answer, task.function
        trivial = _why_trivial(task)
        held_out = task.held_out
    except ProgramError as error:
        return [Finding(name="fails", why=str(error))]
    found = []
    if answer != again:
        found.append(Finding(name="random", why="two runs have different results"))
    if trivial:
        found.append(Finding(name="trivial", why=trivial))
    if function in known:
        found.append(Finding(name="copy", why="a task that is known does the same"))
    if held_out:
        found.append(Finding(name="held_out", why="it is kept for evaluations"))
    return found


def is_right(task: MadeTask, answer: str) -> bool:
    """Whether a solver's answer is right: the last number in it or, of an induction, the program."""
    try:
        if task.kind == "induction":
            return outputs(read_proposal(task.kind, answer).text) == outputs(task.text)
        numbers = _NUMBER.findall(answer)
        if not numbers:
            return False
        last = int(numbers[-1])
        return replace_value(task, last).answer == task.answer if task.kind == "abduction" else last == task.answer
    except ProgramError:
        return False


def replace_value(task: MadeTask, value: int) -> MadeTask:
    """The task with another input."""
    return MadeTask(kind=task.kind, text=task.text, value=value)


def _program(text: str) -> SmallProgram:
    body = "\n".join(f"    {line}" for line in text.splitlines())
    return parse_program(f"def f(x):\n{body}\n    return x")


def _whole(value: object) -> int:
    if type(value) is not int or abs(value) > MAX_VALUE:
        raise ProgramError(f"a result is no whole number from {-MAX_VALUE} to {MAX_VALUE}")
    return value


def _constants(node: ast.AST) -> list[ast.Constant]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Constant)]


def _names(node: ast.FunctionDef) -> Iterator[str]:
    """Every name that a program writes or reads."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id


def _bounded(node: ast.expr) -> ast.expr:
    """The expression. Raises ProgramError unless it is of whole numbers that anybody can read."""
    for one in _constants(node):
        _whole(one.value)
    return node


def _why_trivial(task: MadeTask) -> str:
    """Why everybody knows the answer; empty where that is not so. Raises ProgramError."""
    if task.kind != ARITHMETIC:
        different = len({*outputs(task.text)})
        if outputs(task.text) == PROBES:
            return "the program leaves x as it is"
        return f"the program has {different} outputs for {len(PROBES)} inputs" if different < MIN_OUTPUTS else ""
    node = parse_expression(task.text)
    numbers = _constants(node)
    if len(numbers) < 2:
        return "the expression is one number"
    return "a number in the expression has no effect" if _idle(node, numbers, task.answer) else ""


def _idle(node: ast.expr, numbers: Sequence[ast.Constant], value: int) -> bool:
    """Whether some number could be another one, and the value the same."""
    for one in numbers:
        before = one.value
        one.value = int(str(before)) + 1
        try:
            if evaluate_expression(node, {}) == value:
                return True
        except ProgramError:
            pass
        finally:
            one.value = before
    return False
