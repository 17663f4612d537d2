"""A player of frames with weights that were trained on other games: it lists what it could do, and weighs each.

It finds out within a game which piece it moves, what squares of each kind do, and which clicks change the frame. Each
option (`learner_options`) has named features, the weights of which are those of a linear softmax policy
(trained by `learner_training`, which is not shipped).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from random import Random

import msgspec

from wanderlust.errors import UsageError, one_line
from wanderlust_grids.avatar import Square
from wanderlust_grids.cells import RESET
from wanderlust_grids.experience import Attempt, Experience
from wanderlust_grids.frontier import FrameGraph
from wanderlust_grids.game import GameState, GridAction, Observation
from wanderlust_grids.learner_options import Features, Option, Situation, options

WEIGHTS_FILE = "learner_weights.json"
MAX_WEIGHTS_BYTES, MAX_WEIGHT = 1 << 20, 1000.0

Weights = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice, as training needs it."""

    options: Sequence[Option]
    chosen: int
    square: Square | None
    """Of the avatar."""
    share: float
    """The probability of the option that was drawn."""


def option_shares(options: Sequence[Features], weights: Weights) -> list[float]:
    """The probability of each option: the softmax of its weighted features."""
    values = [sum([weights.get(name, 0.0) * value for name, value in one.items()]) for one in options]
    top = max(values)
    powers = [math.exp(value - top) for value in values]
    total = sum(powers)
    return [one / total for one in powers]


class Learner:
    """Plays one game with given weights.

    Args:
        rng: Draws among the options.
        weights: By the names of features; a feature without one counts nothing.
        decisions: Choices are appended here.
    """

    def __init__(
        self,
        rng: Random,
        weights: Weights | None = None,
        *,
        decisions: list[Decision] | None = None,
    ):
        self._rng, self._weights = rng, shipped_weights() if weights is None else weights
        self._decisions = decisions
        self._memory, self._level = Experience(), -1
        self._graph = FrameGraph(rng, self._memory)
        self._since_reset = self._resets = 0
        self._attempt: Attempt | None = None
        self._plan: deque[tuple[GridAction, Square | None]] = deque()

    def choose(self, seen: Observation) -> GridAction:
        """The next action of the option that was drawn, or of a new one where that is over or went another way."""
        solved = seen.levels_completed != self._level
        if self._attempt is not None:
            if not self._memory.learn(self._attempt, seen, solved=solved):
                self._plan.clear()
            if not solved:
                self._graph.learn(self._attempt.frame, self._attempt.action, seen.frame)
        if solved:
            self._level = seen.levels_completed
            self._memory.begin_level(seen.frame)
            self._graph.begin_level()
            self._since_reset = self._resets = 0
            self._plan.clear()
        if seen.state is not GameState.NOT_FINISHED:
            return self._reset()
        self._graph.see(seen)
        if not self._plan:
            self._plan.extend(self._draw(seen))
        aim = self._plan[-1][1]
        action, expected = self._plan.popleft()
        if action.number == RESET:
            return self._reset()
        self._since_reset += 1
        self._attempt = self._memory.begin(seen.frame, action, expected, aim=aim)
        return action

    def _reset(self) -> GridAction:
        self._attempt = None
        self._plan.clear()
        self._memory.begin_try()
        self._since_reset, self._resets = 0, self._resets + 1
        return GridAction(number=RESET)

    def _draw(self, seen: Observation) -> Sequence[tuple[GridAction, Square | None]]:
        now = Situation(
            seen=seen,
            memory=self._memory,
            graph=self._graph,
            since_reset=self._since_reset,
            resets=self._resets,
        )
        found = [*options(now)]
        shares = option_shares([one.features for one in found], self._weights)
        (chosen,) = self._rng.choices(range(len(found)), shares)
        if self._decisions is not None:
            self._decisions.append(Decision(found, chosen, self._memory.square(seen.frame), shares[chosen]))
        return found[chosen].actions


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
