"""What a game is worth: the result, a small term for the form, a flat penalty for refused answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wanderlust.rubrics.part import Part, metric
from wanderlust.rubrics.rubric import Rubric

WIN, DRAW = 1.0, 0.5


def result(state: Mapping[str, Any], seat: str) -> float:
    """1 for a win of this seat, 0.5 for a draw, 0 for a loss or an unfinished game."""
    winner = state.get("winner")
    if winner == "draw":
        return DRAW
    return WIN if winner == ("O" if seat == "opponent" else "X") else 0.0


def format(state: Mapping[str, Any]) -> float:
    """The share of X's messages that were well-formed."""
    turns = state.get("turns", 0)
    return 1 - state["malformed"] / turns if turns else 0.0


def invalid(state: Mapping[str, Any]) -> float:
    """1 if any of X's answers was refused. Flat, so that one long failure is not punished many times."""
    return float(state.get("invalid", 0) > 0)


def win(state: Mapping[str, Any], seat: str) -> float:
    """1 for a win of this seat."""
    return float(result(state, seat) == WIN)


def draw(state: Mapping[str, Any]) -> float:
    """1 for a draw."""
    return float(state.get("winner") == "draw")


def loss(state: Mapping[str, Any], seat: str) -> float:
    """1 for a loss or an unfinished game."""
    return float(result(state, seat) == 0.0)


FORMAT_WEIGHT, INVALID_WEIGHT = 0.2, -0.1


def game_rubric() -> Rubric:
    """The training reward: result + 0.2 x format - 0.1 if any answer was refused. Won, drawn and lost are metrics."""
    counted = [metric(count) for count in (win, draw, loss)]
    return Rubric(result, Part(format, FORMAT_WEIGHT), Part(invalid, INVALID_WEIGHT), *counted)
