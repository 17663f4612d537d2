"""What a player could do in a frame, and what is known of it: the options of `learner` and their features.

The options are: walk to a square that is no ground or was not visited, take a simple action, click a piece, go where
the seeker would go, and begin the level again. Most features are shared by all sorts of options, so that weights that
were learnt of walks say something of clicks. No feature names a color, as other games have other ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from wanderlust_grids.aims import aim_name, ground_of, next_way, routes_from
from wanderlust_grids.avatar import BOARD_ROWS, Kind, Square, pieces
from wanderlust_grids.cells import CLICK, FRAME, MOVES, RESET, UNDO
from wanderlust_grids.drawing import Frame
from wanderlust_grids.experience import NOTHING, Counts, Experience
from wanderlust_grids.frontier import FrameGraph
from wanderlust_grids.game import GridAction, Observation
from wanderlust_grids.routes import Leg, Routes

LARGE_PIXELS, SMALL_PIXELS = 400, 40
"""Pieces above and below are told apart."""
LATE_ACTIONS = 40
"""Of a level, after which it is late."""

Features = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Option:
    """Something to do: actions, with the squares that they should lead to, and what is known of it."""

    actions: Sequence[tuple[GridAction, Square | None]]
    features: Features


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What options are made of: a frame, what is remembered, and how long the level has been played."""

    seen: Observation
    memory: Experience
    graph: FrameGraph
    since_reset: int = 0
    """Actions since the level began, or began again."""
    resets: int = 0
    """Of this level."""


def options(now: Situation) -> Iterator[Option]:
    """All that can be done in a frame; there is always something."""
    seen, memory = now.seen, now.memory
    square = memory.square(seen.frame)
    stage = "open" if any(number in MOVES for number in seen.available_actions) else "board"
    if square is not None and memory.lattice is not None:
        memory.visited.add(square)
        stage, found = _walks(memory, memory.lattice.kinds(seen.frame), square)
        yield from found
    for number in seen.available_actions:
        if number not in (CLICK, UNDO):
            yield _simple(seen.frame, number, memory, square=square)
    if CLICK in seen.available_actions:
        yield from _clicks(seen.frame, memory, stage)
    yield from _ways_on(now, stage)


def _ways_on(now: Situation, stage: str) -> Iterator[Option]:
    """What the seeker would do, and a reset."""
    late, way = min(1.0, now.since_reset / LATE_ACTIONS), next_way(now.seen, now.memory, now.graph)
    if way is not None:
        length = len(way.actions)
        features = {
            "frontier": 1.0,
            "frontier/distance": length / 10,
            "frontier/near": 1 / length,
            "frontier/late": late,
            "frontier/unrest": now.memory.unrest,
            f"frontier/{way.name}": 1.0,
            f"frontier/{stage}": 1.0,
        }
        yield Option(way.actions, features)
    if now.since_reset:
        features = {
            "reset": 1.0,
            "reset/late": late,
            "reset/again": min(now.resets, 4) / 4,
            "reset/no-frontier": float(way is None),
            f"reset/{stage}": 1.0,
        }
        yield Option([(GridAction(number=RESET), None)], features)


def _shared(
    memory: Experience, about: Counts, stage: str, *, distance: int, done: bool, since: bool
) -> dict[str, float]:
    """Features of walks, clicks and actions alike."""
    tries, unrest = about.tried + 1, memory.unrest
    effect = max(0.0, (about.changed + 0.5 * (about.tried == 0)) / tries - unrest)
    fresh = not done or since
    found = {
        "distance": distance / 10,
        "near": 1 / distance,
        "done": float(done and not since),
        "since": float(since) * (1 - unrest),
        "lost": about.lost / tries,
        "inert": float(about.tried > 1 and not about.changed and not about.solved),
        "here": min(about.here, 4) / 4,
    }
    if about.solved:
        found["solved" if not done else "solved/since" if since else "solved/done"] = 1.0
    elif not about.tried:
        found["new"] = 1.0
        found[f"new/{stage}"] = 1.0
    elif fresh:
        found["effect"] = effect
        found[f"effect/{stage}"] = effect
        found["effect/done"] = effect * done
    if about.used or about.skipped:
        share = about.used / (about.used + about.skipped)
        found["used" if fresh else "used/done"] = share
        found["skipped" if fresh else "skipped/done"] = 1 - share
    return found


