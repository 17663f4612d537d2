"""Mechanics of games without an avatar: a board on which cells are clicked. Each is a game by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from wanderlust_grids.board import GridTurn, Level, Mechanic
from wanderlust_grids.cells import CLICK, DOWN, LEFT, OUTSIDE, RIGHT, UP, beside, neighbor_table
from wanderlust_grids.drafts import Draft
from wanderlust_grids.drawing import (
    BLACK,
    BLUE,
    COAL,
    FLOOR,
    GREEN,
    ORANGE,
    PINK,
    RED,
    SLATE,
    WHITE,
    YELLOW,
    Canvas,
)

FLOOD_COLORS = (RED, BLUE, YELLOW, GREEN)
TILE_COLORS = (ORANGE, BLUE)


class _Puzzle(Mechanic):
    """A board that is clicked."""

    walks = False
    actions: ClassVar[tuple[int, ...]] = (CLICK,)

    def clickable(self, placed: Any) -> Sequence[int]:
        return sorted(self.cells(placed))

    def cells(self, placed: Any) -> Sequence[int]:
        """The cells that can be clicked."""
        raise NotImplementedError


def _block(draft: Draft, width: int, height: int) -> list[int]:
    """A rectangle of cells, somewhere on the board."""
    left, top = draft.rng.randrange(draft.size - width + 1), draft.rng.randrange(draft.size - height + 1)
    return [(top + y) * draft.size + left + x for y in range(height) for x in range(width)]


class Lights(_Puzzle):
    """A click switches a lamp and those beside it; all must be dark. Part: bits of the lamps that are lit."""

    name = "lights"

    def place(self, draft: Draft) -> Any:
        width, height = ((3, 2), (3, 3), (4, 3))[draft.difficulty - 1]
        lamps = tuple(_block(draft, width, height))
        masks = tuple(
            sum(1 << n for n, other in enumerate(lamps) if other == lamp or other in beside(draft.size, lamp))
            for lamp in lamps
        )
        lit = 0
        for number in draft.rng.sample(range(len(lamps)), min(len(lamps), 1 + draft.difficulty)):
            lit ^= masks[number]
        return (lamps, masks, lit) if lit else None

    def begin(self, placed: Any) -> Any:
        return placed[2]

    def click(self, turn: GridTurn, placed: Any, cell: int) -> None:
        if cell in placed[0]:
            turn.parts[self.index] ^= placed[1][placed[0].index(cell)]

    def satisfied(self, level: Level, part: Any) -> bool:
        return not part

    def cells(self, placed: Any) -> Sequence[int]:
        return placed[0]  # type: ignore[no-any-return]

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        for number, cell in enumerate(placed[0]):
            canvas.fill(cell, YELLOW if part >> number & 1 else SLATE, inset=1)


class Flood(_Puzzle):
    """A click gives the area of the marked corner the colour that was clicked; all must be of one. Part: colours."""

    name = "flood"

    def place(self, draft: Draft) -> Any:
        side, colors = 2 + draft.difficulty, 3 if draft.difficulty < 3 else 4
        cells = tuple(_block(draft, side, side))
        return (cells, tuple(draft.rng.randrange(colors) for _ in cells))

    def begin(self, placed: Any) -> Any:
        return placed[1]

    def click(self, turn: GridTurn, placed: Any, cell: int) -> None:
        cells, _ = placed
        part: tuple[int, ...] = turn.parts[self.index]
        if cell not in cells or part[cells.index(cell)] == part[0]:
            return
        color, old, where = part[cells.index(cell)], part[0], {one: n for n, one in enumerate(cells)}
        area, edge = {cells[0]}, [cells[0]]
        while edge:
            for one in beside(turn.level.size, edge.pop()):
                if one in where and one not in area and part[where[one]] == old:
                    area.add(one)
                    edge.append(one)
        turn.parts[self.index] = tuple(color if one in area else part[n] for n, one in enumerate(cells))

    def satisfied(self, level: Level, part: Any) -> bool:
        return len({*part}) == 1

    def cells(self, placed: Any) -> Sequence[int]:
        return placed[0]  # type: ignore[no-any-return]

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        for cell, color in zip(placed[0], part, strict=True):
            canvas.fill(cell, FLOOD_COLORS[color])
        canvas.dot(placed[0][0], WHITE)


class Tiles(_Puzzle):
    """A click slides a tile into the hole beside it; colours must be as the small picture shows. Part: colours."""

    name = "tiles"

    def place(self, draft: Draft) -> Any:
        width, height = ((2, 2), (3, 2), (3, 3))[draft.difficulty - 1]
        cells = tuple(_block(draft, width, height))
        colors = [n % 2 for n in range(len(cells) - 1)]
        draft.rng.shuffle(colors)
        goal = (*colors, OUTSIDE)
        part, hole = [*goal], len(cells) - 1
        for _ in range(6 * draft.difficulty):
            table = neighbor_table(draft.size)[cells[hole]]
            new = cells.index(draft.rng.choice([one for one in table[1:] if one in cells]))
            part[hole], part[new], hole = part[new], OUTSIDE, new
        return None if tuple(part) == goal else (cells, tuple(part), goal, width)

    def begin(self, placed: Any) -> Any:
        return placed[1]

    def click(self, turn: GridTurn, placed: Any, cell: int) -> None:
        cells, part = placed[0], [*turn.parts[self.index]]
        hole = part.index(OUTSIDE)
        if cell in beside(turn.level.size, cells[hole]) and cell in cells:
            number = cells.index(cell)
            part[hole], part[number] = part[number], OUTSIDE
            turn.parts[self.index] = tuple(part)

    def satisfied(self, level: Level, part: Any) -> bool:
        return bool(part == level.placed[self.index][2])

    def cells(self, placed: Any) -> Sequence[int]:
        return placed[0]  # type: ignore[no-any-return]

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        cells, _, goal, width = placed
        for cell, color in zip(cells, part, strict=True):
            canvas.fill(cell, COAL if color < 0 else TILE_COLORS[color], inset=0 if color < 0 else 1)
        for number, color in enumerate(goal):
            y, x = divmod(number, width)
            canvas.block(1 + x, 61 + y, width=1, height=1, color=COAL if color < 0 else TILE_COLORS[color])


BOUNCE = {(UP, 0): RIGHT, (RIGHT, 0): UP, (DOWN, 0): LEFT, (LEFT, 0): DOWN}
"""Where a beam goes at a mirror that rises to the right; a falling one turns it the other way."""
BOUNCE |= {(UP, 1): LEFT, (LEFT, 1): UP, (DOWN, 1): RIGHT, (RIGHT, 1): DOWN}


class Beams(_Puzzle):
    """A click turns a mirror; the beam must reach the target. Part: bits of the mirrors that fall to the right."""

    name = "beams"

    def place(self, draft: Draft) -> Any:
        source = draft.rng.randrange(draft.size) * draft.size
        cells, cell, direction, table = dict[int, int](), source, RIGHT, neighbor_table(draft.size)
        path = {source}
        for _ in range(2 + draft.difficulty):
            for _ in range(draft.rng.randrange(2, 5)):
                if table[cell][direction] in (OUTSIDE, *path):
                    break
                cell = table[cell][direction]
                path.add(cell)
            if cell in cells or cell == source:
                return None
            cells[cell] = draft.rng.randrange(2)
            direction = BOUNCE[direction, cells[cell]]
        target = table[cell][direction]
        if target in (OUTSIDE, *path):
            return None
        mirrors = tuple(cells)
        solved = sum(turned << n for n, turned in enumerate(cells.values()))
        mixed = solved ^ draft.rng.randrange(1, 1 << len(mirrors))
        return (source, target, mirrors, mixed)

    def begin(self, placed: Any) -> Any:
        return placed[3]

    def click(self, turn: GridTurn, placed: Any, cell: int) -> None:
        if cell in placed[2]:
            turn.parts[self.index] ^= 1 << placed[2].index(cell)

    def satisfied(self, level: Level, part: Any) -> bool:
        placed = level.placed[self.index]
        return placed[1] in self._lit(level.size, placed, part)

    def _lit(self, size: int, placed: Any, part: int) -> list[int]:
        """The cells that the beam crosses, in order."""
        cell, direction, out, seen = placed[0], RIGHT, [placed[0]], set[tuple[int, int]]()
        table = neighbor_table(size)
        while (cell := table[cell][direction]) != OUTSIDE and (cell, direction) not in seen:
            seen.add((cell, direction))
            out.append(cell)
            if cell == placed[1]:
                break
            if cell in placed[2]:
                direction = BOUNCE[direction, part >> placed[2].index(cell) & 1]
        return out

    def cells(self, placed: Any) -> Sequence[int]:
        return placed[2]  # type: ignore[no-any-return]

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        source, target, mirrors, _ = placed
        lit = self._lit(canvas.size, placed, part)
        for cell in lit:
            canvas.dot(cell, PINK)
        canvas.fill(source, RED, inset=1)
        canvas.fill(target, PINK if target in lit else BLACK, inset=1)
        for number, cell in enumerate(mirrors):
            canvas.fill(cell, FLOOR)
            canvas.stroke(cell, BLUE, falling=bool(part >> number & 1))
