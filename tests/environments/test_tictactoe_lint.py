"""The published trap: an opponent of habits shows a model almost nothing of the game."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from wanderlust.environments.tictactoe import (
    TicTacToe,
    boards_of,
    coverage,
    greedy_opponent,
    lint_opponent,
    mixed_opponent,
    opponent_reach,
    optimal_opponent,
    reachable_boards,
    tictactoe_teacher,
    uniform_opponent,
)
from wanderlust.environments.tictactoe.prompts import find_board
from wanderlust.environments.tictactoe.rules import EMPTY_BOARD, free, minimax_value, place_mark
from wanderlust.runner.engine import rollout
from wanderlust.types import Task


def creature_of_habit(board: str) -> Mapping[int, float]:
    """Opens in the centre, then the first minimax-best move, every win worth the same."""
    if board == EMPTY_BOARD:
        return {4: 1.0}
    worth = {cell: minimax_value(place_mark(board, cell, "O"), "X") for cell in free(board)}
    signs = {cell: (worth[cell] > 0) - (worth[cell] < 0) for cell in worth}
    return {min(signs, key=lambda cell: (signs[cell], cell)): 1.0}


def test_the_published_trap_is_found() -> None:
    found = opponent_reach(creature_of_habit, opening=(False,))
    assert (found.positions, found.possible) == (41, 4520)
    (line,) = lint_opponent(creature_of_habit, opening=(False,))
    assert "41 of 4520" in line
    assert "\n" not in line


@pytest.mark.parametrize("opponent", [uniform_opponent, optimal_opponent, greedy_opponent, mixed_opponent(0.3)])
def test_the_opponents_here_pass(opponent) -> None:
    assert lint_opponent(opponent) == []


def test_numbers_of_replies() -> None:
    assert opponent_reach(optimal_opponent).positions == 1340
    assert opponent_reach(uniform_opponent).share == 1
    both = opponent_reach(creature_of_habit)
    apart = [opponent_reach(creature_of_habit, opening=(first,)) for first in (True, False)]
    assert both.positions == apart[0].positions + apart[1].positions  # X has as many marks as O, or one fewer
    assert both.replies == apart[0].replies + apart[1].replies
    assert opponent_reach(lambda board: {free(board)[0]: 1.0}, opening=(False,)).replies == 1 + 8 + 27 + 25 + 13
    assert both.replies < opponent_reach(optimal_opponent).replies < opponent_reach(uniform_opponent).replies


def test_coverage_of_what_training_saw() -> None:
    game = asyncio.run(rollout(TicTacToe(), Task(id="t"), tictactoe_teacher()))
    boards = boards_of(game.state["moves"], game.state["start"])
    assert boards == [find_board(turn.observation[-1].content) for turn in game.trajectory.turns]
    assert 0 < coverage(boards) < 0.01
    assert coverage(reachable_boards(optimal_opponent)) == pytest.approx(1340 / 4520)
    assert coverage(reachable_boards(uniform_opponent), optimal_opponent) == 1
    (line,) = lint_opponent(uniform_opponent, boards_seen=boards)
    assert line.startswith("training saw 0%")
    assert lint_opponent(uniform_opponent, boards_seen=reachable_boards(greedy_opponent)) == []
