"""A game in progress, with the states, resets and counts of the official engine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wanderlust.errors import UsageError
from wanderlust_grids.board import Action, Level, Outcome, Rules, State
from wanderlust_grids.cells import CLICK, FRAME, OUTSIDE, RESET, UNDO
from wanderlust_grids.drawing import AVATAR, EXIT, Canvas, Frame, cell_at
from wanderlust_grids.generation import GridGame

MAX_KEPT_FRAMES = 1000
"""Frames of a level that a session keeps, by state."""


class GameState(StrEnum):
    """As the official engine names them."""

    NOT_PLAYED = "NOT_PLAYED"
    NOT_FINISHED = "NOT_FINISHED"
    WIN = "WIN"
    GAME_OVER = "GAME_OVER"


@dataclass(frozen=True, slots=True, kw_only=True)
class GridAction:
    """An action by its official number: 0 resets, 1 to 4 move, 5 interacts, 6 clicks a pixel, 7 takes back."""

    number: int
    x: int = 0
    y: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.number <= UNDO or not (0 <= self.x < FRAME and 0 <= self.y < FRAME):
            raise UsageError(f"there is no action {self.number} at {self.x}, {self.y}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a player sees after an action."""

    frame: Frame
    state: GameState
    levels_completed: int
    available_actions: tuple[int, ...]
    """Reset aside, which is always there."""


def draw(rules: Rules, level: Level, state: State) -> Frame:
    """The frame of a state."""
    canvas = Canvas.of(level.size, level.walls)
    if level.exit >= 0:
        canvas.fill(level.exit, EXIT)
    for one in rules.mechanics:
        if level.placed[one.index] is not None:
            one.draw(canvas, level.placed[one.index], state.parts[one.index])
    if state.avatar >= 0:
        canvas.fill(state.avatar, AVATAR, inset=2 if level.size < 9 else 1)
    return canvas.frame()


class GridSession:
    """One play of a game, with the counts of the official engine's scorecard.

    A reset begins the level anew. Where no action has been taken in the level it begins the whole game as a new play,
    unless `level_resets` holds, as in official competitions; so it does after a won game. After a lost level only a
    reset does anything, and nothing else counts. Every other action counts, resets of a level among them.
    """

    def __init__(self, game: GridGame, *, level_resets: bool = False):
        self.game, self.rules, self.level_resets = game, game.rules, level_resets
        self.state, self.number = GameState.NOT_PLAYED, 0
        self.level_actions: list[int] = []
        """Actions of each solved level, lost tries included."""
        self.actions = 0
        """All of them."""
        self._states: list[State] = []
        self._taken = 0
        """Actions since the level was begun or reset."""
        self._frames: dict[State, Frame] = {}

    @property
    def level(self) -> Level:
        """The level that is played."""
        return self.game.levels[self.number]

    @property
    def position(self) -> State:
        """The state of the level."""
        return self._states[-1]

    @property
    def open_actions(self) -> int:
        """Actions since the last solved level."""
        return self.actions - sum(self.level_actions)

    def begin(self, first: int = 0) -> Observation:
        """Show the first level, or another one to begin with, whose number counts from 0."""
        self._enter(first)
        return self.observe()

    def perform(self, action: GridAction) -> Observation:
        """Take an action. One that the game lacks changes nothing, and counts."""
        if self.state is GameState.NOT_PLAYED:
            raise UsageError("the game has not begun: call begin")
        if action.number == RESET:
            self._reset()
        elif self.state is GameState.NOT_FINISHED:
            self.actions += 1
            self._taken += 1
            if action.number == UNDO and UNDO in self.game.actions:
                self._states[1:] = self._states[1:-1]
            elif action.number in self.game.actions:
                self._step(action)
        return self.observe()

    def waste(self) -> None:
        """Count an action that could not be read, or came after a lost level."""
        self.actions += 1

    def observe(self) -> Observation:
        """What is seen now."""
        state = self._states[-1]
        frame = self._frames.get(state)
        if frame is None:
            if len(self._frames) >= MAX_KEPT_FRAMES:
                self._frames.clear()
            frame = self._frames[state] = draw(self.rules, self.level, state)
        return Observation(
            frame=frame,
            state=self.state,
            levels_completed=len(self.level_actions),
            available_actions=self.game.actions,
        )

    def _step(self, action: GridAction) -> None:
        cell = cell_at(self.level.size, action.x, action.y) if action.number == CLICK else OUTSIDE
        state, outcome = self.rules.step(self.level, self._states[-1], Action(action.number, cell))
        self._states.append(state)
        if outcome is Outcome.LOST:
            self.state = GameState.GAME_OVER
        elif outcome is Outcome.SOLVED:
            self.level_actions.append(self.open_actions)
            if self.number + 1 < len(self.game.levels):
                self._enter(self.number + 1)
            else:
                self.state = GameState.WIN

    def _reset(self) -> None:
        if self.state is GameState.WIN or (not self._taken and not self.level_resets):
            self.level_actions, self.actions = [], 0
            self._enter(0)
        else:
            self.actions += 1
            self._enter(self.number)

    def _enter(self, number: int) -> None:
        if number != self.number:
            self._frames.clear()
        self.number, self.state, self._taken = number, GameState.NOT_FINISHED, 0
        self._states = [self.rules.begin(self.level)]
