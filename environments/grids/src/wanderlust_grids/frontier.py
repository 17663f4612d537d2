"""The graph of a level's frames, and the way to the nearest one that has an action left."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import NamedTuple

from wanderlust_grids.avatar import BOARD_ROWS, Square, pieces
from wanderlust_grids.cells import CLICK, FRAME, MOVES, UNDO
from wanderlust_grids.drawing import Frame
from wanderlust_grids.experience import Experience
from wanderlust_grids.game import GridAction, Observation

MAX_CLICK_PIXELS = 1200
"""Larger pieces are ground, and are clicked last."""
MIN_TRIES = 3
"""After so many without an effect, clicks at a colour are left for last."""


class Way(NamedTuple):
    """Actions to something that is not known yet."""

    actions: list[tuple[GridAction, Square | None]]
    """With the squares that they should lead to, where these are known."""
    name: str
    """What it is good for."""


def click_targets(frame: Frame) -> list[GridAction]:
    """A click in the middle of each piece of one colour, the smaller ones first."""
    found = sorted(pieces(frame), key=lambda one: (one.pixels > MAX_CLICK_PIXELS, one.pixels, one.y, one.x))
    points = dict.fromkeys((one.x + one.width // 2, one.y + one.height // 2) for one in found)
    return [GridAction(number=CLICK, x=x, y=y) for x, y in points]


def all_actions(seen: Observation) -> list[GridAction]:
    """Simple actions, then clicks at pieces; no reset, and nothing taken back."""
    simple = [GridAction(number=n) for n in seen.available_actions if n not in (CLICK, UNDO)]
    return simple + (click_targets(seen.frame) if CLICK in seen.available_actions else [])


class FrameGraph:
    """What each action made of each frame of a level. Frames are told apart by all their pixels.

    A frame after which the game was over is left alone. `memory` says which actions are predictable.
    """

    def __init__(self, rng: Random, memory: Experience):
        self._rng, self._memory = rng, memory
        self.begin_level()

    def begin_level(self) -> None:
        """Forget all frames."""
        self.edges: dict[Frame, dict[GridAction, Frame]] = {}
        self._options: dict[Frame, list[GridAction]] = {}

    def see(self, seen: Observation) -> None:
        """Note a frame in which something can be done."""
        if seen.frame not in self._options:
            found = all_actions(seen)
            self._rng.shuffle(found)
            found.sort(key=lambda one: one.number not in MOVES)
            self._options[seen.frame], self.edges[seen.frame] = found, {}

    def learn(self, before: Frame, action: GridAction, after: Frame) -> None:
        """Note what an action made of a frame that was seen."""
        self.edges[before][action] = after

    def way(self, start: Frame) -> Way | None:
        """To the nearest frame that has the least predictable action left, and that one; None where all were tried."""
        came: dict[Frame, tuple[Frame, GridAction] | None] = {start: None}
        frontier, best = deque([start]), dict[int, tuple[Frame, GridAction]]()
        while frontier and 0 not in best:
            frame = frontier.popleft()
            for action in self._options.get(frame, ()):
                if action not in self.edges[frame]:
                    best.setdefault(self._predictable(frame, action), (frame, action))
            for action, following in self.edges.get(frame, {}).items():
                if following not in came and following in self._options:
                    came[following] = (frame, action)
                    frontier.append(following)
        if not best:
            return None
        predictable = min(best)
        frame, action = best[predictable]
        return Way([(one, None) for one in (*_walk(came, frame), action)], f"frame-{predictable}")

    def _predictable(self, frame: Frame, action: GridAction) -> int:
        """How well it is known what an action does.

        0: nothing of its kind was tried yet, or clicks of its kind change frames; 1: others of its kind were tried;
        2: it leads to a square that was visited; 3: to nothing.
        """
        if action.number not in MOVES:
            return self._predictable_other(frame, action)
        memory, square = self._memory, self._memory.square(frame)
        if square is None or memory.lattice is None:
            return 1
        x, y = memory.avatar.direction(action.number)
        beside = square[0] + x, square[1] + y
        kind = memory.lattice.kind(frame, beside)
        if kind is None or memory.kinds[kind].bars:
            return 3
        return 2 if beside in memory.visited else int(memory.kinds[kind].tried > 0)

    def _predictable_other(self, frame: Frame, action: GridAction) -> int:
        """The same of an action that is no move."""
        memory = self._memory
        if action.y >= BOARD_ROWS or memory.idle.get(action) == memory.revision:
            return 3
        color = frame[action.y * FRAME + action.x]
        about = memory.colors[color] if action.number == CLICK else memory.numbers[action.number]
        if about.changed or not about.tried:
            return 0
        return 3 if about.tried >= MIN_TRIES else 1


def _walk(came: dict[Frame, tuple[Frame, GridAction] | None], frame: Frame) -> list[GridAction]:
    out = []
    while (step := came[frame]) is not None:
        frame, action = step
        out.append(action)
    return out[::-1]
