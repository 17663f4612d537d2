"""The piece that moves follow, and the squares that it moves on: found by watching frames, and told by nobody."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from wanderlust_grids.cells import DOWN, FRAME, LEFT, RIGHT, UP
from wanderlust_grids.drawing import STATUS_ROWS, Frame
from wanderlust_grids.view import Blob, blobs

Square: TypeAlias = tuple[int, int]
"""Column and row of a lattice."""
Kind: TypeAlias = tuple[int, int, int]
"""Colours of a square in its middle, halfway to its corner and in its corner: squares of one kind look alike."""
Direction: TypeAlias = tuple[int, int]
OFFICIAL: dict[int, Direction] = {UP: (0, -1), DOWN: (0, 1), LEFT: (-1, 0), RIGHT: (1, 0)}
"""What the four moves are called; games may exchange them."""
MAX_SQUARES_A_MOVE = 12
FADING = 0.6
"""What an older move counts beside the next one: two moves another way show that an action goes there now."""
BOARD_ROWS = FRAME - STATUS_ROWS


@lru_cache(maxsize=512)
def pieces(frame: Frame) -> tuple[Blob, ...]:
    """All connected pieces of one colour."""
    return tuple(blobs(frame))


class Lattice(NamedTuple):
    """Squares of `step` pixels, the first of which begins at `left` and `top`."""

    step: int
    left: int
    top: int

    @classmethod
    def around(cls, piece: Blob, step: int) -> Lattice:
        """The squares in one of which a piece stands in the middle."""
        left, top = piece.x - (step - piece.width) // 2, piece.y - (step - piece.height) // 2
        return cls(step, left % step, top % step)

    def square(self, piece: Blob) -> Square:
        """The square that a piece stands on."""
        x, y = piece.x + piece.width // 2, piece.y + piece.height // 2
        return (x - self.left) // self.step, (y - self.top) // self.step

    def kind(self, frame: Frame, square: Square) -> Kind | None:
        """What a square looks like; None beyond the frame."""
        x, y = self.left + square[0] * self.step, self.top + square[1] * self.step
        if x < 0 or y < 0 or x + self.step > FRAME or y + self.step > BOARD_ROWS:
            return None
        half, quarter = self.step // 2, self.step // 4
        middle, halfway = frame[(y + half) * FRAME + x + half], frame[(y + quarter) * FRAME + x + quarter]
        return middle, halfway, frame[y * FRAME + x]

    def kinds(self, frame: Frame) -> Mapping[Square, Kind]:
        """What all squares look like."""
        return _kinds(self, frame)


@lru_cache(maxsize=256)
def _kinds(lattice: Lattice, frame: Frame) -> Mapping[Square, Kind]:
    columns, rows = (FRAME - lattice.left) // lattice.step, (BOARD_ROWS - lattice.top) // lattice.step
    found = {(x, y): lattice.kind(frame, (x, y)) for y in range(rows) for x in range(columns)}
    return {square: kind for square, kind in found.items() if kind is not None}


class Avatar:
    """The colour that moves as the actions say; learnt over all levels of a game.

    Each piece that a move has displaced speaks for its colour where it goes the same way after the same action, and
    a little where that is the action's name.
    """

    def __init__(self) -> None:
        self._displaced: dict[int, dict[int, Counter[Direction]]] = defaultdict(lambda: defaultdict(Counter))
        self._ways: dict[tuple[int, int], dict[Direction, float]] = defaultdict(dict)
        """By colour and action, how often pieces went which way, where later moves count more."""
        self._color = self._gap = -1
        self._size = (0, 0)

    def begin_level(self, frame: Frame) -> Lattice | None:
        """The squares of a new level, guessed from the avatar's size; None before its first move in the game."""
        piece = self.find(frame)
        return None if piece is None or self._gap < 0 else Lattice.around(piece, piece.width + self._gap)

    def direction(self, number: int) -> Direction:
        """Where an action moves the avatar."""
        seen = self._ways.get((self._color, number))
        return max(seen, key=seen.__getitem__) if seen else OFFICIAL[number]

    def find(self, frame: Frame) -> Blob | None:
        """The avatar in a frame; None where it is not known or not there."""
        own = [one for one in pieces(frame) if one.color == self._color and one.y < BOARD_ROWS]
        alike = [one for one in own if (one.width, one.height) == self._size]
        return min(alike or own, key=lambda one: one.pixels, default=None)

    def watch(self, before: Frame, after: Frame, *, number: int, lattice: Lattice | None) -> Lattice | None:
        """Learn from a move; returns the squares of the level, which may have been guessed wrongly before."""
        moves = displaced(before, after)
        for old, new in moves:
            way = _sign(new.x - old.x), _sign(new.y - old.y)
            self._displaced[old.color][number][way] += 1
            seen = self._ways[old.color, number]
            for known in seen:
                seen[known] *= FADING
            seen[way] = seen.get(way, 0.0) + 1
        color = max(self._displaced, key=lambda one: (self._agreement(one), -one), default=-1)
        if color != self._color:
            self._color, lattice = color, None
        for old, new in moves:
            if old.color == color:
                self._size = old.width, old.height
                distance = max(abs(new.x - old.x), abs(new.y - old.y))
                if lattice is None or distance % lattice.step:
                    lattice = Lattice.around(new, _step(distance, old.width))
                    self._gap = lattice.step - old.width
                break
        return lattice

    def _agreement(self, color: int) -> float:
        total = 0.0
        for number, seen in self._displaced[color].items():
            way, most = seen.most_common(1)[0]
            total += most - 0.7 * (seen.total() - most) + 0.3 * (way == OFFICIAL[number])
        return total


def displaced(before: Frame, after: Frame) -> list[tuple[Blob, Blob]]:
    """Pieces that are elsewhere now: of equal colour, size and pixels."""
    old, new = Counter(pieces(before)), Counter(pieces(after))
    come, found = [*(new - old).elements()], []
    for one in (old - new).elements():
        target = next((o for o in come if (o.color, *o[3:]) == (one.color, *one[3:])), None)
        if target is not None:
            found.append((one, target))
            come.remove(target)
    return found


def _step(distance: int, width: int) -> int:
    """The side of a square: what a move of some squares can be divided by, and just larger than the avatar."""
    sides = [distance // n for n in range(1, MAX_SQUARES_A_MOVE) if distance % n == 0]
    return next((side for side in sides if width <= side <= 2 * width + 1), max(distance, width))


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)
