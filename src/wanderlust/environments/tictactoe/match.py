"""One game in progress, kept as plain data that the rubric and the viewer read."""

from __future__ import annotations

from typing import Any

from wanderlust.core.contracts import Episode
from wanderlust.core.errors import UsageError
from wanderlust.environments.tictactoe.rules import EMPTY, Mark, free, outcome, place
from wanderlust.environments.tictactoe.wording import Answer, Event, Refusal


class Match:
    """Guarantees that `state` is right after every move, so that a game cut short is scored right too.

    Its keys: `start` and `board`; `moves` as `X4`, of which the first `given` were the task's; `winner` (X, O, draw,
    or None while undecided); `first` (X opened); X's `turns`, `invalid` (refused answers) and `malformed` messages;
    `opponent`.
    `last` is what the next player is told: the cell just taken, or how the game begins.
    """

    def __init__(self, episode: Episode, opponent: str):
        info = episode.task.info
        self.board = _checked(info.get("board", EMPTY))
        first = info.get("first")
        if "board" in info:
            first = self.board.count("X") == self.board.count("O")
        elif moves := info.get("moves"):
            first = moves[0].startswith("X")
        elif first is None:
            first = episode.rng("first").random() < 0.5
        self.last: Event = info.get("last", "start" if self.board == EMPTY else "turn")
        if isinstance(self.last, int) and self.last not in _taken(self.board):
            raise UsageError(f"O has no mark on cell {self.last} of the tic-tac-toe board {self.board!r}")
        self.state: dict[str, Any] = episode.state
        self.state.update(
            start=self.board,
            board=self.board,
            moves=[],
            given=0,
            winner=None,
            first=bool(first),
            turns=0,
            invalid=0,
            malformed=0,
            opponent=opponent,
        )

    @property
    def over(self) -> bool:
        """Whether the game is decided."""
        return self.state["winner"] is not None

    @property
    def turn(self) -> Mark:
        """Who is to move."""
        return "X" if self.board.count("X") - self.board.count("O") == (0 if self.state["first"] else -1) else "O"

    def place(self, cell: int, mark: Mark) -> None:
        """Put a mark on a free cell."""
        self.board, self.last = place(self.board, cell, mark), cell
        self.state["moves"].append(f"{mark}{cell}")
        self.state["board"], self.state["winner"] = self.board, outcome(self.board)

    def given(self, move: str) -> None:
        """Play a move that the task prescribes. UsageError when it cannot be played."""
        if self.over or move not in [f"{self.turn}{cell}" for cell in free(self.board)]:
            raise UsageError(f"the move {move!r} cannot be played on the tic-tac-toe board {self.board!r}")
        self.place(int(move[1]), self.turn)
        self.state["given"] += 1

    def hear(self, answer: Answer, mark: Mark = "X") -> Refusal | None:
        """Play an answer, and count it if it is X's; returns why it was refused, if it was."""
        refused = refusal(answer, self.board)
        if mark == "X":
            self.state["turns"] += 1
            self.state["malformed"] += not answer.well_formed
            self.state["invalid"] += refused is not None
        if refused is None and answer.move is not None:
            self.place(answer.move, mark)
        return refused


def refusal(answer: Answer, board: str) -> Refusal | None:
    """Why an answer cannot be played on `board`; None when it can."""
    if answer.move is None:
        return "malformed"
    return None if answer.move in free(board) else "illegal"


def _taken(board: str) -> list[int]:
    """The cells of O."""
    return [cell for cell in range(9) if board[cell] == "O"]


def _checked(board: str) -> str:
    """The board itself; UsageError unless X is to move on it in an undecided game."""
    lead = board.count("X") - board.count("O")
    if len(board) != 9 or set(board) - set("XO.") or lead not in (0, -1) or outcome(board):
        raise UsageError(f"X cannot be to move on the tic-tac-toe board {board!r}")
    return board
