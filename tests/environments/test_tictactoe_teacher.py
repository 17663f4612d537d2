"""The teacher plays as its docstring says, and what it writes is worth learning."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest

from wanderlust.environments.tictactoe import (
    TicTacToe,
    move_reason,
    optimal_opponent,
    reachable_boards,
    solve_against,
    teacher_player,
    tictactoe_teacher,
    uniform_opponent,
    worth_learning,
)
from wanderlust.environments.tictactoe import tictactoe_teacher as policy
from wanderlust.environments.tictactoe.prompts import read
from wanderlust.environments.tictactoe.rules import free
from wanderlust.environments.tictactoe.teacher import MOVE_REASONS
from wanderlust.runner.engine import rollouts
from wanderlust.types import Rollout, user


async def games(number: int) -> list[Rollout]:
    env = TicTacToe(low=0.0, high=1.0)
    async with rollouts(env, islice(env.tasks(), number), tictactoe_teacher()) as groups:
        return [result async for group in groups for result in group.rollouts]


def test_shares_are_those_of_the_docstring_and_near_the_published() -> None:
    against_random, against_optimal = (
        [100 * share for share in solve_against(teacher_player(), opponent)]
        for opponent in (uniform_opponent, optimal_opponent)
    )
    assert against_random == pytest.approx((89.45, 7.51, 3.04), abs=0.006)
    assert against_optimal == pytest.approx((0, 75.79, 24.21), abs=0.006)
    assert against_random == pytest.approx((90, 9, 1), abs=2.1)
    assert against_optimal == pytest.approx((0, 76, 24), abs=0.3)


def test_without_errors_caution_decides_between_safety_and_daring() -> None:
    careful, daring = teacher_player(0.0, 1.0), teacher_player(0.0, 0.0)
    assert solve_against(careful, optimal_opponent).draw == pytest.approx(1)
    assert solve_against(daring, uniform_opponent).reward > solve_against(careful, uniform_opponent).reward
    assert solve_against(daring, optimal_opponent).loss > 0.2


def test_every_game_is_well_formed_and_legal() -> None:
    played = asyncio.run(games(300))
    assert all(game.state["malformed"] == game.state["invalid"] == 0 for game in played)
    kept = [game for game in played if worth_learning(game)]
    assert 0 < len(kept) < 300
    assert {game.state["winner"] for game in kept} == {"X", "draw"}


def test_the_reason_is_one_of_a_few_words() -> None:
    words = {move_reason(board, move) for board in reachable_boards(uniform_opponent) for move in free(board)}
    assert words == set(MOVE_REASONS)
    assert move_reason("XX.OO....", 2) == "win"
    assert move_reason("X..OO....", 5) == "block"
    assert move_reason("XX.OO....", 5) == "block"
    assert move_reason("." * 9, 4) == "open"


def test_the_same_key_draws_the_same_move() -> None:
    shown = [user("You start.\n012\n345\n678")]
    replies = [asyncio.run(policy().complete(shown, key=f"k{n // 2}")).message.content for n in range(40)]
    assert replies[::2] == replies[1::2]
    assert len(set(replies)) > 2
    assert all(read(reply).well_formed for reply in replies)
