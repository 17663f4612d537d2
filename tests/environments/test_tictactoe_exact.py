"""Exact evaluation against what dynamic programming over boards and plain playing say."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Mapping, Sequence
from itertools import islice
from random import Random

import pytest

from wanderlust.environments.tictactoe import (
    OPENINGS,
    ExactFigures,
    TicTacToe,
    best_response,
    build_policy_tree,
    greedy_opponent,
    mixed_opponent,
    opponent_named,
    optimal_opponent,
    solve_against,
    teacher_player,
    uniform_opponent,
)
from wanderlust.environments.tictactoe.exact import Node
from wanderlust.environments.tictactoe.prompts import find_board
from wanderlust.environments.tictactoe.rules import EMPTY_BOARD
from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollouts
from wanderlust.types import Message

SAFE = best_response(uniform_opponent, safe=True)


def corner_opener(board: str) -> Mapping[int, float]:
    """Opens in one of two corners, not equally often; then plays anywhere."""
    return {0: 0.8, 8: 0.2} if board == EMPTY_BOARD else uniform_opponent(board)


def first_best(messages: Sequence[Message], _: Random) -> str:
    board = find_board(messages[-1].content)
    assert board is not None
    return f"<think>plan</think><move>{min(SAFE(board))}</move>"


def whimsical(messages: Sequence[Message], _: Random) -> str:
    """Deterministic, depends on the whole conversation, often wrong in form or move."""
    rng = Random("".join(message.content for message in messages))
    text = f"<think>so</think><move>{rng.randrange(9)}</move>"
    return rng.choice((text, text, text, text[3:], "pass"))


def conversations(*nodes: Node) -> int:
    """Those in which the policy was asked."""
    return sum((node.ended is None) + conversations(*node.after.values()) for node in nodes)


def test_agrees_with_dynamic_programming_over_boards() -> None:
    tree = asyncio.run(build_policy_tree(Scripted(first_best)))
    for other in (uniform_opponent, optimal_opponent, greedy_opponent, mixed_opponent(0.4), corner_opener):
        shares = solve_against(lambda board: {min(SAFE(board)): 1.0}, other)
        figures = tree.figures(other)
        assert (figures.win, figures.draw, figures.loss) == pytest.approx(tuple(shares))
        assert (figures.invalid, figures.unfinished, figures.format) == (0, 0, pytest.approx(1))
        assert figures.reward == pytest.approx(shares.reward + 0.2)
    assert conversations(*tree.roots.values()) < 1965


def test_a_policy_that_never_answers_loses_everything() -> None:
    tree = asyncio.run(build_policy_tree(Scripted(lambda _messages, _rng: "pass")))
    assert conversations(*tree.roots.values()) == 7 * len(OPENINGS)
    figures = tree.figures(uniform_opponent)
    assert figures == ExactFigures(
        win=0, draw=0, loss=pytest.approx(1), unfinished=pytest.approx(1), invalid=pytest.approx(1), format=0
    )
    assert figures.reward == pytest.approx(-0.1)


async def played(name: str, number: int, heard: set[tuple[str, ...]]) -> list[float]:
    """Mean result, reward, invalid and unfinished share of plain games; notes every conversation."""

    def script(messages: Sequence[Message], rng: Random) -> str:
        heard.add(tuple(message.content for message in messages))
        return whimsical(messages, rng)

    env, sums = TicTacToe(), [0.0] * 4
    tasks = (
        task.__class__(id=task.id, info={"opponent": name, "first": n % 2 == 0})
        for n, task in enumerate(islice(env.tasks(), number))
    )
    async with rollouts(env, tasks, Scripted(script)) as groups:
        async for group in groups:
            (result,) = group.rollouts
            score = result.trajectory.score
            assert score is not None
            values = score.parts["result"], score.reward, score.parts["invalid"], result.stop_reason == "max_turns"
            sums = [a + b / number for a, b in zip(sums, values, strict=True)]
    return sums


@pytest.mark.parametrize("name", ["random", "optimal"])
def test_agrees_with_plain_playing_word_for_word(name: str) -> None:
    asked: set[tuple[str, ...]] = set()

    def noted(messages: Sequence[Message], rng: Random) -> str:
        asked.add(tuple(message.content for message in messages))
        return whimsical(messages, rng)

    figures = asyncio.run(build_policy_tree(Scripted(noted))).figures(opponent_named(name))
    heard: set[tuple[str, ...]] = set()
    means = asyncio.run(played(name, 1500, heard))
    expected = (figures.win + figures.draw / 2, figures.reward, figures.invalid, figures.unfinished)
    assert means == pytest.approx(expected, abs=0.05)
    assert heard <= asked


def test_trees_of_different_openings_merge_and_travel() -> None:
    policy = Scripted(first_best)
    halves = [asyncio.run(build_policy_tree(policy, openings=part)) for part in (OPENINGS[:1], OPENINGS[1:])]
    whole = asyncio.run(build_policy_tree(policy, concurrency=3))
    merged = halves[0].merged(pickle.loads(pickle.dumps(halves[1])))
    assert merged.figures(optimal_opponent) == whole.figures(optimal_opponent)
    with pytest.raises(UsageError, match="merge the trees"):
        halves[0].figures(uniform_opponent)


def test_report_rows() -> None:
    tree = asyncio.run(build_policy_tree(Scripted(first_best), wording="course"))
    rows = tree.rows("rl")
    assert [row["opponent"] for row in rows] == ["random", "optimal", "greedy"]
    keys = ["policy", "opponent", "win", "draw", "loss", "invalid", "format", "exact", "reward"]
    assert list(rows[0]) == keys
    assert rows[1]["draw"] == pytest.approx(1)
    assert list(ExactFigures.of(solve_against(teacher_player(), uniform_opponent)).row("teacher", "random")) == keys


def test_a_failing_policy_is_named_as_the_cause() -> None:
    with pytest.raises(PolicyFailure, match="asked for one more"):
        asyncio.run(build_policy_tree(Scripted(["<move>0</move>"])))
