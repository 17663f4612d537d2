"""Exact shortest solutions of levels, by breadth-first search over states."""

from __future__ import annotations

from dataclasses import dataclass

from wanderlust_grids.board import LOST, SOLVED, Action, GridTurn, Level, Rules, State
from wanderlust_grids.cells import RIGHT

MAX_STATES = 2500
"""States that a search visits before it gives up."""
MAX_ACTIONS = 1000
"""Of a solution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A shortest solution."""

    actions: tuple[Action, ...]
    states: int
    """States that the search saw."""


class TooLarge(Exception):
    """A level has more states than a search may visit."""


def shortest_solution(
    rules: Rules, level: Level, *, max_states: int = MAX_STATES, max_actions: int = MAX_ACTIONS
) -> Solution | None:
    """The first of the shortest solutions, by the order of actions; None where there is none of at most `max_actions`.

    Raises TooLarge where `max_states` do not settle it.
    """
    first, candidates, turn = rules.begin(level), rules.candidates(level), GridTurn(level, rules.hooks(level))
    still = not turn.hooks.settle and not turn.hooks.translate
    came: dict[State, tuple[State, Action] | None] = {first: None}
    frontier = [first]
    for _ in range(max_actions):
        reached = []
        for state in frontier:
            ways = level.ways[state.avatar]
            for action in candidates:
                if still and action[0] <= RIGHT and ways[action[0]] < 0:
                    continue  # at a wall nothing changes
                following, outcome = rules.advance(turn, state, action)
                if following in came or outcome is LOST:
                    continue
                came[following] = (state, action)
                if outcome is SOLVED:
                    return Solution(actions=_path(came, following), states=len(came))
                reached.append(following)
            if len(came) > max_states:
                raise TooLarge(f"more than {max_states} states")
        if not reached:
            break
        frontier = reached
    return None


def _path(came: dict[State, tuple[State, Action] | None], state: State) -> tuple[Action, ...]:
    out = []
    while (step := came[state]) is not None:
        state, action = step
        out.append(action)
    return tuple(reversed(out))


def distances(rules: Rules, level: Level, *, max_states: int) -> dict[State, int]:
    """The actions of a shortest solution from each state that can still be solved, of the first `max_states` states."""
    first, candidates, turn = rules.begin(level), rules.candidates(level), GridTurn(level, rules.hooks(level))
    before: dict[State, list[State]] = {first: []}
    states, edge = [first], []
    for state in states:
        if len(states) >= max_states:
            break
        for action in candidates:
            following, outcome = rules.advance(turn, state, action)
            if outcome is SOLVED:
                edge.append(state)
            elif outcome is not LOST:
                if following not in before:
                    before[following] = []
                    states.append(following)
                before[following].append(state)
    found: dict[State, int] = {}
    length = 0
    while edge:
        length += 1
        new = [state for state in dict.fromkeys(edge) if state not in found]
        found.update(dict.fromkeys(new, length))
        edge = [state for one in new for state in before[one]]
    return found
