"""The lines of a world's log as entries of its timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from wanderlust.worlds.events import Event
from wanderlust.worlds.log import ENGINE, Happened
from wanderlust.worlds.thinking import WHY

TEXT = 4_000
"""Characters of one text in an entry."""
KINDS: Mapping[str, str] = {
    "advance": "time",
    "wait": "wait",
    "deliver": "notification",
    "fulfil": "match",
    "stop": "stop",
    "decided": "turn",
    "condition": "condition",
    "milestone": "condition",
    "minefield": "condition",
}


def entries(lines: Sequence[Happened], events: Mapping[str, Event]) -> list[dict[str, Any]]:
    """One entry per line: its number, time and `until`, what kind it is, and what it came after.

    Kinds are `event` (the user's, the environment's or the data's), `call` (the agent's), `think` and `time` (that went
    by), `wait`, `notification`, `match` (an expected act was recognised), `turn` (a turn was verified), `condition`,
    `stop`. `decision` is the number of the agent's decision that an entry belongs to, from 0; None before the first.
    """
    found, decision = [], None
    for number, line in enumerate(lines):
        entry = _entry(number, line, events)
        if entry["kind"] == "think" and line.args["why"] == WHY:
            decision = 0 if decision is None else decision + 1
        found.append(entry | {"decision": decision})
        if entry["kind"] == "match":
            _recognised(found, line, events)
    for entry in found:
        entry["until"] = _until(entry, found)
    return found


def _entry(number: int, line: Happened, events: Mapping[str, Event]) -> dict[str, Any]:
    event = events.get(line.event or "")
    failed = line.error is not None or (line.action == "minefield" and line.result is False)
    return {
        "n": number,
        "time": line.time,
        "kind": _kind(line),
        "app": line.app,
        "action": line.action,
        "by": line.by,
        "args": clipped(msgspec.to_builtins(line.args, str_keys=True)),
        "result": clipped(msgspec.to_builtins(line.result, str_keys=True)),
        "error": line.error,
        "status": "failed" if failed else "done",
        "parents": list(event.after) if event else [],
        "id": line.event,
        "writes": line.writes,
    }


def _kind(line: Happened) -> str:
    if line.app != ENGINE:
        return "call" if line.by == "agent" else "event"
    if line.action == "advance" and str(line.args.get("why", "")).startswith(WHY):
        return "think"
    return KINDS.get(line.action, "event")


def _recognised(found: list[dict[str, Any]], line: Happened, events: Mapping[str, Event]) -> None:
    """A line turned out to be an expected act: it takes its place among the events."""
    number, event = line.args.get("line"), events.get(str(line.args.get("event")))
    if isinstance(number, int) and 0 <= number < len(found) and event is not None:
        found[number] |= {"id": event.id, "parents": list(event.after)}


def _until(entry: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> float:
    """When what takes time was over."""
    if entry["kind"] in ("think", "time"):
        return float(entry["time"] + entry["args"]["seconds"])
    if entry["kind"] == "wait":
        over = (one["time"] for one in found[entry["n"] + 1 :] if one["kind"] in ("notification", "think", "stop"))
        return float(next(over, found[-1]["time"]))
    return float(entry["time"])


def clipped(value: Any, limit: int = TEXT) -> Any:
    """Plain data whose texts are no longer than that; what was cut says by how much."""
    if isinstance(value, str):
        return value if len(value) <= limit else f"{value[:limit]}… ({len(value) - limit:,} more characters)"
    if isinstance(value, dict):
        return {key: clipped(part, limit) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [clipped(part, limit) for part in value]
    return value
