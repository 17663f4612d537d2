"""Ways over squares of which some are known: what was tried is taken as seen, and the rest as open."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from wanderlust_grids.avatar import Direction, Kind, Square
from wanderlust_grids.game import GridAction


class Leg(NamedTuple):
    """The last action of a way to a square."""

    origin: Square
    number: int
    distance: int
    """Actions of the whole way."""
    guesses: int
    """Of these, those whose end has not been seen."""


class Routes(NamedTuple):
    """The shortest ways from one square."""

    reached: Mapping[Square, Leg | None]
    """Squares to stand on; None for the first."""
    touched: Mapping[Square, Leg]
    """Squares that bar the way, as far as is known, and can be run into."""

    def way(self, square: Square) -> list[tuple[int, Square]]:
        """Actions to a square, with the squares that they lead to."""
        steps = []
        leg = self.reached.get(square) or self.touched.get(square)
        while leg is not None:
            steps.append((leg.number, square))
            square, leg = leg.origin, self.reached[leg.origin]
        return steps[::-1]

    def actions(self, square: Square) -> list[tuple[GridAction, Square | None]]:
        """The same as actions of a player."""
        return [(GridAction(number=number), end) for number, end in self.way(square)]


def find_routes(
    start: Square,
    kinds: Mapping[Square, Kind],
    *,
    directions: Mapping[int, Direction],
    seen: Mapping[tuple[Square, int], tuple[Kind, Square]],
    barred: Callable[[Kind], bool],
) -> Routes:
    """Search in breadth.

    Args:
        start: Where the avatar stands.
        kinds: What squares look like.
        directions: Of the moves.
        seen: By square and action, what the next square looked like, and where the action led. It holds as long as
            the next square looks so.
        barred: Whether squares of a kind are never entered.
    """
    reached: dict[Square, Leg | None] = {start: None}
    touched: dict[Square, Leg] = {}
    edge = deque([start])
    while edge:
        here = edge.popleft()
        leg = reached[here]
        distance, guesses = (0, 0) if leg is None else (leg.distance, leg.guesses)
        for number, (x, y) in directions.items():
            beside = here[0] + x, here[1] + y
            kind, known = kinds.get(beside), seen.get((here, number))
            if kind is None or beside == here:
                continue
            end = known[1] if known is not None and known[0] == kind else None
            following = Leg(here, number, distance + 1, guesses + (end is None))
            if end is None and barred(kind):
                touched.setdefault(beside, following)
            elif (end or beside) not in reached:
                reached[end or beside] = following
                edge.append(end or beside)
    return Routes(reached, {square: leg for square, leg in touched.items() if square not in reached})
