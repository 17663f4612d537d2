"""Players that see frames alone: random, a learner of what changes them, an explorer of their graph, and a seeker."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from random import Random
from typing import Protocol

from wanderlust_grids.aims import next_way
from wanderlust_grids.avatar import Square
from wanderlust_grids.cells import CLICK, FRAME, RESET
from wanderlust_grids.drawing import STATUS_ROWS, Frame
from wanderlust_grids.experience import Attempt, Experience
from wanderlust_grids.frontier import FrameGraph, Way, all_actions
from wanderlust_grids.game import GameState, GridAction, Observation
from wanderlust_grids.learner import Learner


class GridPlayer(Protocol):
    """Chooses actions in one game."""

    def choose(self, seen: Observation) -> GridAction:
        """The next action, after this observation."""
        ...


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
        actions = all_actions(seen)
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

    First come squares and colours of which no other was tried, and clicks that change things. What it can predict comes
    last: moves to squares where it has been, moves into what has always barred the way, and clicks that change nothing.
    For that it finds out which piece it moves (`Experience`), over all levels of a game. Frames are told apart by all
    their pixels. A frame after which the game was over is left alone.
    """

    def __init__(self, rng: Random):
        self._memory = Experience()
        self._graph = FrameGraph(rng, self._memory)
        self._attempt: Attempt | None = None
        self._plan: deque[tuple[GridAction, Square | None]] = deque()
        self._level = -1

    @property
    def edges(self) -> dict[Frame, dict[GridAction, Frame]]:
        """The graph of the current level: what each action made of each frame."""
        return self._graph.edges

    def choose(self, seen: Observation) -> GridAction:
        """The next action of the way that was chosen."""
        solved = seen.levels_completed != self._level
        if self._attempt is not None:
            if not self._memory.learn(self._attempt, seen, solved=solved):
                self._plan.clear()
            if not solved:
                self._graph.learn(self._attempt.frame, self._attempt.action, seen.frame)
        if solved:
            self._level = seen.levels_completed
            self._graph.begin_level()
            self._memory.begin_level(seen.frame)
            self._plan.clear()
        if seen.state is not GameState.NOT_FINISHED:
            return self._reset()
        if (square := self._memory.square(seen.frame)) is not None:
            self._memory.visited.add(square)
        self._graph.see(seen)
        if not self._plan and (way := self._way(seen)) is not None:
            self._plan.extend(way.actions)
        if not self._plan:
            return self._reset()
        aim = self._plan[-1][1]
        action, expected = self._plan.popleft()
        self._attempt = self._memory.begin(seen.frame, action, expected, aim=aim)
        return action

    def _way(self, seen: Observation) -> Way | None:
        return self._graph.way(seen.frame)

    def _reset(self) -> GridAction:
        self._attempt = None
        self._plan.clear()
        self._memory.begin_try()
        return GridAction(number=RESET)


class AimSeeker(GraphExplorer):
    """Touches what may end the level, then what is new, and then explores as `GraphExplorer` does.

    It remembers what squares of each kind have done, over all levels of a game, and goes by `aims` while it knows the
    squares of the board.
    """

    def _way(self, seen: Observation) -> Way | None:
        return next_way(seen, self._memory, self._graph)


PLAYERS: dict[str, Callable[[Random], GridPlayer]] = {
    "random": RandomPlayer,
    "change-learner": ChangeLearner,
    "explorer": GraphExplorer,
    "seeker": AimSeeker,
    "learner": Learner,
}
