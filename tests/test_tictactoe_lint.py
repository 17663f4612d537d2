"""The published trap: an opponent of habits shows a model almost nothing of the game."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from wanderlust.environments.tictactoe import (
    TicTacToe,
    boards_of,
    coverage,
    greedy,
    mixed,
    optimal,
    reach,
    reachable,
    solver,
    teacher,
    uniform,
)
from wanderlust.environments.tictactoe.prompts import board_in
from wanderlust.environments.tictactoe.rules import EMPTY, free, place, value
from wanderlust.runner.engine import rollout
from wanderlust.types import Task


def creature_of_habit(board: str) -> Mapping[int, float]:
    """Opens in the centre, then the first minimax-best move, every win worth the same."""
    if board == EMPTY:
        return {4: 1.0}
    worth = {cell: value(place(board, cell, "O"), "X") for cell in free(board)}
    signs = {cell: (worth[cell] > 0) - (worth[cell] < 0) for cell in worth}
    return {min(signs, key=lambda cell: (signs[cell], cell)): 1.0}


def test_the_published_trap_is_found() -> None:
    found = reach(creature_of_habit, opening=(False,))
    assert (found.positions, found.possible) == (41, 4520)
    (line,) = solver(creature_of_habit, opening=(False,))
    assert "41 of 4520" in line
    assert "\n" not in line


@pytest.mark.parametrize("opponent", [uniform, optimal, greedy, mixed(0.3)])
def test_the_opponents_here_pass(opponent) -> None:
    assert solver(opponent) == []


def test_numbers_of_replies() -> None:
    assert reach(optimal).positions == 1340
    assert reach(uniform).share == 1
    both = reach(creature_of_habit)
    apart = [reach(creature_of_habit, opening=(first,)) for first in (True, False)]
    assert both.positions == apart[0].positions + apart[1].positions  # X has as many marks as O, or one fewer
    assert both.replies == apart[0].replies + apart[1].replies
    assert reach(lambda board: {free(board)[0]: 1.0}, opening=(False,)).replies == 1 + 8 + 27 + 25 + 13
    assert both.replies < reach(optimal).replies < reach(uniform).replies


def test_coverage_of_what_training_saw() -> None:
    game = asyncio.run(rollout(TicTacToe(), Task(id="t"), teacher()))
    boards = boards_of(game.state["moves"], game.state["start"])
    assert boards == [board_in(turn.observation[-1].content) for turn in game.trajectory.turns]
    assert 0 < coverage(boards) < 0.01
    assert coverage(reachable(optimal)) == pytest.approx(1340 / 4520)
    assert coverage(reachable(uniform), optimal) == 1
    (line,) = solver(uniform, boards_seen=boards)
    assert line.startswith("training saw 0%")
    assert solver(uniform, boards_seen=reachable(greedy)) == []
