"""A player of frames with weights that were trained on other games: it lists what it could do, and weighs each.

It finds out within a game which piece it moves, what squares of each kind do, and which clicks change the frame. The
options are: walk to a square that is no ground or was not visited, take a simple action, click a piece. Each has a few
named features, the weights of which are those of a linear softmax policy (`learner_training`). No feature names a
color, as other games have other ones.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from random import Random

import msgspec

from wanderlust.environments.grids.avatar import BOARD_ROWS, Kind, Square, pieces
from wanderlust.environments.grids.cells import CLICK, FRAME, MOVES, RESET, UNDO
from wanderlust.environments.grids.drawing import Frame
from wanderlust.environments.grids.experience import Attempt, Counts, Experience
from wanderlust.environments.grids.game import GameState, GridAction, Observation
from wanderlust.environments.grids.routes import Leg, Routes, find_routes
from wanderlust.errors import UsageError, one_line

WEIGHTS_FILE = "learner_weights.json"
MAX_WEIGHTS_BYTES, MAX_WEIGHT = 1 << 20, 1000.0
LARGE_PIXELS, SMALL_PIXELS = 400, 40
"""Pieces above and below are told apart."""
TEMPERATURE = 0.25
"""At which options are drawn; of 1, 0.5 and 0.25 the best on games of `train` that were not trained on."""

Features = Mapping[str, float]
Weights = Mapping[str, float]
NOTHING = Counts()


@dataclass(frozen=True, slots=True)
class Option:
    """Something to do: actions, with the squares that they should lead to, and what is known of it."""

    actions: Sequence[tuple[GridAction, Square | None]]
    features: Features


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice, as training needs it."""

    options: Sequence[Features]
    chosen: int
    action: int
    """Number of actions in the game before it."""


def option_shares(options: Sequence[Features], weights: Weights, temperature: float = 1.0) -> list[float]:
    """The probability of each option: the softmax of its weighted features."""
    values = [sum(weights.get(name, 0.0) * value for name, value in one.items()) for one in options]
    top = max(values)
    powers = [math.exp((value - top) / temperature) for value in values]
    total = sum(powers)
    return [one / total for one in powers]


class Learner:
    """Plays one game with given weights.

    Args:
        rng: Draws among the options.
        weights: By the names of features; a feature without one counts nothing.
        temperature: Lower ones draw the best option more often.
        decisions: Choices are appended here.
    """

    def __init__(
        self,
        rng: Random,
        weights: Weights | None = None,
        *,
        temperature: float = TEMPERATURE,
        decisions: list[Decision] | None = None,
    ):
        self._rng, self._weights = rng, shipped_weights() if weights is None else weights
        self._temperature, self._decisions = temperature, decisions
        self._memory, self._level, self._actions = Experience(), -1, 0
        self._attempt: Attempt | None = None
        self._plan: deque[tuple[GridAction, Square | None]] = deque()

    def choose(self, seen: Observation) -> GridAction:
        """The next action of the option that was drawn, or of a new one where that is over or went another way."""
        solved = seen.levels_completed != self._level
        if self._attempt is not None and not self._memory.learn(self._attempt, seen, solved=solved):
            self._plan.clear()
        if solved:
            self._level = seen.levels_completed
            self._memory.begin_level(seen.frame)
            self._plan.clear()
        self._actions += 1
        if seen.state is not GameState.NOT_FINISHED:
            self._attempt = None
            self._plan.clear()
            return GridAction(number=RESET)
        if not self._plan:
            self._plan.extend(self._draw(seen))
        action, expected = self._plan.popleft()
        self._attempt = self._memory.begin(seen.frame, action, expected)
        return action

    def _draw(self, seen: Observation) -> Sequence[tuple[GridAction, Square | None]]:
        found = [*options(seen, self._memory)]
        features = [one.features for one in found]
        shares = option_shares(features, self._weights, self._temperature)
        (chosen,) = self._rng.choices(range(len(found)), shares)
        if self._decisions is not None:
            self._decisions.append(Decision(features, chosen, self._actions - 1))
        return found[chosen].actions


def options(seen: Observation, memory: Experience) -> Iterator[Option]:
    """All that can be done in a frame; there is always something."""
    square = memory.square(seen.frame)
    for number in seen.available_actions:
        if number not in (CLICK, UNDO):
            yield _simple(seen.frame, number, memory, square=square)
    if square is not None and memory.lattice is not None:
        memory.visited.add(square)
        yield from _walks(memory, memory.lattice.kinds(seen.frame), square)
    if CLICK in seen.available_actions:
        yield from _clicks(seen.frame, memory)


def _simple(frame: Frame, number: int, memory: Experience, *, square: Square | None) -> Option:
    """One action."""
    action, counts = GridAction(number=number), memory.numbers[number]
    tries = memory.tries.get((frame, action), 0)
    features = {
        "simple": 1.0,
        "simple/no-move": float(number not in MOVES),
        "simple/changed": (counts.changed + 0.5) / (counts.tried + 1),
        "simple/few": 1 / (1 + counts.tried),
        "simple/tries": min(tries, 3) / 3,
        "simple/new": float(tries == 0),
        "simple/no-square": float(square is None),
    }
    if number in MOVES and square is not None and memory.lattice is not None:
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


