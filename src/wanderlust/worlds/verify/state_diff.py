"""A second opinion: whether the apps end up as the oracle leaves them, however they got there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from wanderlust.worlds.engine.app import App
from wanderlust.worlds.engine.cow_dict import CowDict
from wanderlust.worlds.engine.scenario import Scenario, play_oracle
from wanderlust.worlds.engine.world import World

NEW_PLACEHOLDER, TIME_PLACEHOLDER = "«new»", "«when»"


def state_difference(world: World, scenario: Scenario, seed: int = 0) -> tuple[str, ...]:
    """What differs between a world and the one that a perfect agent leaves, one line each; empty for nothing.

    Only what has changed since the start is looked at. Ids made on the way and times on the way are not compared, since
    they depend on the order; texts are, letter for letter. So equal states speak for acceptance, also of another
    way to them; different ones need not speak against it. Lines begin with `+` for what only the world has, `-` for
    what only the oracle's has.
    """
    perfect = play_oracle(scenario, seed)
    lines: list[str] = []
    for first in scenario.apps:
        mine, oracles = (Counter(_changes(first, side.apps[first.name], scenario)) for side in (world, perfect))
        lines += [f"+ {first.name}: {change}" for change in sorted((mine - oracles).elements())]
        lines += [f"- {first.name}: {change}" for change in sorted((oracles - mine).elements())]
    return tuple(lines)


def _changes(before: App, now: App, scenario: Scenario) -> Iterator[str]:
    """What has changed in an app, each change as text."""
    for part in before.fields():
        was, value = getattr(before, part), getattr(now, part)
        if isinstance(was, CowDict):
            yield from _rows(part, was.rows(), value.rows(), scenario=scenario)
        elif was != value:
            yield f"{part} is {_render_value(value, scenario, new=set())}"


def _rows(part: str, was: Mapping[str, Any], rows: Mapping[str, Any], *, scenario: Scenario) -> Iterator[str]:
    if was is rows:
        return
    new = rows.keys() - was.keys()
    for key, row in rows.items():
        if key not in was or (was[key] is not row and was[key] != row):
            yield f"{part} has {_render_value(row, scenario, new=new)}" + ("" if key in new else f" as {key}")
    yield from (f"{part} has no {key}" for key in was if key not in rows)


def _render_value(value: Any, scenario: Scenario, *, new: set[str]) -> str:
    masked = _masked(msgspec.to_builtins(value), new, (scenario.start, scenario.start + scenario.duration))
    return msgspec.json.encode(masked, order="sorted").decode()


def _masked(value: Any, new: set[str], span: tuple[float, float]) -> Any:
    if isinstance(value, str):
        return NEW_PLACEHOLDER if value in new or _looks_generated(value) else value
    if isinstance(value, float):
        return TIME_PLACEHOLDER if span[0] <= value <= span[1] else value
    if isinstance(value, Mapping):
        return {key: _masked(part, new, span) for key, part in value.items()}
    return [_masked(part, new, span) for part in value] if isinstance(value, list | tuple) else value


def _looks_generated(text: str) -> bool:
    """Whether it looks like an id of `World.new_id`."""
    return len(text) == 32 and all(letter in "0123456789abcdef" for letter in text)
