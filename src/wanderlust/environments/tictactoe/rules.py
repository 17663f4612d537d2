"""Tic-tac-toe itself: boards, perfect play, opponents as distributions over moves.

A board is a string of nine characters `X`, `O` and `.`, row by row. Either side may have opened, so a board
alone does not tell whose move it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from random import Random
from typing import Literal, TypeAlias

from wanderlust.errors import UsageError

Mark = Literal["X", "O"]
GameOutcome = Literal["X", "O", "draw"]
Opponent: TypeAlias = Callable[[str], Mapping[int, float]]
"""O's probability of each move on a board where O is to move."""

EMPTY_BOARD = "." * 9
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


@cache
def free(board: str) -> tuple[int, ...]:
    """The empty cells, ascending."""
    return tuple(cell for cell in range(9) if board[cell] == ".")


def place_mark(board: str, cell: int, mark: Mark) -> str:
    """The board after `mark` took `cell`."""
    return f"{board[:cell]}{mark}{board[cell + 1 :]}"


def board_after(moves: Iterable[str]) -> str:
    """The board after the moves (`X4`, `O0`, ...) of a whole game."""
    board = EMPTY_BOARD
    for move in moves:
        board = place_mark(board, int(move[1]), "X" if move[0] == "X" else "O")
    return board


@cache
def game_outcome(board: str) -> GameOutcome | None:
    """The mark with three in a row, `draw` on a full board, None while the game goes on."""
    marks: tuple[Mark, Mark] = ("X", "O")
    for mark in marks:
        if any(all(board[cell] == mark for cell in line) for line in LINES):
            return mark
    return None if "." in board else "draw"


def other_mark(mark: Mark) -> Mark:
    """The opposite side."""
    return "O" if mark == "X" else "X"


@cache
def minimax_value(board: str, mark: Mark) -> int:
    """The value of the board for X under perfect play with `mark` to move.

    1 + free cells left when X has won, -1 - free when O has, 0 for a draw: fast wins and slow losses count.
    """
    won = game_outcome(board)
    if won is not None:
        return 0 if won == "draw" else (1 if won == "X" else -1) * (1 + len(free(board)))
    values = [minimax_value(place_mark(board, cell, mark), other_mark(mark)) for cell in free(board)]
    return max(values) if mark == "X" else min(values)


@cache
def best_moves(board: str, mark: Mark) -> tuple[int, ...]:
    """Every minimax-best move of `mark`, ascending."""
    best = minimax_value(board, mark)
    return tuple(cell for cell in free(board) if minimax_value(place_mark(board, cell, mark), other_mark(mark)) == best)


@cache
def wins(board: str, mark: Mark) -> tuple[int, ...]:
    """Cells that complete a line of `mark` at once."""
    return tuple(cell for cell in free(board) if game_outcome(place_mark(board, cell, mark)) == mark)


@cache
def uniform_over(cells: tuple[int, ...]) -> Mapping[int, float]:
    """The uniform distribution over `cells`."""
    return dict.fromkeys(cells, 1 / len(cells))


def optimal_opponent(board: str) -> Mapping[int, float]:
    """O plays uniformly among its minimax-best moves."""
    return uniform_over(best_moves(board, "O"))


def uniform_opponent(board: str) -> Mapping[int, float]:
    """O plays uniformly among all free cells."""
    return uniform_over(free(board))


def greedy_opponent(board: str) -> Mapping[int, float]:
    """O wins if it can, else blocks if it must, else plays anywhere: it sees one move ahead only."""
    return uniform_over(wins(board, "O") or wins(board, "X") or free(board))


def mixed_opponent(random: float) -> Opponent:
    """O plays `uniform_opponent` with probability `random` on each move, else `optimal_opponent`."""

    def mixture(board: str) -> Mapping[int, float]:
        best, base = optimal_opponent(board), random / len(free(board))
        return {cell: base + (1 - random) * best.get(cell, 0.0) for cell in free(board)}

    return mixture


FIXED_OPPONENTS: Mapping[str, Opponent] = {
    "random": uniform_opponent,
    "optimal": optimal_opponent,
    "greedy": greedy_opponent,
}
"""The fixed opponents by name; `mixed_opponent` takes a number besides."""


def opponent_named(name: str, random: float = 0.5) -> Opponent:
    """The opponent called `name`; `random` counts for `mixed_opponent` only. Raises UsageError for an unknown name."""
    if name == "mixed":
        return mixed_opponent(random)
    if name not in FIXED_OPPONENTS:
        names = ("mixed", *FIXED_OPPONENTS)
        near = get_close_matches(name, names, n=1)
        raise UsageError(
            f"no tic-tac-toe opponent {name!r}" + (f": did you mean {near[0]!r}?" if near else f": one of {names}")
        )
    return FIXED_OPPONENTS[name]


def draw_move(moves: Mapping[int, float], rng: Random) -> int:
    """Draw one move."""
    point = rng.random()
    for cell, probability in moves.items():
        point -= probability
        if point < 0:
            return cell
    return cell  # rounding left a sliver above the last probability