def _walks(memory: Experience, kinds: Mapping[Square, Kind], start: Square) -> Iterator[Option]:
    """To each square that is no ground, and to the nearest one that was not visited."""
    routes = find_routes(
        start,
        kinds,
        directions={number: memory.avatar.direction(number) for number in MOVES},
        seen=memory.seen,
        barred=lambda kind: memory.kinds.get(kind, NOTHING).bars,
    )
    counts = Counter(kinds.values())
    ground = {kind for kind, _ in counts.most_common(2)}
    for square, leg in [*routes.reached.items(), *routes.touched.items()]:
        kind = kinds.get(square)
        if leg is None or kind is None or kind in ground:
            continue
        features = _walk_features(memory, square, kind, leg=leg, count=counts[kind])
        features["walk/barred"] = float(square in routes.touched)
        yield Option(_actions(routes, square), features)
    new = next((one for one in routes.reached if one not in memory.visited), None)
    leg = None if new is None else routes.reached[new]
    if new is not None and leg is not None:
        features = {"ground": 1.0, "ground/distance": leg.distance / 10, "ground/near": 1 / leg.distance}
        yield Option(_actions(routes, new), features)


def _actions(routes: Routes, square: Square) -> list[tuple[GridAction, Square | None]]:
    return [(GridAction(number=number), end) for number, end in routes.way(square)]


def _walk_features(memory: Experience, square: Square, kind: Kind, *, leg: Leg, count: int) -> dict[str, float]:
    about, touched = memory.kinds.get(kind, NOTHING), memory.touched.get(square)
    since = touched is not None and touched < memory.revision
    return {
        "walk": 1.0,
        "walk/distance": leg.distance / 10,
        "walk/near": 1 / leg.distance,
        "walk/guesses": leg.guesses / 10,
        "walk/tried": min(about.tried, 3) / 3,
        "walk/here": min(about.here, 3) / 3,
        "walk/new": float(not about.tried),
        "walk/solved": float(about.solved > 0),
        "walk/lost": about.lost / max(1, about.tried),
        "walk/changed": about.changed / (about.tried + 1),
        "walk/touched": float(touched is not None),
        "walk/changed-since": float(since),
        "walk/solved-untouched": float(about.solved > 0 and touched is None),
        "walk/solved-since": float(about.solved > 0 and since),
        "walk/single": float(count == 1),
        "walk/count": min(count, 10) / 10,
        "walk/full": float(kind[0] == kind[2]),
        "walk/half": float(kind[0] == kind[1] != kind[2]),
    }


def _clicks(frame: Frame, memory: Experience) -> Iterator[Option]:
    """In the middle of each piece."""
    overall = memory.numbers[CLICK]
    changed_share, points = (overall.changed + 0.5) / (overall.tried + 1), set[tuple[int, int]]()
    for piece in pieces(frame):
        x, y = piece.x + piece.width // 2, piece.y + piece.height // 2
        if piece.y >= BOARD_ROWS or (x, y) in points:
            continue
        points.add((x, y))
        action, color = GridAction(number=CLICK, x=x, y=y), frame[y * FRAME + x]
        about, result = memory.colors.get(color, NOTHING), memory.results.get((frame, action))
        features = {
            "click": 1.0,
            "click/changed": (about.changed + changed_share) / (about.tried + 1),
            "click/new-color": float(not about.tried),
            "click/here": min(about.here, 4) / 4,
            "click/solved": float(about.solved > 0),
            "click/overall": changed_share,
            "click/tried": float(result is not None),
            "click/nothing": float(result == frame),
            "click/again": float(memory.last_click == action),
            "click/large": float(piece.pixels > LARGE_PIXELS),
            "click/small": float(piece.pixels < SMALL_PIXELS),
        }
        yield Option([(action, None)], features)


@cache
def shipped_weights() -> Weights:
    """The weights in this package, which `learner_training` has made from games of `train`."""
    return _decode((files(__package__) / WEIGHTS_FILE).read_bytes(), WEIGHTS_FILE)


def read_weights(path: Path) -> Weights:
    """Weights from a file that training wrote. Raises UsageError of one line for anything else."""
    try:
        if path.stat().st_size > MAX_WEIGHTS_BYTES:
            raise UsageError(f"the weights {path} have more than {MAX_WEIGHTS_BYTES:,} bytes")
        return _decode(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"the weights {path} cannot be read: {error.strerror}") from None


def _decode(body: bytes, where: str) -> Weights:
    try:
        weights = msgspec.json.decode(body, type=dict[str, float])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where} has no weights of a learner: {one_line(str(error), 120)}") from None
    if any(not abs(value) <= MAX_WEIGHT for value in weights.values()):
        raise UsageError(f"{where} has a weight beyond {MAX_WEIGHT:,.0f}")
    return weights
