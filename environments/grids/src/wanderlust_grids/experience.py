"""What a player remembers of a game: kinds of squares and of clicks, where moves led, and what changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from wanderlust_grids.avatar import BOARD_ROWS, Avatar, Kind, Lattice, Square
from wanderlust_grids.cells import CLICK, FRAME, MOVES
from wanderlust_grids.drawing import Frame
from wanderlust_grids.game import GameState, GridAction, Observation

BOARD = BOARD_ROWS * FRAME
"""Pixels above the status rows."""


@dataclass(slots=True)
class Counts:
    """What came of trying something, over all levels of a game."""

    tried: int = 0
    blocked: int = 0
    """Tries after which the avatar stood where it had stood."""
    changed: int = 0
    """Tries that changed something else than the avatar's own square."""
    solved: int = 0
    lost: int = 0
    here: int = 0
    """Tries in this level."""
    used: int = 0
    """Solved levels in whose last try it was touched, and changed something."""
    skipped: int = 0
    """Solved levels in whose last try one of it was left."""

    @property
    def bars(self) -> bool:
        """Whether no try has come through."""
        return self.tried > 0 and (self.blocked == self.tried or 2 * self.lost >= self.tried)


NOTHING = Counts()


@dataclass(frozen=True, slots=True)
class Attempt:
    """An action on its way."""

    frame: Frame
    action: GridAction
    square: Square | None
    """Of the avatar."""
    expected: Square | None
    """Where the plan has it next."""
    aim: Square | None = None
    """Where the plan has it in the end."""


