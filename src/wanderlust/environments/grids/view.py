"""Frames as text of at most MAX_TEXT_CHARS: objects, and what has changed. Knows nothing of the game's rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from wanderlust.environments.grids.cells import FRAME
from wanderlust.environments.grids.drawing import COLOR_NAMES, Frame

MAX_OBJECTS = 24
"""Objects or changes that a text lists."""
MAX_TEXT_CHARS = 900
"""Of one text: about 400 tokens, as numbers take a token a digit."""


class Blob(NamedTuple):
    """A connected piece of one colour."""

    color: int
    x: int
    y: int
    width: int
    height: int
    pixels: int

    def __str__(self) -> str:
        shape = "" if self.pixels == self.width * self.height else f" ({self.pixels} pixels)"
        return f"{COLOR_NAMES[self.color]} {self.width}x{self.height}{shape} at {self.x},{self.y}"


def blobs(frame: Frame) -> list[Blob]:
    """All connected pieces of one colour, by sides, from the top left one on."""
    parent: list[int] = []
    runs: list[tuple[int, int, int, int]] = []
    above: list[int] = []
    for y in range(FRAME):
        row, here = frame[y * FRAME : (y + 1) * FRAME], list[int]()
        for start, end in _runs(row):
            number = len(runs)
            parent.append(number)
            runs.append((row[start], y, start, end))
            here.append(number)
            for other in above:
                color, _, first, last = runs[other]
                if color == row[start] and first < end and start < last:
                    parent[_root(parent, number)] = _root(parent, other)
        above = here
    return _joined(runs, [_root(parent, number) for number in range(len(runs))])


def _runs(row: bytes) -> Iterator[tuple[int, int]]:
    start = 0
    for x in range(1, FRAME + 1):
        if x == FRAME or row[x] != row[start]:
            yield start, x
            start = x


def _root(parent: list[int], number: int) -> int:
    while parent[number] != number:
        parent[number] = parent[parent[number]]
        number = parent[number]
    return number


def _joined(runs: Sequence[tuple[int, int, int, int]], roots: Sequence[int]) -> list[Blob]:
    boxes: dict[int, list[int]] = {}
    for (color, y, start, end), root in zip(runs, roots, strict=True):
        box = boxes.setdefault(root, [color, start, y, end, y + 1, 0])
        box[1], box[3], box[4] = min(box[1], start), max(box[3], end), max(box[4], y + 1)
        box[5] += end - start
    return sorted(
        (Blob(color, x, y, right - x, bottom - y, pixels) for color, x, y, right, bottom, pixels in boxes.values()),
        key=lambda one: (one.y, one.x),
    )


def describe(frame: Frame) -> str:
    """The objects of a frame: every piece that is not of one of the two commonest colours, then the larger rest."""
    found = blobs(frame)
    common = [color for color, _ in Counter(frame).most_common(2)]
    rest = [one for one in found if one.color not in common]
    ground = sorted((one for one in found if one.color in common), key=lambda one: -one.pixels)
    return _clipped("objects: ", [str(one) for one in (*rest, *ground)])


def describe_change(before: Frame, after: Frame) -> str:
    """What has moved, gone, come or changed its colour."""
    if before == after:
        return "nothing changed"
    old, new = Counter(blobs(before)), Counter(blobs(after))
    gone, come = list((old - new).elements()), list((new - old).elements())
    lines = []
    for one in [*gone]:
        like = (one.color, one.width, one.height, one.pixels)
        target = next((o for o in come if (o.color, o.width, o.height, o.pixels) == like), None)
        if target is not None:
            lines.append(f"moved: {one} to {target.x},{target.y}")
            gone.remove(one)
            come.remove(target)
    for one in [*gone]:
        target = next((o for o in come if o[1:] == one[1:]), None)
        if target is not None:
            lines.append(f"recoloured: {one} to {COLOR_NAMES[target.color]}")
            gone.remove(one)
            come.remove(target)
    lines += [f"gone: {one}" for one in gone] + [f"new: {one}" for one in come]
    return _clipped("", lines)


def _clipped(head: str, lines: Iterable[str]) -> str:
    """As many lines as there is room for, and how many are left out."""
    rest, text, count = [*lines], head, 0
    while rest and count < MAX_OBJECTS and len(text) + len(rest[0]) < MAX_TEXT_CHARS:
        text += ("; " if count else "") + rest.pop(0)
        count += 1
    return f"{text}; and {len(rest)} more" if rest else text
