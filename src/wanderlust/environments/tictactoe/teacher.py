"""The scripted, imperfect teacher: reads the board from the text it is shown, answers in the asked form.

On each move it plays anywhere with probability `ERROR`; else, with probability `CAUTION`, as perfect play would,
and otherwise as pays best against a random opponent, which perfect play punishes. Exact shares as X, who opens half
of the games, found by dynamic programming, beside the published teacher's (100 games each):

| win / draw / loss in % | teacher             | published   |
|------------------------|---------------------|-------------|
| against random moves   | 89.45 / 7.51 / 3.04 | 90 / 9 / 1  |
| against perfect play   | 0 / 75.79 / 24.21   | 0 / 76 / 24 |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from random import Random

from wanderlust.core.messages import Message
from wanderlust.core.types import Rollout
from wanderlust.environments.tictactoe.rules import free, pick, uniform, wins
from wanderlust.environments.tictactoe.solution import Player, best_response, minimax_player, random_player
from wanderlust.environments.tictactoe.wording import board_in
from wanderlust.policies.scripted import Script, Scripted

ERROR = 0.08
"""Probability of a uniformly random legal move."""
CAUTION = 0.5
"""Probability of a minimax-best move, when there is no error."""

REASONS = ("win", "block", "open")
"""Every word that `reason` can say."""


def teacher_player(error: float = ERROR, caution: float = CAUTION) -> Player:
    """The teacher's distribution over moves."""
    parts = (
        (error, random_player),
        ((1 - error) * caution, minimax_player),
        ((1 - error) * (1 - caution), _daring()),
    )

    def moves(board: str) -> Mapping[int, float]:
        return {cell: sum(weight * part(board).get(cell, 0.0) for weight, part in parts) for cell in free(board)}

    return cache(moves)


class Mover(Scripted):
    """A scripted policy whose distribution over moves is known, so that its figures can be computed."""

    def __init__(self, script: Script, moves: Player):
        super().__init__(script)
        self.moves = moves


def teacher(error: float = ERROR, caution: float = CAUTION) -> Mover:
    """The teacher as a policy that plays X; it fails when the last message shows no board."""
    moves = teacher_player(error, caution)

    def answer(messages: Sequence[Message], rng: Random) -> str:
        board = board_in(messages[-1].content)
        if board is None:
            raise ValueError("the teacher finds no board in the last message")
        move = pick(moves(board), rng)
        return f"<think>{reason(board, move)}</think><move>{move}</move>"

    return Mover(answer, moves)


def reason(board: str, move: int) -> str:
    """One word that says what X's `move` does: it wins, it blocks a line of O, or neither."""
    if move in wins(board, "X"):
        return "win"
    return "block" if move in wins(board, "O") else "open"


def worth_learning(rollout: Rollout) -> bool:
    """Whether a teacher's game is kept for warm-up: won or drawn, and every message well-formed."""
    return rollout.state.get("winner") in ("X", "draw") and rollout.state["malformed"] == 0


@cache
def _daring() -> Player:
    return best_response(uniform)


def suggest(messages: Sequence[Message], rng: Random, nth: int) -> str | None:
    """A legal move with its reason, for exploration; None when the last message shows no board.

    Equal draws give another move for every `nth`, until there is no other.
    """
    board = board_in(messages[-1].content)
    if board is None:
        return None
    cells = list(free(board))
    rng.shuffle(cells)
    move = cells[nth % len(cells)]
    return f"<think>{reason(board, move)}</think><move>{move}</move>"
