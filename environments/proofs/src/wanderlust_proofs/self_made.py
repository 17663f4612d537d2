"""One player sets tasks that it then learns to solve: a proposer, a validator that runs the tasks, and a solver.

Source: Absolute Zero (arXiv 2505.03335). A proposed task is validated by `made_tasks.py`, then the solver
tries it a few times. The proposer is paid by how learnable that shows it to be. The solver learns in episodes of its
own, where siblings answer one task. Held-out tasks of fixed kinds, which no proposal may repeat, measure the truth.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Literal, TypeAlias

from wanderlust.environment import Environment, Episode, Limits
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Message, Policy, Rollout, Task, user
from wanderlust_proofs.contract import names_of
from wanderlust_proofs.made_tasks import (
    ARITHMETIC,
    SHOWN,
    TASK_KINDS,
    MadeTask,
    is_right,
    outputs,
    read_proposal,
    validate_task,
)
from wanderlust_proofs.self_made_curriculum import MADE_KEY
from wanderlust_proofs.small_python import ProgramError

Learnability: TypeAlias = Literal["variance", "one-minus-pass"]
MAX_TRIES = 16
REFUSED = -0.5
"""What a proposal costs that the validator refuses; one that is kept for evaluations, which nobody can know, is 0."""
OPERATORS = "++--*"
NUMBERS: Mapping[str, tuple[int, ...]] = {"+": (1, 2, 3, 4, 5), "-": (1, 2, 3, 4, 5), "*": (2, 3)}
"""What the scripted proposer and the held-out tasks add, take away and multiply by; a policy may write others."""
LINES = (1, 1, 1, 2, 2, 3)
"""Lines of a program that the scripted proposer writes, or operations of an expression, each alike."""
TRUTH_LINES = (1, 2, 3, 4)
"""The same of the held-out tasks, in turn."""
_PROGRAM_RULES = "a program of a few lines on x, like `x += 3`"
PROPOSE: Mapping[str, str] = {
    "deduction": f"Set a task: {_PROGRAM_RULES}, then `input` and a number. The solver finds x at the end.",
    "abduction": f"Set a task: {_PROGRAM_RULES}, then `input` and a number. The solver finds it from the result.",
    "induction": f"Set a task: {_PROGRAM_RULES}. The solver writes it from its results.",
    ARITHMETIC: "Set a task: an expression of whole numbers, like `12 + 7`. The solver finds its value.",
}


def learnability(rate: float, kind: Learnability) -> float:
    """What a task is worth to learn from: 4 p (1 - p), or 1 - p as in Absolute Zero; 0 where all or none are right."""
    if rate in (0, 1):
        return 0.0
    return 1 - rate if kind == "one-minus-pass" else 4 * rate * (1 - rate)


def question(made: MadeTask) -> str:
    """What the solver is asked. Raises ProgramError."""
    match made.kind:
        case "deduction":
            return f"What is x after this? End with the number.\ninput {made.value}\n{made.text}"
        case "abduction":
            return f"Which input gives {made.answer}? End with the number.\n{made.text}"
        case "induction":
            results = outputs(made.text)
            shown = "\n".join(f"{value} gives {results[value]}" for value in SHOWN)
            return f"Write a program of a few lines on x, like `x += 3`, that does this.\n{shown}"
        case _:
            return f"What is this? End with the number.\n{made.text}"


def proposal_text(made: MadeTask) -> str:
    """The answer of a proposer who sets this task."""
    return made.text if made.kind in ("induction", ARITHMETIC) else f"{made.text}\ninput {made.value}"


def draw_task(rng: Random, kind: str, *, lines: int, held_out: bool) -> MadeTask:
    """A sound task of so many lines, of those that are held out or of the others."""
    while True:
        steps = [(one, rng.choice(NUMBERS[one])) for one in rng.choices(OPERATORS, k=lines)]
        if kind == ARITHMETIC:
            text = str(rng.randint(1, 20)) + "".join(f" {operator} {number}" for operator, number in steps)
            made = read_proposal(kind, text)
        else:
            text = "\n".join(f"x {operator}= {number}" for operator, number in steps)
            made = MadeTask(kind=kind, text=text, value=rng.randint(0, 9) if kind != "induction" else 0)
        if names_of(validate_task(made)) == (["held_out"] if held_out else []):
            return made


class SelfMadeTasks(Environment):
    """Two seats of one player: the proposer sets a task, which the solver tries; or the solver answers one.

    A task of `train` asks for a proposal, or for an answer to a task of a scripted proposer; the curriculum `self-made`
    asks for proposals beside the buffer, and for answers to what is in it. `eval` has held-out tasks for the solver.

    `rollout.state["made"]` has a proposal as it was understood, the share of right tries (None where it was refused),
    and what the validator says.
    """

    seats = ("proposer", "solver")
    limits = Limits(max_turns=MAX_TRIES)
    group_by = "kind"
    task_kinds: Sequence[str] = TASK_KINDS

    def __init__(
        self,
        size: int = 4000,
        eval_size: int = 240,
        *,
        propose: float = 0.25,
        tries: int = 4,
        worth: Learnability = "variance",
    ):
        """`propose` is the share of tasks of `train` that ask for a proposal; the solver makes `tries` at each."""
        if size < 1 or eval_size < 1 or not 0 <= propose <= 1 or not 2 <= tries <= MAX_TRIES:
            raise UsageError(
                f"self-made: size and eval_size are at least 1, propose is 0 to 1, tries are 2 to {MAX_TRIES}"
            )
        if worth not in ("variance", "one-minus-pass"):
            raise UsageError(f"self-made: worth is variance or one-minus-pass, not {worth!r}")
        self.size, self.eval_size, self.propose, self.tries, self.worth = size, eval_size, propose, tries, worth
        self.rubric = Rubric(self.right, self.learnable, self.copied)
        self.players: Mapping[str, Callable[[], Policy]] = {"teacher": lambda: Scripted(teach)}

    def tasks(self, split: str = "train") -> list[Task]:
        """The tasks of `train` or `eval`. Raises UsageError for another split."""
        if split not in ("train", "eval"):
            raise UsageError(f"there is no split {split!r}: one of train, eval")
        return [self._task(split, number) for number in range(self.size if split == "train" else self.eval_size)]

    def _task(self, split: str, number: int) -> Task:
        rng, kind = Random(f"self-made/{split}/{number}"), TASK_KINDS[number % len(TASK_KINDS)]
        if split == "eval":
            lines = TRUTH_LINES[number // len(TASK_KINDS) % len(TRUTH_LINES)]
            made = draw_task(rng, kind, lines=lines, held_out=True)
            return self._practice(f"eval-{number}", made, {"lines": lines})
        if rng.random() < self.propose:
            drawn = [draw_task(rng, kind, lines=rng.choice(LINES), held_out=False) for _ in range(2)]
            return self.proposal_task(number, kind=kind, beside=[one.as_dict() for one in drawn], known=())
        made = draw_task(rng, kind, lines=rng.choice(LINES), held_out=False)
        return self._practice(f"train-{number}", made, {})

    def _practice(self, id: str, made: MadeTask, more: Mapping[str, Any]) -> Task:
        return Task(id=id, prompt=(user(question(made)),), info={"kind": made.kind, MADE_KEY: made.as_dict(), **more})

    def practice_task(self, made: Mapping[str, Any]) -> Task:
        """The task of solving one that was proposed."""
        task = MadeTask.of(made)
        info = {"kind": task.kind, MADE_KEY: dict(made)}
        return Task(id=f"made-{made['function']}", prompt=(user(question(task)),), info=info)

    def proposal_task(
        self, number: int, *, kind: str, beside: Sequence[Mapping[str, Any]], known: Sequence[str]
    ) -> Task:
        """The task of proposing one; `beside` are shown, `known` the functions of all that must not be repeated."""
        shown = "\n\n".join(proposal_text(MadeTask.of(one)) for one in beside)
        prompt = f"{PROPOSE[kind]} Unlike these:\n{shown}" if shown else PROPOSE[kind]
        return Task(id=f"propose-{number}", prompt=(user(prompt),), info={"kind": kind, "known": list(known)})

    def oracle(self, task: Task) -> Policy:
        """Solves what it is asked as a solver, without a slip, and proposes as the teacher does."""
        return Scripted(lambda messages, rng: teach(messages, rng, slip=0.0))

    async def run(self, episode: Episode) -> None:
        """An answer to a task, or a proposal and the solver's tries at it."""
        proposer, solver = episode.agents["proposer"], episode.agents["solver"]
        info = episode.task.info
        episode.state.update(right=0.0)
        if MADE_KEY in info:
            proposer.trajectory.trainable = False
            answer = await solver.act(*episode.task.prompt)
            episode.state.update(right=float(is_right(MadeTask.of(info[MADE_KEY]), answer.content)))
            return
        solver.trajectory.trainable = (
            False  # its tries tell what the task is worth; it learns where siblings answer one
        )
        text = (await proposer.act(*episode.task.prompt)).content
        made, findings = _validated(info["kind"], text, info["known"])
        state: dict[str, Any] = {**made, "rate": None, "findings": findings}
        episode.state[MADE_KEY] = state
        if not findings:
            task = MadeTask.of(made)
            ask = user(question(task))
            answers = [await solver.act_with_context([ask]) for _ in range(self.tries)]
            state["rate"] = sum(is_right(task, one.content) for one in answers) / self.tries
            episode.state.update(right=state["rate"])

    def right(self, seat: str, state: Mapping[str, Any]) -> float:
        """The solver's share of right answers."""
        return float(state["right"]) if seat == "solver" else 0.0

    def learnable(self, seat: str, state: Mapping[str, Any]) -> float:
        """What the proposer's task is worth; less than nothing where the validator refused it."""
        made = state.get(MADE_KEY)
        if seat != "proposer" or made is None:
            return 0.0
        if made["rate"] is not None:
            return learnability(made["rate"], self.worth)
        return 0.0 if [one["name"] for one in made["findings"]] == ["held_out"] else REFUSED

    def copied(self, seat: str, rollouts: Sequence[Rollout]) -> list[float]:
        """Less than nothing where siblings propose the same: together they are paid for one task."""
        made = [rollout.state.get(MADE_KEY) for rollout in rollouts]
        if seat != "proposer" or all(one is None for one in made):
            return [0.0] * len(rollouts)
        copies = Counter(one["function"] for one in made if one is not None and one["rate"] is not None)
        return [
            -learnability(one["rate"], self.worth) * (1 - 1 / copies[one["function"]])
            if one is not None and one["rate"] is not None
            else 0.0
            for one in made
        ]


