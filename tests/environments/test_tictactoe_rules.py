"""Tic-tac-toe's rules and the game solved: reference values found once by exhaustive search."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from wanderlust.environments.tictactoe import (
    best_response,
    greedy_opponent,
    minimax_player,
    mixed_opponent,
    opponent_named,
    optimal_opponent,
    random_player,
    reachable_boards,
    solve_against,
    uniform_opponent,
)
from wanderlust.environments.tictactoe.rules import EMPTY_BOARD, best_moves, draw_move, game_outcome, minimax_value
from wanderlust.errors import UsageError

SAFE = best_response(uniform_opponent, safe=True)


@pytest.mark.parametrize(
    ("board", "expected"),
    [("XXX.OO...", "X"), ("O.XO.XOX.", "O"), ("XOXXOOOXX", "draw"), (EMPTY_BOARD, None), ("X...X...X", "X")],
)
def test_outcome(board: str, expected: str | None) -> None:
    assert game_outcome(board) == expected


def test_minimax_likes_fast_wins_and_slow_losses() -> None:
    assert minimax_value(EMPTY_BOARD, "X") == minimax_value(EMPTY_BOARD, "O") == 0
    assert best_moves("XX.OO....", "X") == (2,)
    assert minimax_value("XX.OO....", "X") == 5  # won with four cells left
    assert best_moves("XX.OO....", "O") == (5,)
    assert minimax_value("XX.OO....", "O") == -5


@pytest.mark.parametrize(
    ("player", "against_random", "against_optimal"),
    [
        (random_player, (43.7, 12.7, 43.7), (0.0, 12.7, 87.3)),
        (minimax_player, (87.3, 12.7, 0.0), (0.0, 100.0, 0.0)),
        (SAFE, (95.6, 4.4, 0.0), (0.0, 100.0, 0.0)),
    ],
)
def test_reference_shares(player, against_random, against_optimal) -> None:
    assert [100 * x for x in solve_against(player, uniform_opponent)] == pytest.approx(against_random, abs=0.051)
    assert [100 * x for x in solve_against(player, optimal_opponent)] == pytest.approx(against_optimal, abs=0.051)


def test_best_response_is_the_ceiling_of_every_difficulty() -> None:
    bold = solve_against(best_response(uniform_opponent, prefer="more wins"), uniform_opponent)
    assert [100 * x for x in bold] == pytest.approx((96.5, 3.1, 0.5), abs=0.051)
    careful = solve_against(best_response(uniform_opponent, prefer="fewer losses"), uniform_opponent)
    assert careful.reward == pytest.approx(bold.reward) == pytest.approx(0.980, abs=6e-4)
    assert careful.loss < bold.loss
    for share, ceiling in ((0.7, 0.919), (0.125, 0.615), (0, 0.5)):
        assert solve_against(best_response(mixed_opponent(share)), mixed_opponent(share)).reward == pytest.approx(
            ceiling, abs=6e-4
        )


def test_number_of_positions() -> None:
    assert len(reachable_boards(uniform_opponent)) == 4520
    assert len(reachable_boards(optimal_opponent)) == 1340


def test_greedy_sees_one_move_ahead() -> None:
    assert greedy_opponent("OO.XX....") == {2: 1.0}  # its own win first
    assert greedy_opponent("XX.O.....") == {2: 1.0}  # else it blocks
    assert len(greedy_opponent("X........")) == 8


def test_mixed_lies_between_its_ends() -> None:
    board = "X........"
    assert mixed_opponent(0.0)(board) == {cell: optimal_opponent(board).get(cell, 0.0) for cell in range(1, 9)}
    assert mixed_opponent(1.0)(board) == pytest.approx(uniform_opponent(board))
    assert sum(mixed_opponent(0.3)(board).values()) == pytest.approx(1)


def test_pick_follows_the_probabilities() -> None:
    drawn = Counter(draw_move({3: 0.25, 7: 0.75}, Random(n)) for n in range(4000))
    assert drawn[7] / 4000 == pytest.approx(0.75, abs=0.03)
    assert draw_move({5: 1 - 1e-12}, Random(0)) == 5


def test_unknown_opponent_is_told_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'optimal'"):
        opponent_named("optimum")
