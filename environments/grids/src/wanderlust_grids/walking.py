"""Mechanics of games with an avatar: what is picked up, pushed, opened, and what carries or ends a walk."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

from wanderlust_grids.board import GridTurn, Level, Mechanic, Rules
from wanderlust_grids.cells import CLICK, DOWN, FRAME, INTERACT, LEFT, MOVES, RIGHT, UP
from wanderlust_grids.drafts import Draft
from wanderlust_grids.drawing import (
    AVATAR,
    BLACK,
    EXIT,
    FLOOR,
    GRAY,
    MAGENTA,
    MAROON,
    ORANGE,
    PINK,
    PURPLE,
    RED,
    SKY,
    SLATE,
    WHITE,
    YELLOW,
    Canvas,
)

LOCK_COLORS = (YELLOW, RED)
GATE_COLORS = (ORANGE, MAGENTA)
PIGMENTS = (RED, YELLOW, BLACK)
MIXTURES = (WHITE, RED, YELLOW, ORANGE, BLACK, MAROON, SLATE, PURPLE)
"""Colours of all mixtures of PIGMENTS, by their bits; WHITE is none."""
MIRRORED = (0, UP, DOWN, RIGHT, LEFT)
"""By direction, that of the mirrored twin."""


class Gems(Mechanic):
    """All gems must be picked up."""

    name = "gems"
    bystander = True

    def place(self, draft: Draft) -> Any:
        return draft.take_several(max(2, draft.difficulty)) or None

    def begin(self, placed: Any) -> Any:
        return (1 << len(placed)) - 1

    def arrive(self, turn: GridTurn, placed: Any) -> bool:
        if turn.avatar in placed:
            turn.parts[self.index] &= ~(1 << placed.index(turn.avatar))
        return False

    def satisfied(self, level: Level, part: Any) -> bool:
        return not part

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        for number, cell in enumerate(placed):
            if part >> number & 1:
                canvas.dot(cell, MAGENTA)


class Keys(Mechanic):
    """A door opens for whoever has the key of its colour."""

    name = "keys"

    def barriers(self, difficulty: int) -> int:
        return 1 if difficulty < 3 else 2

    def place(self, draft: Draft) -> Any:
        locks = []
        for _ in range(self.barriers(draft.difficulty)):
            gap = draft.take_gap()
            key = draft.take(last=gap[1]) if gap else None
            if gap is None or key is None:
                break
            locks.append((key, gap[0]))
        return tuple(locks) or None

    def solid(self, level: Level, part: Any, cell: int) -> bool:
        return any(cell == door and not part >> n & 1 for n, (_, door) in enumerate(level.placed[self.index]))

    def arrive(self, turn: GridTurn, placed: Any) -> bool:
        for number, (key, _) in enumerate(placed):
            if key == turn.avatar:
                turn.parts[self.index] |= 1 << number
        return False

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        for number, (key, door) in enumerate(placed):
            color = LOCK_COLORS[number]
            if part >> number & 1:
                canvas.status((FLOOR,) * number + (color,))
                canvas.ring(door, color)
            else:
                canvas.dot(key, color)
                canvas.fill(door, color)


class Paint(Mechanic):
    """The avatar mixes the pigments that it walks over; a gate lets one mixture pass, and water washes all off."""

    name = "paint"

    def barriers(self, difficulty: int) -> int:
        return 1

    def place(self, draft: Draft) -> Any:
        gap = draft.take_gap()
        if gap is None:
            return None
        wanted = draft.rng.choice((1, 2, 4) if draft.difficulty == 1 else (3, 5, 6))
        pads = {}
        for bit in draft.rng.sample(range(3), 3):
            cell = draft.take(last=gap[1]) if wanted >> bit & 1 or draft.difficulty > 1 else None
            if cell is not None:
                pads[cell] = 1 << bit
        water = draft.take(last=gap[1])
        return (gap[0], wanted, tuple(pads.items()), -1 if water is None else water)

    def solid(self, level: Level, part: Any, cell: int) -> bool:
        gate, wanted, _, _ = level.placed[self.index]
        return bool(cell == gate and part != wanted)

    def arrive(self, turn: GridTurn, placed: Any) -> bool:
        _, _, pads, water = placed
        if turn.avatar == water:
            turn.parts[self.index] = 0
        for cell, bit in pads:
            if cell == turn.avatar:
                turn.parts[self.index] |= bit
        return False

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        gate, wanted, pads, water = placed
        for cell, bit in pads:
            canvas.fill(cell, MIXTURES[bit], inset=1)
        if water >= 0:
            canvas.fill(water, SKY, inset=1)
        canvas.fill(gate, MIXTURES[wanted])
        canvas.dot(gate, FLOOR)
        canvas.status((MIXTURES[part],) if part else ())


class _Gates(Mechanic):
    """Switches, each of which opens or shuts the gates of its colour. Part: bits of the colours that were switched."""

    def barriers(self, difficulty: int) -> int:
        return 1 if difficulty < 2 else 2

    def place(self, draft: Draft) -> Any:
        gates, switches = [], []
        for color in range(self.barriers(draft.difficulty)):
            gap = draft.take_gap()
            cell = draft.take(last=gap[1]) if gap else None
            if gap is None or cell is None:
                break
            gates.append((gap[0], color))
            switches.append((cell, color))
        if draft.difficulty > 1 and gates:
            trap = draft.take()
            switches += [] if trap is None else [(trap, draft.rng.randrange(len(gates)))]
        return (tuple(gates), tuple(switches)) if gates else None

    def solid(self, level: Level, part: Any, cell: int) -> bool:
        return any(cell == gate and not part >> color & 1 for gate, color in level.placed[self.index][0])

    def _switch(self, turn: GridTurn, placed: Any, cell: int) -> None:
        for switch, color in placed[1]:
            if switch == cell and turn.avatar not in [gate for gate, one in placed[0] if one == color]:
                turn.parts[self.index] ^= 1 << color

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        gates, switches = placed
        for gate, color in gates:
            (canvas.ring if part >> color & 1 else canvas.fill)(gate, GATE_COLORS[color])
        for switch, color in switches:
            canvas.fill(switch, GATE_COLORS[color], inset=1)
            canvas.dot(switch, WHITE if part >> color & 1 else BLACK)


class Plates(_Gates):
    """Walking over a plate switches the gates of its colour."""

    name = "plates"

    def arrive(self, turn: GridTurn, placed: Any) -> bool:
        self._switch(turn, placed, turn.avatar)
        return False


class Levers(_Gates):
    """Clicking a lever switches the gates of its colour."""

    name = "levers"
    actions = (CLICK,)

    def click(self, turn: GridTurn, placed: Any, cell: int) -> None:
        self._switch(turn, placed, cell)

    def clickable(self, placed: Any) -> Sequence[int]:
        return [cell for cell, _ in placed[1]]


class Crates(Mechanic):
    """Crates are pushed; each must come to stand on a mark. Part: their cells."""

    name = "crates"
    max_size = 7

    def place(self, draft: Draft) -> Any:
        count = 1 if draft.difficulty < 3 else 2
        size = draft.size
        inner = [c for c in draft.free if 0 < c % size < size - 1 and 0 < c // size < size - 1]
        crates = tuple(inner[:count])
        draft.free = [cell for cell in draft.free if cell not in crates]
        marks = draft.take_several(count)
        return (crates, marks) if len(crates) == len(marks) == count else None

    def begin(self, placed: Any) -> Any:
        return frozenset(placed[0])

    def push(self, turn: GridTurn, rules: Rules, cell: int) -> bool:
        crates = turn.parts[self.index]
        if cell not in crates:
            return True
        beyond = turn.level.beside(cell, turn.direction)
        if beyond in crates or beyond == turn.level.exit or not rules.free(turn, beyond):
            return False
        turn.parts[self.index] = crates - {cell} | {beyond}
        return True

    def satisfied(self, level: Level, part: Any) -> bool:
        return bool(part.issuperset(level.placed[self.index][1]))

    def hopeless(self, level: Level, placed: Any) -> bool:
        crates, marks = placed
        within_reach = {crate: _pushable_to(level, crate) for crate in crates}
        pairs = (zip(crates, one, strict=True) for one in permutations(marks))
        return not any(all(mark in within_reach[crate] for crate, mark in one) for one in pairs)

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        for cell in placed[1]:
            canvas.ring(cell, MAROON)
        for cell in sorted(part):
            canvas.fill(cell, ORANGE, inset=1)


def _pushable_to(level: Level, crate: int) -> set[int]:
    """Cells to which a crate can be pushed if nothing else stood in the way, and the avatar were anywhere."""
    found, edge = {crate}, [crate]
    while edge:
        ways = level.ways[edge.pop()]
        for ahead, behind in (ways[UP], ways[DOWN]), (ways[LEFT], ways[RIGHT]):
            if ahead >= 0 and behind >= 0:
                new = {ahead, behind} - found - {level.exit}
                found |= new
                edge += new
    return found


class Ice(Mechanic):
    """On ice the avatar slides on until something stops it."""

    name = "ice"

    def place(self, draft: Draft) -> Any:
        return draft.patch(0.25 + 0.15 * draft.difficulty) or None

    def arrive(self, turn: GridTurn, placed: Any) -> bool:
        return turn.avatar in placed

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        for cell in sorted(placed):
            canvas.fill(cell, SKY)


class Belts(Mechanic):
    """A belt carries the avatar on in its own direction."""

    name = "belts"

    def place(self, draft: Draft) -> Any:
        cells = draft.take_several(3 + 3 * draft.difficulty)
        return tuple((cell, draft.rng.choice(MOVES)) for cell in cells) or None

    def arrive(self, turn: GridTurn, placed: Any) -> bool:
        for cell, direction in placed:
            if cell == turn.avatar:
                turn.direction = direction
                return True
        return False

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        for cell, direction in placed:
            canvas.fill(cell, GRAY)
            canvas.edge(cell, PURPLE, direction)


class Portals(Mechanic):
    """Two portals are the only way between two rooms: whoever enters one stands on the other."""

    name = "portals"

    def barriers(self, difficulty: int) -> int:
        return 1

    def place(self, draft: Draft) -> Any:
        gap = draft.take_gap()
        if gap is None:
            return None
        draft.walls.add(gap[0])
        ends = (draft.take(first=gap[1], last=gap[1]), draft.take(first=gap[1] + 1, last=gap[1] + 1))
        return None if None in ends else ends

    def arrive(self, turn: GridTurn, placed: Any) -> bool:
        if turn.avatar in placed:
            turn.avatar = placed[1 - placed.index(turn.avatar)]
        return False

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        for cell in placed:
            canvas.fill(cell, PURPLE, inset=1)
            canvas.dot(cell, PINK)


class Crumble(Mechanic):
    """Brittle floor falls when the avatar leaves it; all tokens must be picked up. Part: bits of both."""

    name = "crumble"
    max_size = 5

    def place(self, draft: Draft) -> Any:
        tokens = draft.take_several(1 if draft.difficulty < 3 else 2)
        return (draft.patch(0.8) | {*tokens}, tokens) if tokens else None

    def begin(self, placed: Any) -> Any:
        return (0, (1 << len(placed[1])) - 1)

    def solid(self, level: Level, part: Any, cell: int) -> bool:
        return bool(part[0] >> cell & 1)

    def arrive(self, turn: GridTurn, placed: Any) -> bool:
        floor, tokens = placed
        fallen, left = turn.parts[self.index]
        if turn.origin in floor:
            fallen |= 1 << turn.origin
        if turn.avatar in tokens:
            left &= ~(1 << tokens.index(turn.avatar))
        turn.parts[self.index] = (fallen, left)
        return False

    def satisfied(self, level: Level, part: Any) -> bool:
        return not part[1]

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        fallen, left = part
        for cell in sorted(placed[0]):
            canvas.fill(cell, BLACK if fallen >> cell & 1 else GRAY, inset=0 if fallen >> cell & 1 else 1)
        for number, cell in enumerate(placed[1]):
            if left >> number & 1:
                canvas.dot(cell, YELLOW)


class Energy(Mechanic):
    """Every action costs energy; without any the level is lost. Cells refill it once. Part: energy, bits of cells."""

    name = "energy"
    bystander = True
    max_size = 7

    def place(self, draft: Draft) -> Any:
        cells = draft.take_several(1 + draft.difficulty)
        full = draft.size - 1 + draft.rng.randrange(3)
        return (full, cells) if cells else None

    def begin(self, placed: Any) -> Any:
        return (placed[0], (1 << len(placed[1])) - 1)

    def settle(self, turn: GridTurn, rules: Rules) -> None:
        full, cells = turn.level.placed[self.index]
        energy, left = turn.parts[self.index]
        energy -= 1
        if turn.avatar in cells and left >> cells.index(turn.avatar) & 1:
            left &= ~(1 << cells.index(turn.avatar))
            energy = full
        turn.parts[self.index] = (energy, left)
        turn.lost |= energy <= 0 and turn.avatar != turn.level.exit

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        full, cells = placed
        canvas.bar(part[0] / full, YELLOW)
        for number, cell in enumerate(cells):
            if part[1] >> number & 1:
                canvas.fill(cell, YELLOW, inset=1)


class Patrols(Mechanic):
    """Guards walk to and fro, a cell an action; to meet one loses the level. Part: actions taken, by the period."""

    name = "patrols"
    bystander = True
    max_size = 8

    def place(self, draft: Draft) -> Any:
        lines = [draft.take_line(min(draft.size - 2, 3 + draft.difficulty)) for _ in range(draft.difficulty)]
        routes = tuple(line + line[-2:0:-1] for line in lines if line)
        return routes or None

    def settle(self, turn: GridTurn, rules: Rules) -> None:
        routes = turn.level.placed[self.index]
        before = turn.parts[self.index]
        after = (before + 1) % len(routes[0])
        turn.parts[self.index] = after
        for route in routes:
            start, end = route[before], route[after]
            turn.lost |= turn.avatar == end or (turn.avatar == start and turn.origin == end)

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        for route in placed:
            canvas.fill(route[part], RED, inset=1)


class Gravity(Mechanic):
    """The avatar falls until something holds it; action 5 turns gravity over. Part: 1 while it points up."""

    name = "gravity"
    actions = (INTERACT,)

    def place(self, draft: Draft) -> Any:
        draft.scatter_walls(0.2)
        return True

    def translate(self, turn: GridTurn, placed: Any) -> None:
        if turn.direction in (UP, DOWN):
            turn.direction = 0  # no move: a wall in every direction

    def press(self, turn: GridTurn, placed: Any) -> None:
        turn.parts[self.index] ^= 1

    def settle(self, turn: GridTurn, rules: Rules) -> None:
        turn.direction = UP if turn.parts[self.index] else DOWN
        for _ in range(turn.level.size):
            if turn.lost or turn.avatar == turn.level.exit or not rules.walk(turn):
                break

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        canvas.block(0, 0 if part else FRAME - 1, width=FRAME, height=1, color=PURPLE)


class Twins(Mechanic):
    """A second avatar moves in the mirror; both must stand on their exits. Part: its cell."""

    name = "twins"
    bystander = True
    max_size = 7

    def place(self, draft: Draft) -> Any:
        start, end = draft.take(), draft.take()
        return None if start is None or end is None else (start, end)

    def begin(self, placed: Any) -> Any:
        return placed[0]

    def settle(self, turn: GridTurn, rules: Rules) -> None:
        if turn.direction:
            target = turn.level.ways[turn.parts[self.index]][MIRRORED[turn.direction]]
            if target >= 0 and target != turn.avatar and rules.free(turn, target):
                turn.parts[self.index] = target

    def satisfied(self, level: Level, part: Any) -> bool:
        return bool(part == level.placed[self.index][1])

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        canvas.ring(placed[1], AVATAR)
        canvas.ring(placed[1], EXIT)
        canvas.fill(part, SKY, inset=1)


class Controls(Mechanic):
    """The four moves are exchanged, in the same way in all levels of a game."""

    name = "controls"
    matters = False

    def place(self, draft: Draft) -> Any:
        order = [*MOVES]
        while order == [*MOVES]:
            draft.game_rng.shuffle(order)
        return (0, *order)

    def translate(self, turn: GridTurn, placed: Any) -> None:
        turn.direction = placed[turn.direction]