def _validated(kind: str, text: str, known: Sequence[str]) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """A proposal as plain data, and what is wrong with it."""
    try:
        made = read_proposal(kind, text)
    except ProgramError as error:
        return {"kind": kind}, [{"name": "malformed", "why": str(error)}]
    findings = [{"name": one.name, "why": one.why} for one in validate_task(made, known)]
    if findings:
        return made.as_dict(), findings
    return {**made.as_dict(), "function": made.function, "shape": made.shape}, []


def teach(messages: Sequence[Message], rng: Random, *, slip: float = 0.15) -> str:
    """Plays both seats: proposes short programs, and solves step by step with a wrong number now and then."""
    text = messages[-1].content
    for kind, ask in PROPOSE.items():
        if text.startswith(ask):
            return proposal_text(draw_task(rng, kind, lines=rng.choice(LINES), held_out=False))
    head, _, rest = text.partition("\n")
    numbers = _solve(head, rest)
    if isinstance(numbers, str):
        return re.sub(r"\d$", lambda _: str(rng.randint(1, 9)), numbers) if rng.random() < slip else numbers
    if rng.random() < slip:
        at = rng.randrange(len(numbers))
        numbers = [*numbers[:at], *(one + rng.choice((-1, 1, 2)) for one in numbers[at:])]
    return " ".join(map(str, numbers))


