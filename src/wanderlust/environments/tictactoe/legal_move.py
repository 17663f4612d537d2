"""One legal move, after two examples: what a small pretrained model learns in minutes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from random import Random

from wanderlust.environment import Limits, SingleTurnEnvironment
from wanderlust.environments.tictactoe.rules import EMPTY, free, other, outcome, place
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Message, Policy, Task, assistant, system, user

RULES = (
    "Tic-tac-toe. You are X. Take one of the numbered cells, which are free. Answer with its number inside move tags."
)
MOVE = re.compile(r"<move>([1-9])</move>")
EXAMPLES: tuple[Message, ...] = (
    system(RULES),
    *(user("X 2 O\n4 X 6\n7 8 O"), assistant("<move>6</move>")),
    *(user("1 2 3\nO X 6\n7 O X"), assistant("<move>1</move>")),
)
EVAL = 100
"""Boards of the `eval` split."""


def shown(board: str) -> str:
    """The board in three lines; free cells are numbers from 1 to 9."""
    cells = [str(n + 1) if mark == "." else mark for n, mark in enumerate(board)]
    return "\n".join(" ".join(cells[row : row + 3]) for row in (0, 3, 6))


def drawn(rng: Random) -> str:
    """A board that is not decided, with two to six marks on it, O to have moved last."""
    while True:
        board, mark = EMPTY, "X" if rng.random() < 0.5 else "O"
        for _ in range(rng.choice((2, 4, 6)) if mark == "X" else rng.choice((3, 5))):
            board = place(board, rng.choice(free(board)), mark)  # type: ignore[arg-type]
            mark = other(mark)  # type: ignore[arg-type]
        if outcome(board) is None:
            return board


def legal(completion: str, task: Task) -> float:
    """1 when the whole answer is a free cell in its tags."""
    found = MOVE.fullmatch(completion.strip())
    return float(found is not None and int(found[1]) - 1 in free(task.info["board"]))


def format(completion: str) -> float:
    """0.2 for a digit in its tags, whatever stands around them."""
    return 0.2 * (MOVE.search(completion) is not None)


class LegalMove(SingleTurnEnvironment):
    """One legal move of tic-tac-toe, after two examples.

    Boards are drawn by number: `train` is endless, and none of its boards' draws are those of `eval`.
    """

    limits = Limits(max_turns=1)
    rubric = Rubric(legal, format)

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """Boards with two examples before them."""
        for n in count() if split == "train" else range(EVAL):
            rng = Random(f"legal/{split}/{n}")
            board = drawn(rng)
            yield Task(id=f"{split}-{n}", prompt=(*EXAMPLES, user(shown(board))), info={"board": board})

    def oracle(self, task: Task) -> Policy:
        """Takes the first free cell."""
        answer = f"<move>{free(task.info['board'])[0] + 1}</move>"
        return Scripted(lambda _messages, _rng: answer)  # lines would be counted from the examples on
