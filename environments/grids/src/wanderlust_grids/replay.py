"""A game played again from the answers of an episode: every frame, without a model, for whoever shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from wanderlust.errors import UsageError, one_line
from wanderlust.types import Rollout
from wanderlust_grids.cells import RESET
from wanderlust_grids.environment import TASK_PREFIX, read_action
from wanderlust_grids.game import GameState, GridAction, GridSession, Observation
from wanderlust_grids.generation import GridGame, make_game

_KEY = re.compile(r"[a-z]{1,20}-[0-9a-f]{1,24}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What is seen after an answer; the first moment is before any."""

    seen: Observation
    action: GridAction | None = None
    """None for the first moment, and for an answer without an action."""
    actions: int = 0
    """Counted so far."""


def game_of_task(task_id: str) -> GridGame:
    """The game of a task of `grids`. Raises UsageError for another task."""
    key = task_id.removeprefix(TASK_PREFIX)
    if not task_id.startswith(TASK_PREFIX) or not _KEY.fullmatch(key):
        raise UsageError(f"{one_line(task_id, 80)!r} is no task of grids")
    return make_game(key)


def answers_of(rollout: Rollout) -> list[str]:
    """The answers of an episode from its first action on, those of an opening included."""
    opening = rollout.state.get("opening")
    first = [str(one) for one in opening] if isinstance(opening, list | tuple) else []
    turns = rollout.trajectories[0].turns if rollout.trajectories else []
    return [*first, *(turn.action.content for turn in turns)]


def replay_answers(game: GridGame, answers: Iterable[str]) -> Iterator[Moment]:
    """The moments of an episode, as the environment played it."""
    session = GridSession(game, level_resets=True)
    seen = session.begin()
    yield Moment(seen=seen)
    for answer in answers:
        action = read_action(answer)
        if action is None or (seen.state is GameState.GAME_OVER and action.number != RESET):
            session.waste()
        if action is not None:
            seen = session.perform(action)
        yield Moment(seen=seen, action=action, actions=session.actions)
