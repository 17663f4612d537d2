"""What an option of a player costs by the true rules of a game: for training alone, as no player knows them."""

from __future__ import annotations

from wanderlust_grids.board import LOST, SOLVED, Action, GridTurn, State
from wanderlust_grids.cells import CLICK, OUTSIDE, RESET
from wanderlust_grids.drawing import cell_at
from wanderlust_grids.game import GridSession
from wanderlust_grids.learner import Decision
from wanderlust_grids.learner_options import Option
from wanderlust_grids.search import distances

MAX_STATES = 4000
"""Of a level, whose distances are known; others count as far as the level's beginning."""
MAX_REGRET = 20.0
"""Actions."""


class Regrets:
    """Keeps the distances of the levels that it has met, by the key of their game."""

    def __init__(self) -> None:
        self._distances: dict[tuple[str, int], dict[State, int]] = {}

    def of(self, session: GridSession, decision: Decision) -> list[float]:
        """For each option of a decision that is due, how many actions longer the level gets by it.

        All other decisions are taken as the best ones. A state from which the level cannot be solved costs a reset and
        a shortest solution.
        """
        key = session.game.key, session.number
        if key not in self._distances:
            self._distances[key] = distances(session.rules, session.level, max_states=MAX_STATES)
        judge = _Judge(session, decision, self._distances[key])
        return [min(MAX_REGRET, judge.cost(option) - judge.left(judge.start)) for option in decision.options]


class _Judge:
    def __init__(self, session: GridSession, decision: Decision, known: dict[State, int]):
        self.level, self.rules, self.square = session.level, session.rules, decision.square
        self.start = session.position
        self._distances = known
        self._turn = GridTurn(self.level, self.rules.hooks(self.level))
        self._again = 1 + len(session.game.solutions[session.number].actions)

    def left(self, state: State) -> int:
        """Actions to the solution."""
        return min(self._distances.get(state, self._again), self._again)

    def cost(self, option: Option) -> int:
        """Actions of an option and of the solution after it; an option is over where it goes another way."""
        state = self.start
        for taken, (action, expected) in enumerate(option.actions, 1):
            if action.number == RESET:
                return taken + self._again - 1
            cell = cell_at(self.level.size, action.x, action.y) if action.number == CLICK else OUTSIDE
            state, outcome = self.rules.advance(self._turn, state, Action(action.number, cell))
            if outcome is SOLVED:
                return taken
            if outcome is LOST:
                return taken + self._again
            if (
                expected is not None
                and self.square is not None
                and self._moved(state)
                != (
                    expected[0] - self.square[0],
                    expected[1] - self.square[1],
                )
            ):
                break
        return taken + self.left(state)

    def _moved(self, state: State) -> tuple[int, int]:
        size = self.level.size
        return state.avatar % size - self.start.avatar % size, state.avatar // size - self.start.avatar // size
