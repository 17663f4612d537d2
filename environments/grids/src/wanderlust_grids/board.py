"""Boards of grid games: levels, states, and what an action does in them.

A game is made of mechanics (`Mechanic`), each with a part of the state of its own. Levels and states are immutable, so
states can be kept, compared and searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

from wanderlust_grids.cells import CLICK, INTERACT, MOVES, OUTSIDE, RIGHT, neighbor_table
from wanderlust_grids.drafts import Draft
from wanderlust_grids.drawing import Canvas

MAX_SLIDE = 64
"""Cells that one action may move the avatar."""


class Outcome(IntEnum):
    """How a level stands."""

    OPEN = 0
    SOLVED = 1
    LOST = 2


OPEN, SOLVED, LOST = Outcome
_new = tuple.__new__
"""Makes a state quicker than calling its class."""


class Action(NamedTuple):
    """An action by its official number; a click has a cell."""

    number: int
    cell: int = OUTSIDE


class State(NamedTuple):
    """A level in progress."""

    avatar: int
    parts: tuple[Any, ...]
    """Per mechanic of the game."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A level before it begins. Cells are numbered by rows.

    Example:
        >>> Level(size=4, start=0, exit=15).beside(5, 1)
        1
    """

    size: int
    """Cells on a side."""
    walls: frozenset[int] = frozenset()
    start: int = OUTSIDE
    exit: int = OUTSIDE
    placed: tuple[Any, ...] = ()
    """Per mechanic of the game, what it has on the board; None where it has no part in this level."""
    neighbors: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    """Per cell, the next ones by direction; OUTSIDE at the edge."""
    ways: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    """Neighbors, with OUTSIDE where a wall is."""
    present: tuple[bool, ...] = field(init=False, repr=False, compare=False)
    """Per mechanic, whether it has a part in this level."""

    def __post_init__(self) -> None:
        table, walls = neighbor_table(self.size), self.walls
        ways = tuple(tuple(OUTSIDE if cell in walls else cell for cell in row) for row in table)
        object.__setattr__(self, "neighbors", table)
        object.__setattr__(self, "ways", ways)
        object.__setattr__(self, "present", tuple(one is not None for one in self.placed))

    def beside(self, cell: int, direction: int) -> int:
        """The next cell in a direction; OUTSIDE at the edge."""
        return self.neighbors[cell][direction]


class GridTurn:
    """One action on its way: what mechanics read and change. May be used for one action after the other."""

    __slots__ = ("avatar", "direction", "hooks", "level", "lost", "origin", "parts")

    def __init__(self, level: Level, hooks: Hooks):
        self.level, self.hooks = level, hooks
        self.avatar = self.origin = OUTSIDE
        self.parts: list[Any] = []
        self.direction, self.lost = 0, False


class Mechanic:
    """One rule of a game; the defaults do nothing. `index` is its place among the game's mechanics.

    Overridden methods alone are called. `placed` is what `place` returned, `part` its part of the state.
    """

    name: ClassVar[str]
    actions: ClassVar[tuple[int, ...]] = ()
    """Official actions that it adds."""
    walks: ClassVar[bool] = True
    """Whether it is about an avatar that walks; else a game has no other mechanic."""
    max_size: ClassVar[int] = 10
    """Cells on a side of its boards, at most: fewer where states are many."""
    matters: ClassVar[bool] = True
    """Whether a level without it has another shortest solution."""
    bystander: ClassVar[bool] = False
    """Whether the avatar goes the same ways without it, so that a level is solvable only where the rest of it is."""

    def __init__(self, index: int):
        self.index = index

    def barriers(self, difficulty: int) -> int:
        """Walls across the board in whose gaps its things stand."""
        return 0

    def place(self, draft: Draft) -> Any:
        """Put things on a board; None where there is no room."""
        raise NotImplementedError

    def begin(self, placed: Any) -> Any:
        """Its part of the first state."""
        return 0

    def translate(self, turn: GridTurn, placed: Any) -> None:
        """Change the direction of a move before anything else."""

    def solid(self, level: Level, part: Any, cell: int) -> bool:
        """Whether nothing can enter a cell."""
        return False

    def push(self, turn: GridTurn, rules: Rules, cell: int) -> bool:
        """Make room for the avatar in a cell; False where that cannot be."""
        return True

    def arrive(self, turn: GridTurn, placed: Any) -> bool:
        """The avatar came to `turn.avatar`; True moves it on in `turn.direction`."""
        return False

    def press(self, turn: GridTurn, placed: Any) -> None:
        """Action 5."""

    def click(self, turn: GridTurn, placed: Any, cell: int) -> None:
        """Action 6."""

    def settle(self, turn: GridTurn, rules: Rules) -> None:
        """After every action, the avatar's own movement done."""

    def satisfied(self, level: Level, part: Any) -> bool:
        """Whether the level may be solved, as far as this mechanic goes."""
        return True

    def hopeless(self, level: Level, placed: Any) -> bool:
        """Whether a level plainly has no solution; False where it takes a search to know."""
        return False

    def clickable(self, placed: Any) -> Sequence[int]:
        """Cells at which a click does something."""
        return ()

    def draw(self, canvas: Canvas, placed: Any, part: Any) -> None:
        """Paint its things."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """The mechanics of a level that override a method, by method."""

    translate: tuple[Mechanic, ...]
    solid: tuple[Mechanic, ...]
    push: tuple[Mechanic, ...]
    arrive: tuple[Mechanic, ...]
    press: tuple[Mechanic, ...]
    click: tuple[Mechanic, ...]
    settle: tuple[Mechanic, ...]
    satisfied: tuple[Mechanic, ...]


class Rules:
    """What actions do in the levels of a game.

    Deterministic: equal level, state and action give an equal result.
    """

    def __init__(self, mechanics: Sequence[Mechanic]):
        self.mechanics = tuple(mechanics)
        more = {number for one in mechanics for number in one.actions}
        walking = all(one.walks for one in mechanics)
        self.actions = tuple(sorted({*(MOVES if walking else ()), *more}))
        self._hooks: dict[tuple[bool, ...], Hooks] = {}

    def begin(self, level: Level) -> State:
        """The first state."""
        parts = tuple(
            None if placed is None else one.begin(placed)
            for one, placed in zip(self.mechanics, level.placed, strict=True)
        )
        return State(level.start, parts)

    def step(self, level: Level, state: State, action: Action) -> tuple[State, Outcome]:
        """The next state. An action that the game lacks, or that does nothing, still passes a turn."""
        return self.advance(GridTurn(level, self.hooks(level)), state, action)

    def advance(self, turn: GridTurn, state: State, action: Action) -> tuple[State, Outcome]:
        """The next state, worked out in a turn of the level, which may have been used before."""
        number, hooks, level = action[0], turn.hooks, turn.level
        avatar, parts = state
        turn.avatar = turn.origin = avatar
        turn.parts, turn.lost = list(parts), False
        turn.direction = number if number <= RIGHT else 0
        if not turn.direction:
            self._use(turn, action)
        elif avatar >= 0:
            for one in hooks.translate:
                one.translate(turn, level.placed[one.index])
            if turn.direction:
                self.walk(turn)
        for one in hooks.settle:
            one.settle(turn, self)
        following: State = _new(State, (turn.avatar, tuple(turn.parts)))
        if turn.lost:
            return following, LOST
        if turn.avatar != level.exit:
            return following, OPEN
        done = all(one.satisfied(level, turn.parts[one.index]) for one in hooks.satisfied)
        return following, SOLVED if done else OPEN

    def _use(self, turn: GridTurn, action: Action) -> None:
        """What an action that is no move does by itself."""
        placed = turn.level.placed
        if action.number == INTERACT:
            for one in turn.hooks.press:
                one.press(turn, placed[one.index])
        elif action.number == CLICK and action.cell >= 0:
            for one in turn.hooks.click:
                one.click(turn, placed[one.index], action.cell)

    def walk(self, turn: GridTurn) -> bool:
        """Move the avatar by a cell in the turn's direction, and on where it is carried; False where it is blocked."""
        hooks, level, moved = turn.hooks, turn.level, False
        for _ in range(MAX_SLIDE):
            target = level.ways[turn.avatar][turn.direction]
            if target < 0 or not self._open(turn, target):
                break
            turn.origin, turn.avatar, moved = turn.avatar, target, True
            carried = False
            for one in hooks.arrive:
                carried |= one.arrive(turn, level.placed[one.index])
            if not carried or turn.lost:
                break
        return moved

    def _open(self, turn: GridTurn, cell: int) -> bool:
        """Whether a cell without a wall can be entered; crates are pushed out of it. Loops are quicker than `all`."""
        for one in turn.hooks.solid:
            if one.solid(turn.level, turn.parts[one.index], cell):
                return False
        for one in turn.hooks.push:  # noqa: SIM110
            if not one.push(turn, self, cell):
                return False
        return True

    def free(self, turn: GridTurn, cell: int) -> bool:
        """Whether a cell can be entered, crates left aside."""
        level = turn.level
        if cell < 0 or cell in level.walls:
            return False
        for one in turn.hooks.solid:  # noqa: SIM110
            if one.solid(level, turn.parts[one.index], cell):
                return False
        return True

    def hooks(self, level: Level) -> Hooks:
        """The mechanics of a level that have something to say, by method."""
        found = self._hooks.get(level.present)
        if found is None:
            active = [one for one in self.mechanics if level.present[one.index]]
            found = self._hooks[level.present] = Hooks(
                *(
                    tuple(one for one in active if getattr(type(one), name) is not getattr(Mechanic, name))
                    for name in (spot.name for spot in fields(Hooks))
                )
            )
        return found

    def candidates(self, level: Level) -> list[Action]:
        """Every action that may do something."""
        out = [Action(number) for number in self.actions if number != CLICK]
        if CLICK in self.actions:
            pairs = zip(self.mechanics, level.placed, strict=True)
            cells = {cell for one, placed in pairs if placed is not None for cell in one.clickable(placed)}
            out += [Action(CLICK, cell) for cell in sorted(cells)]
        return out
