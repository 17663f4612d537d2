"""The game solved against an opponent that plays by a fixed distribution: exact shares, best responses.

X is to move on every board here. All figures are sums over every line of play, so they carry no sampling noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Literal, NamedTuple, TypeAlias

from wanderlust.environments.tictactoe.rules import (
    EMPTY,
    Opponent,
    best_moves,
    evenly,
    free,
    outcome,
    place,
    value,
)

Player: TypeAlias = Callable[[str], Mapping[int, float]]
"""X's probability of each move on a board where X is to move."""


class Shares(NamedTuple):
    """How games end: probabilities that sum to 1."""

    win: float = 0.0
    draw: float = 0.0
    loss: float = 0.0

    @property
    def reward(self) -> float:
        """Expected result: a win counts 1, a draw 0.5."""
        return self.win + 0.5 * self.draw


ENDS = {"X": Shares(win=1.0), "draw": Shares(draw=1.0), "O": Shares(loss=1.0)}


def blend(parts: list[tuple[float, Shares]]) -> Shares:
    """The mean of shares weighted by probability."""
    return Shares(*(sum(weight * part[end] for weight, part in parts) for end in range(3)))


def replied(board: str, opponent: Opponent, go_on: Callable[[str], Shares]) -> Shares:
    """Shares from a board on which X has just moved; `go_on` gives those of the next X-to-move boards."""
    won = outcome(board)
    if won is not None:
        return ENDS[won]
    parts = []
    for cell, probability in opponent(board).items():
        then = place(board, cell, "O")
        ended = outcome(then)
        parts.append((probability, ENDS[ended] if ended else go_on(then)))
    return blend(parts)


def solve(player: Player, opponent: Opponent) -> Shares:
    """Exact shares of `player` as X, who opens half of the games."""

    @cache
    def shares(board: str) -> Shares:
        return blend(
            [
                (probability, replied(place(board, cell, "X"), opponent, shares))
                for cell, probability in player(board).items()
                if probability
            ]
        )

    return blend([(0.5, shares(EMPTY)), (0.5, replied(EMPTY, opponent, shares))])


def best_response(
    opponent: Opponent, *, safe: bool = False, prefer: Literal["fewer losses", "more wins"] | None = None
) -> Player:
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
        held = tuple(cell for cell in free(board) if value(place(board, cell, "X"), "O") >= 0)
        return held or free(board)

    @cache
    def choose(board: str) -> tuple[Shares, tuple[int, ...]]:
        ranked = {cell: replied(place(board, cell, "X"), opponent, shares) for cell in options(board)}
        best = max(map(rank, ranked.values()))
        cells = tuple(cell for cell, after in ranked.items() if rank(after) == best)
        return blend([(1 / len(cells), ranked[cell]) for cell in cells]), cells

    def shares(board: str) -> Shares:
        return choose(board)[0]

    return lambda board: evenly(choose(board)[1])


def random_player(board: str) -> Mapping[int, float]:
    """X plays uniformly among the free cells: the floor."""
    return evenly(free(board))


def minimax_player(board: str) -> Mapping[int, float]:
    """X plays uniformly among its minimax-best moves."""
    return evenly(best_moves(board, "X"))


@lru_cache(maxsize=64)
def reachable(opponent: Opponent, *, opening: tuple[bool, ...] = (True, False)) -> frozenset[str]:
    """Every X-to-move board that `opponent` can lead to, whatever X plays.

    `opening` says who may open: True for X, False for O.
    """
    found: set[str] = set()
    frontier = {board for first in opening for board in ({EMPTY} if first else answers(EMPTY, opponent))}
    while frontier:
        found |= frontier
        moved = {place(board, cell, "X") for board in frontier for cell in free(board)}
        frontier = {board for mid in moved if outcome(mid) is None for board in answers(mid, opponent)} - found
    return frozenset(found)


def answers(board: str, opponent: Opponent) -> set[str]:
    """The unfinished boards after each move that `opponent` may play."""
    after = {place(board, cell, "O") for cell, probability in opponent(board).items() if probability > 0}
    return {then for then in after if outcome(then) is None}
