"""The game solved against an opponent with a fixed distribution over moves: exact shares, best responses.

X is to move on every board here. All figures are sums over every line of play, so they carry no sampling noise.

The lint of an opponent counts the boards that it can produce: an opponent with fixed habits leads every game down a few
lines, and a model that memorises those looks perfect against it and fails against any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal, NamedTuple, TypeAlias

from wanderlust.environments.tictactoe.rules import (
    EMPTY_BOARD,
    Opponent,
    best_moves,
    free,
    game_outcome,
    minimax_value,
    place_mark,
    uniform_opponent,
    uniform_over,
)

MoveDistribution: TypeAlias = Callable[[str], Mapping[int, float]]
"""X's probability of each move on a board where X is to move."""


class Shares(NamedTuple):
    """Probabilities of the ends of games; they sum to 1."""

    win: float = 0.0
    draw: float = 0.0
    loss: float = 0.0

    @property
    def reward(self) -> float:
        """Expected result: a win counts 1, a draw 0.5."""
        return self.win + 0.5 * self.draw


SHARES_BY_OUTCOME = {"X": Shares(win=1.0), "draw": Shares(draw=1.0), "O": Shares(loss=1.0)}


def blend_shares(parts: list[tuple[float, Shares]]) -> Shares:
    """The mean of shares weighted by probability."""
    return Shares(*(sum(weight * part[end] for weight, part in parts) for end in range(3)))


def shares_after_move(board: str, opponent: Opponent, go_on: Callable[[str], Shares]) -> Shares:
    """Shares from a board on which X has just moved; `go_on` gives those of the next X-to-move boards."""
    won = game_outcome(board)
    if won is not None:
        return SHARES_BY_OUTCOME[won]
    parts = []
    for cell, probability in opponent(board).items():
        then = place_mark(board, cell, "O")
        ended = game_outcome(then)
        parts.append((probability, SHARES_BY_OUTCOME[ended] if ended else go_on(then)))
    return blend_shares(parts)


def solve_against(player: MoveDistribution, opponent: Opponent) -> Shares:
    """Exact shares of `player` as X, who opens half of the games."""

    @cache
    def shares(board: str) -> Shares:
        return blend_shares(
            [
                (probability, shares_after_move(place_mark(board, cell, "X"), opponent, shares))
                for cell, probability in player(board).items()
                if probability
            ]
        )

    return blend_shares([(0.5, shares(EMPTY_BOARD)), (0.5, shares_after_move(EMPTY_BOARD, opponent, shares))])


def best_response(
    opponent: Opponent, *, safe: bool = False, prefer: Literal["fewer losses", "more wins"] | None = None
) -> MoveDistribution:
    """A player with the highest expected result against `opponent`; what is equal is played uniformly.

    `prefer` splits moves of equal result further. With `safe` it considers only moves that can never lose, as
    long as there are any.
    """

    def rank(after: Shares) -> tuple[float, float]:
        second = {None: 0.0, "fewer losses": -after.loss, "more wins": after.win}[prefer]
        return round(after.reward, 9), round(second, 9)

    def options(board: str) -> tuple[int, ...]:
        if not safe:
            return free(board)
        held = tuple(cell for cell in free(board) if minimax_value(place_mark(board, cell, "X"), "O") >= 0)
        return held or free(board)

    @cache
    def choose(board: str) -> tuple[Shares, tuple[int, ...]]:
        ranked = {cell: shares_after_move(place_mark(board, cell, "X"), opponent, shares) for cell in options(board)}
        best = max(map(rank, ranked.values()))
        cells = tuple(cell for cell, after in ranked.items() if rank(after) == best)
        return blend_shares([(1 / len(cells), ranked[cell]) for cell in cells]), cells

    def shares(board: str) -> Shares:
        return choose(board)[0]

    return lambda board: uniform_over(choose(board)[1])


def random_player(board: str) -> Mapping[int, float]:
    """X plays uniformly among the free cells: the floor."""
    return uniform_over(free(board))


def minimax_player(board: str) -> Mapping[int, float]:
    """X plays uniformly among its minimax-best moves."""
    return uniform_over(best_moves(board, "X"))


@lru_cache(maxsize=64)
def reachable_boards(opponent: Opponent, *, opening: tuple[bool, ...] = (True, False)) -> frozenset[str]:
    """Every X-to-move board that `opponent` can lead to, whatever X plays.

    `opening` says who may open: True for X, False for O.
    """
    boards: set[str] = set()
    frontier = {
        board for first in opening for board in ({EMPTY_BOARD} if first else boards_after_reply(EMPTY_BOARD, opponent))
    }
    while frontier:
        boards |= frontier
        moved = {place_mark(board, cell, "X") for board in frontier for cell in free(board)}
        frontier = {
            board for mid in moved if game_outcome(mid) is None for board in boards_after_reply(mid, opponent)
        } - boards
    return frozenset(boards)


def boards_after_reply(board: str, opponent: Opponent) -> set[str]:
    """The unfinished boards after each move that `opponent` may play."""
    after = {place_mark(board, cell, "O") for cell, probability in opponent(board).items() if probability > 0}
    return {then for then in after if game_outcome(then) is None}


MIN_COVERAGE = 0.25
"""Below this share of the positions a finding is returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpponentReach:
    """The boards that an opponent can lead X into."""

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


def opponent_reach(opponent: Opponent, *, opening: tuple[bool, ...] = (True, False)) -> OpponentReach:
    """Count the positions and replies of `opponent`; `opening` says whether X (True), O (False) or both open."""
    boards = reachable_boards(opponent, opening=opening)
    moved = {place_mark(board, cell, "X") for board in boards for cell in free(board)}
    answered_boards = {board for board in moved if game_outcome(board) is None} | (
        {EMPTY_BOARD} if False in opening else set()
    )
    replies = sum(share > 0 for board in answered_boards for share in opponent(board).values())
    return OpponentReach(positions=len(boards), replies=replies, possible=len(reachable_boards(uniform_opponent)))


def coverage(boards_seen: Iterable[str], opponent: Opponent = uniform_opponent) -> float:
    """The part of the positions `opponent` can produce that are among `boards_seen` (X-to-move boards)."""
    boards = reachable_boards(opponent)
    return len(boards & set(boards_seen)) / len(boards)


def lint_opponent(
    opponent: Opponent,
    *,
    opening: tuple[bool, ...] = (True, False),
    boards_seen: Iterable[str] | None = None,
) -> list[str]:
    """One line per finding, none when all is well: too few positions possible, too few seen in training."""
    findings, opponent_share = [], opponent_reach(opponent, opening=opening)
    if opponent_share.share < MIN_COVERAGE:
        findings.append(
            f"this opponent can produce {opponent_share.positions} of {opponent_share.possible} positions "
            f"({opponent_share.share:.0%}, {opponent_share.replies} replies): a model can memorise them; vary its moves"
        )
    if boards_seen is not None and (covered := coverage(boards_seen)) < MIN_COVERAGE:
        findings.append(
            f"training saw {covered:.0%} of the {opponent_share.possible} positions: "
            "play more games, more opponents or mid-game starts"
        )
    return findings


def boards_of(moves: Iterable[str], start: str = EMPTY_BOARD) -> list[str]:
    """The X-to-move boards of one game, from the `moves` (`X4`, `O0`, ...) and `start` of its state."""
    boards, board = [], start
    for move in moves:
        if move[0] == "X":
            boards.append(board)
        board = place_mark(board, int(move[1]), "X" if move[0] == "X" else "O")
    return boards
