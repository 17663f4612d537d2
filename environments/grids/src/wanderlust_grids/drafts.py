"""A board on which mechanics place their things, before it becomes a level."""

from __future__ import annotations

from random import Random

from wanderlust_grids.cells import beside, neighbor_table

MAX_WALL_SHARE = 0.18
"""Of the cells of rooms, single walls."""


class Draft:
    """Rooms side by side, parted by walls with one gap each.

    `rng` draws for this level, `game_rng` what all levels of a game have in common. `difficulty` is 1 to 3.
    """

    def __init__(self, rng: Random, *, size: int, barriers: int, difficulty: int, game_key: str):
        self.rng, self.size, self.difficulty, self.game_rng = rng, size, difficulty, Random(game_key)
        self.upright = rng.random() < 0.5
        self.walls: set[int] = set()
        lines = self._lines(barriers)
        self._room_of = [sum(self._across(cell) > line for line in lines) for cell in range(size * size)]
        self.gaps: list[tuple[int, int]] = []
        """Gaps that nobody took yet, and the room before each."""
        for number, line in enumerate(lines):
            cells = [cell for cell in range(size * size) if self._across(cell) == line]
            gap = rng.choice(cells)
            self.walls.update(cell for cell in cells if cell != gap)
            self.gaps.append((gap, number))
        self.rooms = len(lines) + 1
        taken = self.walls | {gap for gap, _ in self.gaps}
        self.free = [cell for cell in range(size * size) if cell not in taken]
        rng.shuffle(self.free)

    def _lines(self, barriers: int) -> list[int]:
        """Where walls across the board stand."""
        step = self.size / (barriers + 1)
        return [round(step * (n + 1) - 0.5) for n in range(barriers)]

    def _across(self, cell: int) -> int:
        return cell % self.size if self.upright else cell // self.size

    def take(self, *, first: int = 0, last: int | None = None) -> int | None:
        """A free cell in one of some rooms, taken; None where there is none."""
        last = self.rooms - 1 if last is None else last
        for place, cell in enumerate(self.free):
            if first <= self._room_of[cell] <= last:
                return self.free.pop(place)
        return None

    def take_several(self, count: int, *, first: int = 0, last: int | None = None) -> tuple[int, ...]:
        """Free cells, taken; fewer where there are fewer."""
        found = (self.take(first=first, last=last) for _ in range(count))
        return tuple(cell for cell in found if cell is not None)

    def take_gap(self) -> tuple[int, int] | None:
        """A gap and the room before it, taken; None where there is none."""
        return self.gaps.pop(0) if self.gaps else None

    def take_line(self, length: int) -> tuple[int, ...]:
        """Free cells in a line, taken; empty where there are none."""
        table = neighbor_table(self.size)
        for cell in self.free:
            direction = self.rng.choice((2, 4))
            line = [cell]
            while len(line) < length and table[line[-1]][direction] in self.free:
                line.append(table[line[-1]][direction])
            if len(line) == length:
                self.free = [one for one in self.free if one not in line]
                return tuple(line)
        return ()

    def patch(self, share: float) -> frozenset[int]:
        """A connected part of the free cells, which stay free for others."""
        wanted, free = round(share * len(self.free)), {*self.free}
        if not free:
            return frozenset()
        edge, found = [self.rng.choice(self.free)], set[int]()
        while edge and len(found) < wanted:
            cell = edge.pop(self.rng.randrange(len(edge)))
            if cell not in found:
                found.add(cell)
                edge += [one for one in beside(self.size, cell) if one in free and one not in found]
        return frozenset(found)

    def scatter_walls(self, share: float) -> None:
        """Turn some of the free cells into walls."""
        for cell in self.take_several(round(share * len(self.free))):
            self.walls.add(cell)
