"""Tic-tac-toe as the course "llm-rl-environments-lil-course" (`environments/tictactoe`, e2118d0) rewards it.

Three things differ from `TicTacToe`: the first move tag of an answer counts, the form is met by a think block anywhere
before a move, and a game hears eight answers. The rewards of any transcript are the course's.
"""

from __future__ import annotations

import re

from wanderlust.environment import Limits
from wanderlust.environments.tictactoe.prompts import MAX_MOVE_CHARS, ParsedMove
from wanderlust.environments.tictactoe.single_player import TicTacToe

TAGS = ("<think>", "</think>", "<move>", "</move>")


def read_first(text: str) -> ParsedMove:
    """The first move in a message, and whether think and move tags stand in it in their order."""
    if len(text) > MAX_MOVE_CHARS:
        return ParsedMove(None, False)
    _, _, after = text.partition("<move>")
    inside, closed, _ = after.partition("</move>")
    cell = inside.strip()
    rest = text
    for tag in TAGS:
        _, found, rest = rest.partition(tag)
        if not found:
            break
    return ParsedMove(int(cell) if closed and re.fullmatch("[0-9]", cell) else None, bool(found))


class CourseTicTacToe(TicTacToe):
    """Tic-tac-toe as a course on RL environments rewards it.

    1 for a win, 0.5 for a draw, 0.2 for the form, -0.1 once for any refused answer.
    """

    limits = Limits(max_turns=8)
    read = staticmethod(read_first)

    def __init__(self, *, groups: int = 1, low: float = 0.0, high: float = 1.0, seed: int = 0):
        super().__init__(wording="course", groups=groups, low=low, high=high, seed=seed)
