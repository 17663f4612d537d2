"""Players that see frames alone: random, a learner of what changes them, and an explorer of their graph."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from random import Random
from typing import Protocol

from wanderlust.environments.grids.cells import CLICK, FRAME, MOVES, RESET, UNDO
from wanderlust.environments.grids.drawing import STATUS_ROWS, Frame
from wanderlust.environments.grids.experience import Attempt, Experience
from wanderlust.environments.grids.game import GameState, GridAction, Observation
from wanderlust.environments.grids.learner import Learner
from wanderlust.environments.grids.view import blobs

MAX_CLICK_PIXELS = 1200
"""Larger pieces are ground, and are clicked last."""
MIN_TRIES = 3
"""After so many without an effect, the explorer leaves clicks at a colour for last."""


class GridPlayer(Protocol):
    """Chooses actions in one game."""

    def choose(self, seen: Observation) -> GridAction:
        """The next action, after this observation."""
        ...


def click_targets(frame: Frame) -> list[GridAction]:
    """A click in the middle of each piece of one colour, the smaller ones first."""
    found = sorted(blobs(frame), key=lambda one: (one.pixels > MAX_CLICK_PIXELS, one.pixels, one.y, one.x))
    points = dict.fromkeys((one.x + one.width // 2, one.y + one.height // 2) for one in found)
    return [GridAction(number=CLICK, x=x, y=y) for x, y in points]


def options(seen: Observation) -> list[GridAction]:
    """Simple actions, then clicks at pieces; no reset, and nothing taken back."""
    simple = [GridAction(number=n) for n in seen.available_actions if n not in (CLICK, UNDO)]
    return simple + (click_targets(seen.frame) if CLICK in seen.available_actions else [])


class RandomPlayer:
    """Every available action alike; clicks at any pixel. Resets when the game is over."""

    def __init__(self, rng: Random):
        self._rng = rng

    def choose(self, seen: Observation) -> GridAction:
        """A draw."""
        if seen.state is not GameState.NOT_FINISHED:
            return GridAction(number=RESET)
        number = self._rng.choice(seen.available_actions)
        x, y = (self._rng.randrange(FRAME), self._rng.randrange(FRAME)) if number == CLICK else (0, 0)
        return GridAction(number=number, x=x, y=y)


def without_status(frame: Frame) -> Frame:
    """A frame without its last rows, where energy and keys are shown."""
    return frame[: -STATUS_ROWS * FRAME]


class ChangeLearner:
    """Prefers actions that have changed frames before, and those not tried in a frame yet.

    Learns within a game, across its levels: of moves by their number, of clicks by the colour that is clicked.
    """

    def __init__(self, rng: Random):
        self._rng = rng
        self._tried: dict[tuple[Frame, GridAction], int] = defaultdict(int)
        self._changes: dict[tuple[int, int], list[int]] = defaultdict(lambda: [1, 2])
        self._last: tuple[Frame, GridAction] | None = None

    def choose(self, seen: Observation) -> GridAction:
        """Draw by the share of changes so far, halved for each try in this very frame."""
        if self._last is not None:
            before, action = self._last
            counts = self._changes[self._kind(before, action)]
            counts[0] += without_status(before) != without_status(seen.frame)
            counts[1] += 1
        if seen.state is not GameState.NOT_FINISHED:
            self._last = None
            return GridAction(number=RESET)
        actions = options(seen)
        weights = [self._weight(seen.frame, action) for action in actions]
        (action,) = self._rng.choices(actions, weights)
        self._tried[without_status(seen.frame), action] += 1
        self._last = (seen.frame, action)
        return action

    def _kind(self, frame: Frame, action: GridAction) -> tuple[int, int]:
        return (action.number, frame[action.y * FRAME + action.x] if action.number == CLICK else 0)

    def _weight(self, frame: Frame, action: GridAction) -> float:
        changed, all_of = self._changes[self._kind(frame, action)]
        return changed / all_of * 0.5 ** min(self._tried[without_status(frame), action], 20)


class GraphExplorer:
    """Tries every action in every frame, and goes to the nearest frame that has one left.

    What it can predict is left for last: moves to squares where it has been, then moves into what has always barred the
    way, and clicks at colours and other actions that have never changed a frame. For that it finds out which piece it
    moves (`Experience`), over all levels of a game. Frames are told apart by all their pixels. A frame after which the
    game was over is left alone.
    """

    def __init__(self, rng: Random):
        self._rng, self._memory = rng, Experience()
        self._edges: dict[Frame, dict[GridAction, Frame]] = {}
        self._options: dict[Frame, list[GridAction]] = {}
        self._attempt: Attempt | None = None
        self._plan: deque[GridAction] = deque()
        self._level = -1

    @property
    def edges(self) -> dict[Frame, dict[GridAction, Frame]]:
        """The graph of the current level: what each action made of each frame."""
        return self._edges

    def choose(self, seen: Observation) -> GridAction:
        """The next action of the way to the nearest frame that has one left."""
        solved = seen.levels_completed != self._level
        if self._attempt is not None:
            self._memory.learn(self._attempt, seen, solved=solved)
            if not solved:
                self._edges[self._attempt.frame][self._attempt.action] = seen.frame
        if solved:
            self._level, self._edges, self._options = seen.levels_completed, {}, {}
            self._memory.begin_level(seen.frame)
            self._plan.clear()
        if seen.state is not GameState.NOT_FINISHED:
            self._attempt = None
            self._plan.clear()
            return GridAction(number=RESET)
        self._see(seen)
        if not self._plan:
            self._plan = deque(self._path(seen.frame))
        action = self._plan.popleft() if self._plan else GridAction(number=RESET)
        self._attempt = self._memory.begin(seen.frame, action, None) if action.number != RESET else None
        return action

    def _see(self, seen: Observation) -> None:
        if (square := self._memory.square(seen.frame)) is not None:
            self._memory.visited.add(square)
        if seen.frame not in self._options:
            found = options(seen)
            self._rng.shuffle(found)
            self._options[seen.frame], self._edges[seen.frame] = found, {}

    def _path(self, start: Frame) -> list[GridAction]:
        """Known actions to the nearest frame that has the least predictable action left, and that one; else none."""
        came: dict[Frame, tuple[Frame, GridAction] | None] = {start: None}
        frontier, best = deque([start]), dict[int, tuple[Frame, GridAction]]()
        while frontier and 0 not in best:
            frame = frontier.popleft()
            for action in self._options.get(frame, ()):
                if action not in self._edges[frame]:
                    best.setdefault(self._predictable(frame, action), (frame, action))
            for action, following in self._edges.get(frame, {}).items():
                if following not in came and following in self._options:
                    came[following] = (frame, action)
                    frontier.append(following)
        if not best:
            return []
        frame, action = best[min(best)]
        return [*_walk(came, frame), action]

    def _predictable(self, frame: Frame, action: GridAction) -> int:
        """0 where nobody knows what an action does; 1 where it leads to a square that was visited; 2 to nothing."""
        memory, square = self._memory, self._memory.square(frame)
        if action.number not in MOVES:
            color = frame[action.y * FRAME + action.x]
            about = memory.colors[color] if action.number == CLICK else memory.numbers[action.number]
            return 2 if about.tried >= MIN_TRIES and not about.changed else 0
        if square is None or memory.lattice is None:
            return 0
        x, y = memory.avatar.direction(action.number)
        beside = square[0] + x, square[1] + y
        kind = memory.lattice.kind(frame, beside)
        if kind is None or memory.kinds[kind].bars:
            return 2
        return int(beside in memory.visited)


def _walk(came: dict[Frame, tuple[Frame, GridAction] | None], frame: Frame) -> list[GridAction]:
    out = []
    while (step := came[frame]) is not None:
        frame, action = step
        out.append(action)
    return out[::-1]


PLAYERS: dict[str, Callable[[Random], GridPlayer]] = {
    "random": RandomPlayer,
    "change-learner": ChangeLearner,
    "explorer": GraphExplorer,
    "learner": Learner,
}
