"""What a game is worth: the result, a small term for the form, a flat penalty for refused answers."""

from __future__ import annotations

from wanderlust.core.types import Rollout, Trajectory
from wanderlust.rubrics.rubric import Weighted, WeightedRubric

WIN, DRAW = 1.0, 0.5


def result(rollout: Rollout, trajectory: Trajectory) -> float:
    """1 for a win of this seat, 0.5 for a draw, 0 for a loss or an unfinished game."""
    winner = rollout.state.get("winner")
    if winner == "draw":
        return DRAW
    return WIN if winner == ("O" if trajectory.seat == "opponent" else "X") else 0.0


def format(rollout: Rollout, trajectory: Trajectory) -> float:
    """The share of X's messages that were well-formed."""
    turns = rollout.state.get("turns", 0)
    return 1 - rollout.state["malformed"] / turns if turns else 0.0


def invalid(rollout: Rollout, trajectory: Trajectory) -> float:
    """1 if any of X's answers was refused. Flat, so that one long failure is not punished many times."""
    return float(rollout.state.get("invalid", 0) > 0)


def win(rollout: Rollout, trajectory: Trajectory) -> float:
    """1 for a win of this seat."""
    return float(result(rollout, trajectory) == WIN)


def draw(rollout: Rollout, trajectory: Trajectory) -> float:
    """1 for a draw."""
    return float(rollout.state.get("winner") == "draw")


def loss(rollout: Rollout, trajectory: Trajectory) -> float:
    """1 for a loss or an unfinished game."""
    return float(result(rollout, trajectory) == 0.0)


FORMAT_WEIGHT, INVALID_WEIGHT = 0.2, -0.1


def game_rubric() -> WeightedRubric:
    """The training reward: result + 0.2 x format - 0.1 if any answer was refused. Won, drawn and lost are metrics."""
    counted = [Weighted(count, 0.0) for count in (win, draw, loss)]
    return WeightedRubric(result, Weighted(format, FORMAT_WEIGHT), Weighted(invalid, INVALID_WEIGHT), *counted)
