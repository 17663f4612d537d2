"""Comparison of the final state of the apps with the oracle's, whatever way led there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from wanderlust.worlds.engine.app import App
from wanderlust.worlds.engine.cow_dict import CowDict
from wanderlust.worlds.engine.scenario import Scenario, play_oracle
from wanderlust.worlds.engine.world import World

NEW_PLACEHOLDER, TIME_PLACEHOLDER = "«new»", "«when»"
_GENERATED_ID = re.compile(r"[0-9a-f]{32}")
"""An id as `World.new_id` makes them."""


def state_difference(world: World, scenario: Scenario, seed: int = 0) -> tuple[str, ...]:
    """The differences between a world and the one that a perfect agent leaves, one line each.

    Only what has changed since the start is compared. Ids and times made on the way are left out, since they depend on
    the order; texts are compared letter for letter. Equal states speak for acceptance, also of another way to them;
    different states need not speak against it. Lines begin with `+` for what only the world has, `-` for what only the
    oracle's has.
    """
    perfect = play_oracle(scenario, seed)
    lines: list[str] = []
    for first in scenario.apps:
        mine, oracles = (Counter(_changes(first, side.apps[first.name], scenario)) for side in (world, perfect))
        lines += [f"+ {first.name}: {change}" for change in sorted((mine - oracles).elements())]
        lines += [f"- {first.name}: {change}" for change in sorted((oracles - mine).elements())]
    return tuple(lines)


def _changes(before: App, now: App, scenario: Scenario) -> Iterator[str]:
    """Yield each change of an app as text."""
    for part in before.fields():
        was, value = getattr(before, part), getattr(now, part)
        if not isinstance(was, CowDict):
            if was != value:
                yield f"{part} is {_render_value(value, scenario, new=set())}"
            continue
        old, rows = was.rows(), value.rows()
        if old is rows:
            continue
        new = rows.keys() - old.keys()
        for key, row in rows.items():
            if key not in old or (old[key] is not row and old[key] != row):
                yield f"{part} has {_render_value(row, scenario, new=new)}" + ("" if key in new else f" as {key}")
        yield from (f"{part} has no {key}" for key in old if key not in rows)


def _render_value(value: Any, scenario: Scenario, *, new: set[str]) -> str:
    masked = _masked(msgspec.to_builtins(value), new, (scenario.start, scenario.start + scenario.duration))
    return msgspec.json.encode(masked, order="sorted").decode()


def _masked(value: Any, new: set[str], span: tuple[float, float]) -> Any:
    if isinstance(value, str):
        return NEW_PLACEHOLDER if value in new or _GENERATED_ID.fullmatch(value) else value
    if isinstance(value, float):
        return TIME_PLACEHOLDER if span[0] <= value <= span[1] else value
    if isinstance(value, Mapping):
        return {key: _masked(part, new, span) for key, part in value.items()}
    return [_masked(part, new, span) for part in value] if isinstance(value, list | tuple) else value