def _simple(frame: Frame, number: int, memory: Experience, *, square: Square | None) -> Option:
    """One action."""
    action, counts = GridAction(number=number), memory.numbers[number]
    tries = memory.tries.get((frame, action), 0)
    features = {
        "simple": 1.0,
        "simple/changed": (counts.changed + 0.5) / (counts.tried + 1),
        "simple/few": 1 / (1 + counts.tried),
        "simple/tries": min(tries, 3) / 3,
        "simple/new": float(tries == 0),
        "simple/no-square": float(square is None),
    }
    if number not in MOVES:
        features["new"] = float(not counts.tried)
        features["simple/no-move"] = 1.0
    elif square is not None and memory.lattice is not None:
        x, y = memory.avatar.direction(number)
        beside = square[0] + x, square[1] + y
        kind, known = memory.lattice.kind(frame, beside), memory.seen.get((square, number))
        end = known[1] if known is not None and known[0] == kind else None
        about = NOTHING if kind is None else memory.kinds.get(kind, NOTHING)
        features["simple/seen"] = float(end is not None)
        features["simple/stays"] = float(end == square)
        features["simple/visited"] = float((end or beside) in memory.visited)
        features["simple/lost"] = about.lost / max(1, about.tried)
        if end is None:
            features["simple/blocked"] = about.blocked / max(1, about.tried)
    return Option([(action, None)], features)


def _walks(memory: Experience, kinds: Mapping[Square, Kind], start: Square) -> tuple[str, list[Option]]:
    """How far the level is, and walks to each square that is no ground and to the nearest one that was not visited."""
    routes, counts, ground = routes_from(start, kinds, memory), Counter(kinds.values()), ground_of(kinds)
    stage, exits = _stage(memory, kinds, routes)
    found = []
    for square, leg in [*routes.reached.items(), *routes.touched.items()]:
        kind = kinds.get(square)
        if leg is None or kind is None or kind in ground:
            continue
        features = _walk_features(memory, square, kind, leg=leg, count=counts[kind], stage=stage)
        features["walk/barred"] = float(square in routes.touched)
        if exits and square not in exits:
            features["walk/to-exit"] = min(abs(square[0] - x) + abs(square[1] - y) for x, y in exits) / 10
        name = aim_name(square, kind, memory, ground=False)
        if name is not None:
            features[f"walk/{name}"] = 1.0
        features["walk/touches"] = min(memory.touches[square], 5) / 5
        features["walk/fatal"] = min(memory.fatal[square], 3) / 3
        found.append(Option(routes.actions(square), features))
    new = next((one for one in routes.reached if one not in memory.visited), None)
    leg = None if new is None else routes.reached[new]
    if new is not None and leg is not None:
        features = {"ground": 1.0, "ground/distance": leg.distance / 10, "ground/near": 1 / leg.distance}
        features[f"ground/{stage}"] = 1.0
        found.append(Option(routes.actions(new), features))
    return stage, found


def _stage(memory: Experience, kinds: Mapping[Square, Kind], routes: Routes) -> tuple[str, list[Square]]:
    """`open` where nothing is seen that has ended a level; else what came of it: `exit`, `far`, `failed`, `again`.

    A game without moves is at the stage `board`.
    """
    exits = [square for square, kind in kinds.items() if memory.kinds.get(kind, NOTHING).solved]
    if not exits:
        return "open", exits
    touched = [memory.touched[one] for one in exits if one in memory.touched]
    if touched:
        return ("again" if min(touched) < memory.revision else "failed"), exits
    return ("exit" if any(one in routes.reached or one in routes.touched for one in exits) else "far"), exits


def _walk_features(
    memory: Experience, square: Square, kind: Kind, *, leg: Leg, count: int, stage: str
) -> dict[str, float]:
    about, touched = memory.kinds.get(kind, NOTHING), memory.touched.get(square)
    since = touched is not None and touched < memory.revision
    found = _shared(memory, about, stage, distance=leg.distance, done=touched is not None, since=since)
    return found | {
        "walk": 1.0,
        "walk/guesses": leg.guesses / 10,
        "walk/single": float(count == 1),
        "walk/count": min(count, 10) / 10,
        "walk/full": float(kind[0] == kind[2]),
        "walk/half": float(kind[0] == kind[1] != kind[2]),
    }


def _clicks(frame: Frame, memory: Experience, stage: str) -> Iterator[Option]:
    """In the middle of each piece."""
    overall = memory.numbers[CLICK]
    share, points = (overall.changed + 0.5) / (overall.tried + 1), set[tuple[int, int]]()
    for piece in pieces(frame):
        x, y = piece.x + piece.width // 2, piece.y + piece.height // 2
        if piece.y >= BOARD_ROWS or (x, y) in points:
            continue
        points.add((x, y))
        action, color = GridAction(number=CLICK, x=x, y=y), frame[y * FRAME + x]
        about, result = memory.colors.get(color, NOTHING), memory.results.get((frame, action))
        found = _shared(memory, about, stage, distance=1, done=result is not None, since=False)
        yield Option(
            [(action, None)],
            found
            | {
                "click": 1.0,
                "click/changed": (about.changed + share) / (about.tried + 1),
                "click/tried": float(result is not None),
                "click/nothing": float(result == frame),
                "click/back": float(result is not None and result != frame and result in memory.visits),
                "click/again": float(memory.last_click == action),
                "click/large": float(piece.pixels > LARGE_PIXELS),
                "click/small": float(piece.pixels < SMALL_PIXELS),
            },
        )
