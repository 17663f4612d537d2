"""Frames as text of at most MAX_TEXT_CHARS: objects, and what has changed. Knows nothing of the game's rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from wanderlust_grids.cells import FRAME
from wanderlust_grids.drawing import COLOR_NAMES, Frame

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
    rows = [frame[start : start + FRAME] for start in range(0, FRAME * FRAME, FRAME)]
    parent: list[int] = []
    strips: list[tuple[int, int, int, int, int]] = []
    above: list[int] = []
    top = 0
    for row, alike in groupby(rows):  # rows that look alike are one strip of runs
        bottom, here = top + len([*alike]), list[int]()
        for color, start, end in _runs(row):
            number = len(strips)
            parent.append(number)
            strips.append((color, start, end, top, bottom))
            here.append(number)
            for other in above:
                known, first, last, _, _ = strips[other]
                if first >= end:
                    break
                if known == color and start < last:
                    parent[_root(parent, number)] = _root(parent, other)
        above, top = here, bottom
    return _joined(strips, [_root(parent, number) for number in range(len(strips))])


@lru_cache(maxsize=4096)
def _runs(row: bytes) -> tuple[tuple[int, int, int], ...]:
    """Stretches of one colour in a row: colour, start and end."""
    found, start = [], 0
    for color, alike in groupby(row):
        end = start + len([*alike])
        found.append((color, start, end))
        start = end
    return tuple(found)


def _root(parent: list[int], number: int) -> int:
    while parent[number] != number:
        parent[number] = parent[parent[number]]
        number = parent[number]
    return number


def _joined(strips: Sequence[tuple[int, int, int, int, int]], roots: Sequence[int]) -> list[Blob]:
    boxes: dict[int, list[int]] = {}
    for (color, start, end, top, bottom), root in zip(strips, roots, strict=True):
        box = boxes.get(root)
        if box is None:
            boxes[root] = [color, start, top, end, bottom, (end - start) * (bottom - top)]
            continue
        box[1] = min(box[1], start)
        box[3] = max(box[3], end)
        box[4] = bottom
        box[5] += (end - start) * (bottom - top)
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
