"""Opponent lint: does a scripted opponent show enough of the game to learn it from?

An opponent with fixed habits leads every game down a few lines, and a model that memorises those looks perfect
against it and is helpless against anyone else. So count what an opponent can produce before training, and what
training saw after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wanderlust.environments.tictactoe.rules import EMPTY, Opponent, free, outcome, place, uniform
from wanderlust.environments.tictactoe.solution import reachable

SLIVER = 0.25
"""Below this share of the positions a finding is returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What an opponent can lead X into."""

    positions: int
    """Distinct X-to-move boards."""
    replies: int
    """Distinct pairs of a board after X's move and O's reply to it, O's first moves included."""
    possible: int
    """X-to-move boards that any opponent could produce."""

    @property
    def share(self) -> float:
        """Part of the possible positions that this opponent can produce."""
        return self.positions / self.possible


def reach(opponent: Opponent, *, opening: tuple[bool, ...] = (True, False)) -> Reach:
    """Count the positions and replies of `opponent`; `opening` says whether X (True), O (False) or both open."""
    boards = reachable(opponent, opening=opening)
    moved = {place(board, cell, "X") for board in boards for cell in free(board)}
    asked = {board for board in moved if outcome(board) is None} | ({EMPTY} if False in opening else set())
    replies = sum(share > 0 for board in asked for share in opponent(board).values())
    return Reach(positions=len(boards), replies=replies, possible=len(reachable(uniform)))


def coverage(boards_seen: Iterable[str], opponent: Opponent = uniform) -> float:
    """The part of the positions `opponent` can produce that are among `boards_seen` (X-to-move boards)."""
    boards = reachable(opponent)
    return len(boards & set(boards_seen)) / len(boards)


def lint(
    opponent: Opponent,
    *,
    opening: tuple[bool, ...] = (True, False),
    boards_seen: Iterable[str] | None = None,
    sliver: float = SLIVER,
) -> list[str]:
    """One line per finding, none when all is well: too few positions possible, too few seen in training."""
    findings, found = [], reach(opponent, opening=opening)
    if found.share < sliver:
        findings.append(
            f"this opponent can produce {found.positions} of {found.possible} positions "
            f"({found.share:.0%}, {found.replies} replies): a model can memorise them; vary its moves"
        )
    if boards_seen is not None and (seen := coverage(boards_seen)) < sliver:
        findings.append(
            f"training saw {seen:.0%} of the {found.possible} positions: "
            "play more games, more opponents or mid-game starts"
        )
    return findings


def boards_of(moves: Iterable[str], start: str = EMPTY) -> list[str]:
    """The X-to-move boards of one game, from the `moves` (`X4`, `O0`, ...) and `start` of its state."""
    boards, board = [], start
    for move in moves:
        if move[0] == "X":
            boards.append(board)
        board = place(board, int(move[1]), "X" if move[0] == "X" else "O")
    return boards
