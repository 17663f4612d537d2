"""What happened in a world, as a table to read: when, who, what, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from wanderlust.core.text import one_line
from wanderlust.worlds.events import Act, Condition, Event
from wanderlust.worlds.families.facts import Facts, told
from wanderlust.worlds.families.grading import facts_of
from wanderlust.worlds.log import ENGINE, Happened
from wanderlust.worlds.scenario import Scenario
from wanderlust.worlds.times import told_time

COLOURS: Mapping[str, str] = {"user": "cyan", "agent": "green", "env": "yellow", "world": "dim"}
LONGEST = 300
"""Characters of what one action was given, or gave."""
QUIET = ("deliver", "fulfil")
"""The engine's own lines that say nothing to a reader."""


def timeline(log: Iterable[Happened], start: float) -> Table:
    """The lines of a log; times count from the start."""
    table = _table("time", "who", "what", "with", "came to")
    for line in log:
        if line.app == ENGINE and (line.action in QUIET or line.args.get("seconds", True) in (0, None)):
            continue
        came = f"error: {line.error}" if line.error is not None else _shown(line.result)
        what = line.action if line.app == ENGINE else f"{line.app}.{line.action}"
        cells = (since(line.time - start), line.by, what, given(line.args), came)
        style = "red" if line.error is not None else COLOURS.get(line.by, "")
        table.add_row(*(Text(one_line(cell, LONGEST), style=style) for cell in cells))
    return table


def _table(*names: str) -> Table:
    table = Table()
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def plot(scenario: Scenario) -> Table:
    """The events of a scenario: what will happen, and what a perfect agent does."""
    table = _table("event", "after", "who", "what", "with, and what must be said")
    facts = facts_of(scenario)
    for event in scenario.events:
        cells, who = _event(event, facts.get(event.id, {}), scenario.start)
        table.add_row(*(Text(one_line(cell, 2 * LONGEST), style=COLOURS.get(who, "")) for cell in cells))
    return table


def _event(event: Event, facts: Mapping[str, Facts], start: float) -> tuple[tuple[str, ...], str]:
    after = ", ".join(event.after) or "start"
    after += f" +{since(event.delay)}" if event.delay else ""
    after += f" at {since(event.at - start)}" if event.at is not None else ""
    if isinstance(event, Act):
        must = [f"{name} must say {'; '.join(told(one))}" for name, one in facts.items() if one.says or one.never]
        return (
            event.id,
            after,
            event.by,
            f"{event.app}.{event.action}",
            " | ".join([given(event.args), *must]),
        ), event.by
    kind = type(event).__name__.lower()
    within = f"within {since(event.within)}" if isinstance(event, Condition) and event.within is not None else ""
    return (event.id, after, "", kind, within), "world"


def header(scenario: Scenario) -> list[str]:
    """Lines about a scenario."""
    about = ", ".join(f"{key} {value}" for key, value in scenario.info.items() if key != "facts")
    lasts = since(scenario.duration)
    return [f"{scenario.id}: {about}", f"begins {told_time(scenario.start)} UTC, lasts {lasts} at most"]


def since(seconds: float) -> str:
    """A duration as minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def given(args: Mapping[str, Any]) -> str:
    """Arguments as one reads them."""
    return ", ".join(f"{name}={_shown(value)}" for name, value in args.items())


def _shown(value: Any) -> str:
    if value is None:
        return ""
    plain = msgspec.to_builtins(value, str_keys=True, builtin_types=())
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