def _solve(head: str, rest: str) -> list[int] | str:
    """The numbers on the way to an answer, the answer last; of an induction the program."""
    if head.startswith("Write"):
        zero, one, _ = (int(line.split(" gives ")[1]) for line in rest.splitlines())
        return _line_program(one - zero, zero)
    if head.startswith("Which"):
        value = int(re.findall(r"-?\d+", head)[0])
        numbers = [value]
        for operator, number in reversed(_steps(rest)):
            value = {"+": value - number, "-": value + number, "*": value // number}[operator]
            numbers.append(value)
        return numbers
    if head.startswith("What is this"):
        return [MadeTask(kind=ARITHMETIC, text=rest[:end]).answer for end in _ends(rest)]
    given, _, program = rest.partition("\n")
    value, numbers = int(given.removeprefix("input ")), []
    for operator, number in _steps(program):
        value = {"+": value + number, "-": value - number, "*": value * number}[operator]
        numbers.append(value)
    return numbers


def _ends(expression: str) -> list[int]:
    """Where the beginnings of an expression end that are expressions, the whole last."""
    return [found.end() for found in re.finditer(r"\d+", expression)][1:]


def _steps(program: str) -> list[tuple[str, int]]:
    return [(operator, int(number)) for operator, number in re.findall(r"x ([-+*])= (\d+)", program)]


def _line_program(slope: int, offset: int) -> str:
    """A program for slope * x + offset, a product of digits times x and a number."""
    lines = []
    for factor in range(9, 1, -1):
        while slope > 1 and slope % factor == 0:
            lines.append(f"x *= {factor}")
            slope //= factor
    parts = [offset] if abs(offset) > 18 else [max(-9, min(9, offset)), offset - max(-9, min(9, offset))]
    lines += [f"x {'+' if part > 0 else '-'}= {abs(part)}" for part in parts if part]
    return "\n".join(lines) or "x += 0"
