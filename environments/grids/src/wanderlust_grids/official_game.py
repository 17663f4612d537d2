"""Our games as classes of the official engine, `arcengine` 0.9.3; extra `arc`.

The official engine plays them with its own levels, resets, counts and states. Frames are ours, so the same actions
give the same frames and the same score there and here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from arcengine import ARCBaseGame, Camera, Level, RenderableUserDisplay

from wanderlust_grids.board import Action, Outcome, State
from wanderlust_grids.cells import CLICK, FRAME, OUTSIDE, RESET, UNDO
from wanderlust_grids.drawing import BLACK, Frame, cell_at
from wanderlust_grids.game import draw
from wanderlust_grids.generation import GridGame, make_game


class _Screen(RenderableUserDisplay):  # type: ignore[misc]
    """Shows our frame in place of the camera's."""

    def __init__(self) -> None:
        self.frame: Frame = bytes(FRAME * FRAME)

    def render_interface(self, frame: Any) -> Any:
        """Our frame, whatever the camera saw."""
        return np.frombuffer(self.frame, dtype=np.int8).reshape(FRAME, FRAME).copy()


class OfficialGame(ARCBaseGame):  # type: ignore[misc]
    """A game of ours in the official engine; `official_game` makes a class for each game."""

    game: GridGame

    def __init__(self, seed: int = 0):
        self._screen, self._states = _Screen(), list[State]()
        levels = [Level(grid_size=(FRAME, FRAME), name=f"level-{n}") for n in range(len(self.game.levels))]
        super().__init__(
            game_id=self.game.key,
            levels=levels,
            camera=Camera(background=BLACK, letter_box=BLACK, interfaces=[self._screen]),
            win_score=len(levels),
            available_actions=list(self.game.actions),
            seed=seed,
        )

    def on_set_level(self, level: Any) -> None:
        """Begin a level: the official engine calls it for a new level and for every reset."""
        self._states = [self.game.rules.begin(self.game.levels[self.level_index])]
        self._draw()

    def step(self) -> None:
        """Take the action that the official engine holds."""
        number = self.action.id.value
        if number == UNDO and UNDO in self.game.actions:
            self._states[1:] = self._states[1:-1]
        elif number != RESET and number in self.game.actions:
            self._take(number)
        self._draw()
        self.complete_action()

    def _take(self, number: int) -> None:
        level, data = self.game.levels[self.level_index], self.action.data
        cell = cell_at(level.size, int(data.get("x", 0)), int(data.get("y", 0))) if number == CLICK else OUTSIDE
        state, outcome = self.game.rules.step(level, self._states[-1], Action(number, cell))
        self._states.append(state)
        if outcome is Outcome.LOST:
            self.lose()
        elif outcome is Outcome.SOLVED:
            self.next_level()

    def _draw(self) -> None:
        self._screen.frame = draw(self.game.rules, self.game.levels[self.level_index], self._states[-1])


def official_game(key: str) -> type[OfficialGame]:
    """The game of a key as a class of the official engine.

    Example:
        official_game("train-2")().perform_action(ActionInput(id=GameAction.RESET), raw=True)
    """
    return type(f"Game_{key.replace('-', '_')}", (OfficialGame,), {"game": make_game(key)})
