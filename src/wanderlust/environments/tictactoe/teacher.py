"""The scripted, imperfect teacher: reads the board from the text it is shown, answers in the asked form.

It sees one move ahead without fail: it takes a win and parries a threat. On every other move it is careless:
with probability `ERROR` it plays anywhere, else it plays as the best policy that never loses does against a
random opponent. Exact shares as X, who opens half of the games, found by dynamic programming:

| win / draw / loss in %   | teacher            | published teacher |
|--------------------------|--------------------|-------------------|
| against random moves     | 89.19 / 9.24 / 1.57 | 90 / 9 / 1        |
| against perfect play     | 0 / 76.27 / 23.73  | 0 / 76 / 24       |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from random import Random

from wanderlust.core.messages import Message
from wanderlust.core.types import Rollout
from wanderlust.environments.tictactoe.rules import free, pick, place, uniform, wins
from wanderlust.environments.tictactoe.solution import Player, best_response
from wanderlust.environments.tictactoe.wording import board_in
from wanderlust.policies.scripted import Scripted

ERROR = 0.5
"""Probability of an unplanned move when there is nothing to win and nothing to parry."""

REASONS = ("win", "block", "fork", "guard", "centre", "corner", "edge")
"""Every word that `reason` can say."""


def teacher_player(error: float = ERROR) -> Player:
    """The teacher's distribution over moves."""
    planned = _planned()

    def moves(board: str) -> Mapping[int, float]:
        plan = planned(board)
        if wins(board, "X") or wins(board, "O"):
            return plan
        base = error / len(free(board))
        return {cell: base + (1 - error) * plan.get(cell, 0.0) for cell in free(board)}

    return moves


def teacher(error: float = ERROR) -> Scripted:
    """The teacher as a policy that plays X; it fails when the last message shows no board."""
    moves = teacher_player(error)

    def answer(messages: Sequence[Message], rng: Random) -> str:
        board = board_in(messages[-1].content)
        if board is None:
            raise ValueError("the teacher finds no board in the last message")
        move = pick(moves(board), rng)
        return f"<think>{reason(board, move)}</think><move>{move}</move>"

    return Scripted(answer)


def reason(board: str, move: int) -> str:
    """One word that says why X plays `move`: what it does, else where it stands."""
    if move in wins(board, "X"):
        return "win"
    if move in wins(board, "O"):
        return "block"
    if len(wins(place(board, move, "X"), "X")) > 1:
        return "fork"
    if len(wins(place(board, move, "O"), "O")) > 1:
        return "guard"
    return "centre" if move == 4 else "corner" if move % 2 == 0 else "edge"


def worth_learning(rollout: Rollout) -> bool:
    """Whether a teacher's game is kept for warm-up: won or drawn, and every message well-formed."""
    return rollout.state.get("winner") in ("X", "draw") and rollout.state["malformed"] == 0


@cache
def _planned() -> Player:
    return best_response(uniform, safe=True)