class Experience:
    """Learns from each observation; `begin_level` forgets what holds in one level alone."""

    def __init__(self) -> None:
        self.avatar = Avatar()
        self.kinds: dict[Kind, Counts] = defaultdict(Counts)
        self.colors: dict[int, Counts] = defaultdict(Counts)
        """Of clicks, by the colour of the pixel."""
        self.numbers: dict[int, Counts] = defaultdict(Counts)
        """Of actions, by their official number; `changed` counts frames."""
        self.moves = Counts()
        """Of moves: those that changed something else than the avatar's own square."""
        self.status = Counts()
        """Of moves: those that changed the status rows."""
        self.begin_level(None)

    def begin_level(self, frame: Frame | None) -> None:
        """A new level, and its first frame."""
        self.lattice = None if frame is None else self.avatar.begin_level(frame)
        self.revision = 0
        """Changes of something else than the avatar so far."""
        self.tries: dict[tuple[Frame, GridAction], int] = defaultdict(int)
        self.results: dict[tuple[Frame, GridAction], Frame] = {}
        self.last_click: GridAction | None = None
        self.clicked: set[GridAction] = set()
        """Clicks since the level began, or began again."""
        self.idle: dict[GridAction, int] = {}
        """The revision at which an action other than a move last changed nothing."""
        self.visits: dict[Frame, int] = defaultdict(int)
        """How often an action was taken in a frame."""
        self._forget_squares()
        for counts in (*self.kinds.values(), *self.colors.values()):
            counts.here = 0

    def _forget_squares(self) -> None:
        self.seen: dict[tuple[Square, int], tuple[Kind, Square]] = {}
        self.visited: set[Square] = set()
        self.touched: dict[Square, int] = {}
        """The revision at which a square was last come to or run into."""
        self.under: dict[Square, Kind] = {}
        """What the avatar covers."""
        self.touches: Counter[Square] = Counter()
        """How often a move has gone for a square in this level."""
        self.fatal: Counter[Square] = Counter()
        """How often the level was lost on a way to a square."""
        self._used: set[Kind] = set()

    def begin_try(self) -> None:
        """The level begins again: what was touched is as it was."""
        self.touched, self.under, self._used, self.last_click = {}, {}, set(), None
        self.clicked, self.idle = set(), {}

    @property
    def unrest(self) -> float:
        """The share of moves that change something else, whatever they touch."""
        return self.moves.changed / (self.moves.tried + 1)

    def square(self, frame: Frame) -> Square | None:
        """Where the avatar stands."""
        piece = self.avatar.find(frame)
        return None if self.lattice is None or piece is None else self.lattice.square(piece)

    def begin(self, frame: Frame, action: GridAction, expected: Square | None, *, aim: Square | None = None) -> Attempt:
        """An action is taken."""
        self.tries[frame, action] += 1
        self.visits[frame] += 1
        self.last_click = action if action.number == CLICK else None
        if self.last_click is not None:
            self.clicked.add(action)
        square = self.square(frame)
        if square is not None and action.number in MOVES:
            x, y = self.avatar.direction(action.number)
            self.touches[square[0] + x, square[1] + y] += 1
        return Attempt(frame, action, square, expected, aim)

    def learn(self, attempt: Attempt, seen: Observation, *, solved: bool) -> bool:
        """What an action has brought; returns whether the avatar is where it was expected."""
        before, action, lost = attempt.frame, attempt.action, seen.state is GameState.GAME_OVER
        changed, lattice = self._shown(before) != self._shown(seen.frame), self.lattice
        counts = [self.numbers[action.number]]
        if action.number == CLICK:
            counts.append(self.colors[before[action.y * FRAME + action.x]])
        for one in counts:
            one.tried += 1
            one.here += 1
            one.changed += changed
            one.solved += solved
        if solved:
            self._touch(attempt, solved=1)
            self._learn_need(before)
            return False
        self.results[before, action] = seen.frame
        if lost and attempt.aim is not None:
            self.fatal[attempt.aim] += 1
        if action.number not in MOVES:
            self.revision += changed
            if not changed:
                self.idle[action] = self.revision
        elif lost:
            self._touch(attempt, lost=1)
        else:
            if changed:
                self.lattice = self.avatar.watch(before, seen.frame, number=action.number, lattice=lattice)
            if self.lattice == lattice:
                self._learn_move(attempt, seen.frame)
            else:
                self._forget_squares()
        return not lost and (attempt.expected is None or self.square(seen.frame) == attempt.expected)

    def _shown(self, frame: Frame) -> Frame:
        """A frame without its status rows where most moves change these."""
        return frame[:BOARD] if 2 * self.status.changed > self.status.tried else frame

    def _touch(self, attempt: Attempt, *, solved: int = 0, lost: int = 0) -> Counts | None:
        """Count a try of the square beside the avatar."""
        if attempt.square is None or self.lattice is None or attempt.action.number not in MOVES:
            return None
        x, y = self.avatar.direction(attempt.action.number)
        beside = attempt.square[0] + x, attempt.square[1] + y
        kind = self.lattice.kind(attempt.frame, beside)
        if kind is None:
            return None
        self.touched[beside] = self.revision
        counts = self.kinds[kind]
        counts.tried += 1
        counts.here += 1
        counts.solved += solved
        counts.lost += lost
        return counts

    def _learn_move(self, attempt: Attempt, after: Frame) -> None:
        here, there = attempt.square, self.square(after)
        if here is None or there is None or self.lattice is None:
            return
        before = attempt.frame
        self.status.tried += 1
        self.status.changed += before[BOARD:] != after[BOARD:]
        before, after = self._shown(before), self._shown(after)
        changed = differ_beside(before, after, lattice=self.lattice, squares=(here, there))
        self.revision += changed
        self.moves.tried += 1
        self.moves.changed += changed
        if here != there:
            self._learn_gone(after, here)
            if (under := self.lattice.kind(before, there)) is not None:
                self.under[there] = under
        self.touched[there] = self.revision
        self.visited.add(there)
        counts = self._touch(attempt)
        if counts is not None:
            counts.blocked += here == there
            counts.changed += changed
            x, y = self.avatar.direction(attempt.action.number)
            kind = self.lattice.kind(attempt.frame, (here[0] + x, here[1] + y))
            if kind is not None:
                self.seen[here, attempt.action.number] = kind, there
                if changed:
                    self._used.add(kind)

    def _learn_gone(self, frame: Frame, square: Square) -> None:
        """Whether something is no longer where the avatar has stood."""
        kind = self.under.pop(square, None)
        if self.lattice is not None and kind is not None and self.lattice.kind(frame, square) != kind:
            self.kinds[kind].changed += 1
            self._used.add(kind)
            self.revision += 1

    def _learn_need(self, last: Frame) -> None:
        """After a solved level: kinds that were used, and those of which a square was left alone."""
        if self.lattice is None:
            return
        left = {kind for square, kind in self.lattice.kinds(last).items() if square not in self.touched}
        for kind in self._used:
            self.kinds[kind].used += 1
        for kind in left & {*self.kinds}:
            self.kinds[kind].skipped += 1


def differ_beside(before: Frame, after: Frame, *, lattice: Lattice, squares: tuple[Square, ...]) -> bool:
    """Whether two frames differ anywhere but in some squares."""
    if before == after:
        return False
    old, new = bytearray(before), bytearray(after)
    for column, row in squares:
        x, y = lattice.left + column * lattice.step, lattice.top + row * lattice.step
        for start in range(y * FRAME + x, (y + lattice.step) * FRAME + x, FRAME):
            if 0 <= start <= len(old) - lattice.step:
                old[start : start + lattice.step] = new[start : start + lattice.step] = bytes(lattice.step)
    return old != new
