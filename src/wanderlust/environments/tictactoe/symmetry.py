"""The same game seen from another side, and the same game joined later: more to learn from few games."""

from __future__ import annotations

from wanderlust.core.messages import Message, assistant
from wanderlust.core.types import Rollout, Trajectory, Turn
from wanderlust.environments.tictactoe.rules import EMPTY, place
from wanderlust.environments.tictactoe.wording import MOVE, Event, Wording

_QUARTER = (2, 5, 8, 1, 4, 7, 0, 3, 6)
_MIRROR = (2, 1, 0, 5, 4, 3, 8, 7, 6)


def _views() -> tuple[tuple[int, ...], ...]:
    """Where each cell goes, for the four turns of the board and their mirror images."""
    turned: list[tuple[int, ...]] = [tuple(range(9))]
    for _ in range(3):
        turned.append(tuple(_QUARTER[cell] for cell in turned[-1]))
    return (*turned, *(tuple(_MIRROR[cell] for cell in view) for view in turned))


VIEWS = _views()
"""The eight symmetries of the board."""


def seen_as(rollout: Rollout, view: tuple[int, ...], words: Wording, *, join: int = 0) -> Trajectory:
    """X's trajectory of a finished, legally played game as it would read on the board turned by `view`.

    `join` leaves out X's first turns: the conversation then begins with the position as it stood. Reasons are
    kept word for word, so they must not name cells.
    """
    board, event, turns = EMPTY, _opening(rollout), list[Turn]()
    answers = [turn.action for turn in rollout.trajectory.turns]
    for move in rollout.state["moves"]:
        cell = view[int(move[1])]
        if move[0] == "X":
            number = sum(mark == "X" for mark in board)
            if number >= join:
                head: tuple[Message, ...] = () if turns else (words.role("X"),)
                shown = words.show("X", event, board)
                turns.append(Turn(observation=(*head, shown), action=_moved(answers[number], cell)))
        board = place(board, cell, move[0])
        event = cell
    return Trajectory(turns=turns)


def _opening(rollout: Rollout) -> Event:
    return "start" if rollout.state["first"] else 0


def _moved(answer: Message, cell: int) -> Message:
    return assistant(MOVE.sub(f"<move>{cell}</move>", answer.content))
