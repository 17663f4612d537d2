"""Where the seeker goes next: to what may end a level, then to what is new, and else on in the graph of frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from wanderlust_grids.avatar import BOARD_ROWS, Kind, Square
from wanderlust_grids.cells import CLICK, FRAME, MOVES, UNDO
from wanderlust_grids.experience import NOTHING, Experience
from wanderlust_grids.frontier import FrameGraph, Way, click_targets
from wanderlust_grids.game import GridAction, Observation
from wanderlust_grids.routes import Routes, find_routes

RANKS: Mapping[str, int] = {
    "used": 0,
    "solved": 1,
    "new": 2,
    "effect": 2,
    "solved-again": 3,
    "ground": 4,
    "inert": 4,
    "again": 5,
}
"""Of aims, the first ones first. By the kind of a square:

- `used`: such squares were touched, and changed something, in all solved levels that had them;
- `solved`: touching one has ended a level; `effect`: it has changed something; `inert`: it has done nothing;
- `new`: none was touched yet; `ground`: one of the two commonest kinds, where the avatar has not been;
- `again` and `solved-again`: this square was touched in this try, and something else has changed since.
"""
FATAL_RANK = 3
"""The least one of a square on the way to which the level was lost."""


class Aim(NamedTuple):
    """Something to touch; lower ones go first."""

    rank: int
    cost: int
    name: str
    target: Square | GridAction


def next_way(seen: Observation, memory: Experience, graph: FrameGraph) -> Way | None:
    """To the first aim, by rank and distance. Where there is none, to the nearest frame that has an action left."""
    square = memory.square(seen.frame)
    if square is not None and memory.lattice is not None:
        kinds = memory.lattice.kinds(seen.frame)
        routes = routes_from(square, kinds, memory)
        aim = min([*_squares(kinds, routes, memory), *_others(seen, memory)], default=None, key=lambda one: one[:2])
        if aim is not None:
            if isinstance(aim.target, GridAction):
                return Way([(aim.target, None)], aim.name)
            return Way(routes.actions(aim.target), aim.name)
    return graph.way(seen.frame)


def routes_from(start: Square, kinds: Mapping[Square, Kind], memory: Experience) -> Routes:
    """Ways over a board, by what is remembered."""
    barred = {kind for kind, counts in memory.kinds.items() if counts.bars}
    return find_routes(
        start,
        kinds,
        directions={number: memory.avatar.direction(number) for number in MOVES},
        seen=memory.seen,
        barred=barred.__contains__,
    )


def ground_of(kinds: Mapping[Square, Kind]) -> set[Kind]:
    """The two kinds that most squares are of."""
    return {kind for kind, _ in Counter(kinds.values()).most_common(2)}


def aim_name(square: Square, kind: Kind, memory: Experience, *, ground: bool) -> str | None:
    """What touching a square is good for; None for nothing."""
    about, touched = memory.kinds.get(kind, NOTHING), memory.touched.get(square)
    if ground and not about.solved:
        return None if square in memory.visited or about.bars else "ground"
    if about.lost and about.bars and not about.solved:
        return None
    if touched is not None:
        return None if touched >= memory.revision else "solved-again" if about.solved else "again"
    if about.solved:
        return "solved"
    if about.used and not about.skipped:
        return "used"
    return "effect" if about.changed else "inert" if about.tried else "new"


def _squares(kinds: Mapping[Square, Kind], routes: Routes, memory: Experience) -> Iterator[Aim]:
    ground = ground_of(kinds)
    for square, leg in [*routes.reached.items(), *routes.touched.items()]:
        kind = kinds.get(square)
        if leg is None or kind is None:
            continue
        name = aim_name(square, kind, memory, ground=kind in ground)
        if name is not None:
            fatal = memory.fatal[square]
            rank = max(RANKS[name], FATAL_RANK) if fatal else RANKS[name]
            yield Aim(rank, leg.distance + memory.touches[square] + 3 * fatal, name, square)


def _others(seen: Observation, memory: Experience) -> Iterator[Aim]:
    """Actions that were never taken, and clicks at colours that were never clicked, or where clicks change things."""
    for number in seen.available_actions:
        if number not in (*MOVES, CLICK, UNDO) and not memory.numbers.get(number, NOTHING).tried:
            yield Aim(RANKS["new"], 1, "new", GridAction(number=number))
    if CLICK not in seen.available_actions:
        return
    for action in click_targets(seen.frame):
        about = memory.colors.get(seen.frame[action.y * FRAME + action.x], NOTHING)
        if action.y >= BOARD_ROWS or action in memory.clicked:
            continue
        if not about.tried:
            yield Aim(RANKS["new"], 1, "new", action)
        elif about.changed / about.tried - memory.unrest >= 0.5:
            yield Aim(RANKS["effect"], 1, "effect", action)
