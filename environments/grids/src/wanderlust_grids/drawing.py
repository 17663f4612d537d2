"""Frames of 64 x 64 pixels in 16 colours."""

from __future__ import annotations

import zlib
from functools import cache
from struct import pack
from typing import TypeAlias

from wanderlust_grids.cells import DOWN, FRAME, MOVES, RIGHT, UP

Frame: TypeAlias = bytes
"""Colours 0 to 15 of 64 x 64 pixels, row by row."""
WHITE, SILVER, GRAY, SLATE, COAL, BLACK, MAGENTA, PINK, RED, BLUE, SKY, YELLOW, ORANGE, MAROON, GREEN, PURPLE = range(
    16
)
PALETTE = (
    *("#ffffff", "#cccccc", "#999999", "#666666", "#333333", "#000000", "#e53aa3", "#ff7bcc", "#f93c31", "#1e93ff"),
    *("#88d8f1", "#ffdc00", "#ff851b", "#921231", "#4fcc30", "#a356d6"),
)
"""The sixteen colours as the official page shows them."""
COLOR_NAMES = (
    *("white", "silver", "gray", "slate", "coal", "black", "magenta", "pink", "red", "blue"),
    *("sky", "yellow", "orange", "maroon", "green", "purple"),
)
STATUS_ROWS = 4
"""Pixels at the bottom that are not of the board."""
FLOOR, WALL, AVATAR, EXIT = SILVER, COAL, BLUE, GREEN


def scale_of(size: int) -> int:
    """Pixels on a side of a cell."""
    return (FRAME - STATUS_ROWS) // size


def margin_of(size: int) -> tuple[int, int]:
    """Pixels left of and above the board."""
    rest = size * scale_of(size)
    return (FRAME - rest) // 2, (FRAME - STATUS_ROWS - rest) // 2


def cell_at(size: int, x: int, y: int) -> int:
    """The cell under a pixel; -1 beside the board."""
    (left, top), scale = margin_of(size), scale_of(size)
    column, row = (x - left) // scale, (y - top) // scale
    return row * size + column if 0 <= column < size and 0 <= row < size else -1


def pixel_of(size: int, cell: int) -> tuple[int, int]:
    """The pixel in the middle of a cell: x, y."""
    (left, top), scale = margin_of(size), scale_of(size)
    row, column = divmod(cell, size)
    return left + column * scale + scale // 2, top + row * scale + scale // 2


def png(frame: Frame, *, scale: int = 4) -> bytes:
    """A frame as a PNG file, each pixel `scale` times as wide and high."""
    rows = [frame[start : start + FRAME] for start in range(0, len(frame), FRAME)]
    wide = [b"\0" + bytes(color for color in row for _ in range(scale)) for row in rows]
    size = FRAME * scale
    chunks = {
        b"IHDR": pack(">IIBBBBB", size, size, 8, 3, 0, 0, 0),
        b"PLTE": b"".join(bytes.fromhex(color[1:]) for color in PALETTE),
        b"IDAT": zlib.compress(b"".join(row * scale for row in wide), 9),
        b"IEND": b"",
    }
    body = (pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data)) for kind, data in chunks.items())
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


@cache
def _background(size: int, walls: frozenset[int]) -> Frame:
    canvas = Canvas(size, bytearray([BLACK]) * (FRAME * FRAME))
    for cell in range(size * size):
        canvas.fill(cell, WALL if cell in walls else FLOOR)
    return canvas.frame()


class Canvas:
    """A frame that is being painted, by cells."""

    __slots__ = ("_left", "_pixels", "_top", "scale", "size")

    def __init__(self, size: int, pixels: bytearray):
        self.size, self.scale, self._pixels = size, scale_of(size), pixels
        self._left, self._top = margin_of(size)

    @classmethod
    def of(cls, size: int, walls: frozenset[int]) -> Canvas:
        """A board with its walls."""
        return cls(size, bytearray(_background(size, walls)))

    def frame(self) -> Frame:
        """What was painted."""
        return bytes(self._pixels)

    def fill(self, cell: int, color: int, inset: int = 0) -> None:
        """Paint a cell, `inset` pixels from its edges."""
        side = max(1, self.scale - 2 * inset)
        x, y = self._corner(cell)
        self.block(x + inset, y + inset, width=side, height=side, color=color)

    def dot(self, cell: int, color: int) -> None:
        """Paint the middle of a cell."""
        self.fill(cell, color, inset=self.scale // 3)

    def edge(self, cell: int, color: int, direction: int) -> None:
        """Paint the side of a cell in a direction."""
        (x, y), end = self._corner(cell), self.scale - 1
        wide = direction in (UP, DOWN)
        self.block(
            x + end * (direction == RIGHT),
            y + end * (direction == DOWN),
            width=self.scale if wide else 1,
            height=1 if wide else self.scale,
            color=color,
        )

    def ring(self, cell: int, color: int) -> None:
        """Paint the sides of a cell."""
        for direction in MOVES:
            self.edge(cell, color, direction)

    def stroke(self, cell: int, color: int, *, falling: bool) -> None:
        """Paint a diagonal of a cell: from top left, or from bottom left."""
        x, y = self._corner(cell)
        for n in range(self.scale):
            row = y + (n if falling else self.scale - 1 - n)
            self.block(x + max(0, n - 1), row, width=2 if n else 1, height=1, color=color)

    def bar(self, share: float, color: int) -> None:
        """Paint a share of the status rows."""
        filled = max(0, round(share * FRAME))
        self.block(0, FRAME - STATUS_ROWS + 1, width=FRAME, height=2, color=COAL)
        self.block(0, FRAME - STATUS_ROWS + 1, width=filled, height=2, color=color)

    def status(self, colors: tuple[int, ...]) -> None:
        """Paint small squares in the status rows."""
        for n, color in enumerate(colors):
            self.block(1 + 4 * n, FRAME - STATUS_ROWS + 1, width=2, height=2, color=color)

    def block(self, x: int, y: int, *, width: int, height: int, color: int) -> None:
        """Paint a rectangle of pixels."""
        row = bytes((color,)) * width
        for start in range(y * FRAME + x, (y + height) * FRAME + x, FRAME):
            self._pixels[start : start + width] = row

    def _corner(self, cell: int) -> tuple[int, int]:
        row, column = divmod(cell, self.size)
        return self._left + column * self.scale, self._top + row * self.scale
