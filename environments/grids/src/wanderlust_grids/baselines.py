"""Baselines of people: the upper median of the actions of their first plays, by game and level.

First plays are rollouts that the studio stored with the person's consent: their state has `person`, a name that the
person chose, and `first_play`. Whoever plays a game twice counts with the first play, and one that continues another
play does not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from wanderlust.errors import StoreError, UsageError, one_line
from wanderlust.store.run import load_run
from wanderlust.types import Rollout
from wanderlust_grids.score import human_baseline

MAX_BASELINES_BYTES = 16 << 20
Baselines = dict[str, list[int]]
"""By game: actions by level, up to the first one that nobody solved."""


def read_baselines(source: Path) -> Baselines:
    """Those of a run of first plays, or of a JSON file `{game: [actions, ...]}`.

    Raises UsageError where there is no such run or file, and where it has no baseline.
    """
    if source.suffix == ".json" and source.is_file():
        return _read_file(source)
    try:
        with load_run(source) as run:
            found = baselines_of(run.rollouts)
    except (OSError, StoreError) as error:
        raise UsageError(f"baselines={source}: {one_line(str(error))}") from None
    if not found:
        raise UsageError(f"baselines={source} has no first play of a person who agreed to be recorded")
    return found


def baselines_of(rollouts: Iterable[Rollout]) -> Baselines:
    """The baselines of these first plays; other rollouts are left aside."""
    plays: dict[str, dict[str, list[int]]] = {}
    for one in rollouts:
        state: Mapping[str, Any] = one.state
        if state.get("first_play") is True and isinstance(state.get("game"), str):
            actions = [taken for taken in state.get("level_actions", ()) if type(taken) is int and taken > 0]
            plays.setdefault(state["game"], {}).setdefault(str(state.get("person")), actions)
    baselines = {game: human_baseline([*played.values()]) for game, played in plays.items()}
    return {game: found for game, found in baselines.items() if found}


def _read_file(file: Path) -> Baselines:
    try:
        if file.stat().st_size > MAX_BASELINES_BYTES:
            raise UsageError(f"baselines={file} has more than {MAX_BASELINES_BYTES:,} bytes")
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"baselines={file} cannot be read: {one_line(str(error))}") from None
    if not isinstance(found, dict) or not found or not all(_fits(one) for one in found.values()):
        raise UsageError(f'baselines={file}: {{"train-0": [12, 15], ...}} is wanted, whole numbers from 1 on')
    return {str(game): actions for game, actions in found.items()}


def _fits(actions: Any) -> bool:
    return isinstance(actions, list) and bool(actions) and all(type(one) is int and one > 0 for one in actions)
