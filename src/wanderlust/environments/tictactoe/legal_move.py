"""One legal move, after two examples: what a small pretrained model learns in minutes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from random import Random

from wanderlust.environment import Limits, SingleTurnEnvironment
from wanderlust.environments.tictactoe.rules import EMPTY_BOARD, free, game_outcome, other_mark, place_mark
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Reward, Rubric
from wanderlust.types import Message, Policy, Task, assistant, system, user

LEGAL_MOVE_RULES = (
    "Tic-tac-toe. You are X. Take one of the numbered cells, which are free. Answer with its number inside move tags."
)
LEGAL_MOVE_PATTERN = re.compile(r"<move>([1-9])</move>")
LEGAL_MOVE_EXAMPLES: tuple[Message, ...] = (
    system(LEGAL_MOVE_RULES),
    *(user("X 2 O\n4 X 6\n7 8 O"), assistant("<move>6</move>")),
    *(user("1 2 3\nO X 6\n7 O X"), assistant("<move>1</move>")),
)
LEGAL_MOVE_EVAL_TASKS = 100
"""Boards of the `eval` split."""


def render_numbered_board(board: str) -> str:
    """The board in three lines; free cells are numbers from 1 to 9."""
    cells = [str(n + 1) if mark == "." else mark for n, mark in enumerate(board)]
    return "\n".join(" ".join(cells[row : row + 3]) for row in (0, 3, 6))


def draw_board(rng: Random) -> str:
    """A board that is not decided, with two to six marks on it, O to have moved last."""
    while True:
        board, mark = EMPTY_BOARD, "X" if rng.random() < 0.5 else "O"
        for _ in range(rng.choice((2, 4, 6)) if mark == "X" else rng.choice((3, 5))):
            board = place_mark(board, rng.choice(free(board)), mark)  # type: ignore[arg-type]
            mark = other_mark(mark)  # type: ignore[arg-type]
        if game_outcome(board) is None:
            return board


def legal(completion: str, task: Task) -> float:
    """1 when the whole answer is a free cell in its tags."""
    match = LEGAL_MOVE_PATTERN.fullmatch(completion.strip())
    return float(match is not None and int(match[1]) - 1 in free(task.info["board"]))


def move_format(completion: str) -> float:
    """0.2 for a digit in its tags, whatever stands around them."""
    return 0.2 * (LEGAL_MOVE_PATTERN.search(completion) is not None)


class LegalMove(SingleTurnEnvironment):
    """One legal move of tic-tac-toe, after two examples.

    Boards are drawn by number: `train` is endless, and none of its boards' draws are those of `eval`.
    """

    limits = Limits(max_turns=1)
    rubric = Rubric(legal, Reward(move_format, name="format"))

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """Boards with two examples before them."""
        for n in count() if split == "train" else range(LEGAL_MOVE_EVAL_TASKS):
            rng = Random(f"legal/{split}/{n}")
            board = draw_board(rng)
            yield Task(
                id=f"{split}-{n}",
                prompt=(*LEGAL_MOVE_EXAMPLES, user(render_numbered_board(board))),
                info={"board": board},
            )

    def oracle(self, task: Task) -> Policy:
        """Takes the first free cell."""
        answer = f"<move>{free(task.info['board'])[0] + 1}</move>"
        return Scripted(lambda _messages, _rng: answer)  # lines would be counted from the examples on
