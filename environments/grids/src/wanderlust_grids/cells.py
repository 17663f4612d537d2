"""Cells of a square board, numbered by rows, and the numbers of the official actions."""

from __future__ import annotations

from functools import cache

RESET, UP, DOWN, LEFT, RIGHT, INTERACT, CLICK, UNDO = range(8)
MOVES = (UP, DOWN, LEFT, RIGHT)
OUTSIDE = -1
"""Cell beyond the board; as start or exit: there is none."""
FRAME = 64
"""Pixels on a side of a frame."""


@cache
def neighbor_table(size: int) -> tuple[tuple[int, ...], ...]:
    """Per cell: itself, then the next cells up, down, left and right; OUTSIDE at the edge."""
    rows = []
    for cell in range(size * size):
        y, x = divmod(cell, size)
        up, down = cell - size if y else OUTSIDE, cell + size if y < size - 1 else OUTSIDE
        rows.append((cell, up, down, cell - 1 if x else OUTSIDE, cell + 1 if x < size - 1 else OUTSIDE))
    return tuple(rows)


def beside(size: int, cell: int) -> tuple[int, ...]:
    """The cells that touch a cell by a side."""
    return tuple(one for one in neighbor_table(size)[cell][1:] if one >= 0)
