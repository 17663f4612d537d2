"""A rollout of a world as the page shows it: what happened and why, what was expected, and how the apps stood.

The lines of a world's log as entries of its timeline.

The worlds that are looked at: rollouts with the environment that they were played in, as far as it may be made.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from wanderlust.environment import Environment
from wanderlust.errors import EnvironmentFailure, UsageError, WanderlustError, boundary, one_line
from wanderlust.studio.responses import NotFound
from wanderlust.studio.run_index import Place, opened, settings_of
from wanderlust.tasks.registry import Found, find_environment, ready_made
from wanderlust.types import Rollout
from wanderlust.worlds.engine.events import LATER, Event, expects
from wanderlust.worlds.engine.log import ENGINE, Happened
from wanderlust.worlds.engine.replay import Change, Retraced
from wanderlust.worlds.engine.scenario import Scenario
from wanderlust.worlds.life.grading import Structural
from wanderlust.worlds.verify.oracle import Expected, Oracle
from wanderlust.worlds.verify.verdict import Verdict, read_verdict
from wanderlust.worlds.wrap.environment import WorldEnvironment, log_of
from wanderlust.worlds.wrap.thinking_time import WHY, decisions

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


LONGEST = 500
"""Characters of a reason."""
STATE = 20_000
"""Characters of one text in an app's state."""


@dataclass(frozen=True)
class WorldView:
    """One rollout of a world. `why` says in one line what cannot be shown; then apps and the oracle are missing.

    The number of an entry is its line in the log; the moment after it is what `at` shows, and -1 is the start.
    """

    lines: Sequence[Happened]
    scenario: Scenario | None = None
    past: Retraced | None = None
    verdict: Verdict | None = None
    why: str = ""

    @classmethod
    def of(cls, rollout: Rollout, env: Environment | None, problem: str = "") -> WorldView:
        """`env` is the one that was played in, as far as it can still be made; `problem` says why it cannot.

        Raises UsageError for a rollout that left no log of a world.
        """
        lines = log_of(rollout)
        if not isinstance(env, WorldEnvironment):
            return cls(lines, why=problem or "the run does not say in which scenarios it was played")
        try:
            with boundary(EnvironmentFailure):
                scenario = env.scenario(rollout.task)
                past = Retraced(_recorded(scenario, lines), lines, rollout.seed)
                verdict = _verdict(rollout, scenario, lines)
        except WanderlustError as error:
            return cls(lines, why=f"the scenario cannot be made again: {one_line(str(error), LONGEST)}")
        why = f"shown up to line {past.known} only: {one_line(past.problem, LONGEST)}" if past.problem else ""
        return cls(lines, scenario, past, verdict, why)

    def record(self, *, whole: bool = False) -> dict[str, Any]:
        """All but the states; each entry has what it changed. `whole` adds the `initial` state: nothing is missing."""
        past = self.past
        apps = {app.name: type(app).__name__ for app in self.scenario.apps} if self.scenario else {}
        start = self.scenario.start if self.scenario else self.lines[0].time if self.lines else 0.0
        record = {
            "start": start,
            "end": max([start, *(line.time for line in self.lines)]),
            "known": past.known - 1 if past else -1,
            "entries": self._entries(),
            "oracle": list(self._oracle()),
            "verdict": self._said(),
            "apps": list(apps),
            "kinds": apps,
            "decisions": decisions(self.lines),
            "why": self.why,
        }
        return record | ({"initial": self.at(-1)} if whole and past else {})

    def at(self, entry: int) -> dict[str, Any]:
        """The time, and the state of every app, after an entry. Raises UsageError where that cannot be known."""
        world = self._past().world(entry + 1)
        apps = {name: clipped(app.state(), STATE) for name, app in world.apps.items()}
        return {"time": world.now if isfinite(world.now) else 0.0, "apps": apps}

    def difference(self, before: int, after: int) -> dict[str, Any]:
        """What is different between the moments after two entries."""
        found = self._past().changes(before + 1, after + 1)
        return {"changes": [clipped(msgspec.to_builtins(one, str_keys=True), STATE) for one in found]}

    def _past(self) -> Retraced:
        if self.past is None:
            raise UsageError(self.why)
        return self.past

    @cached_property
    def _changes(self) -> list[list[Change]]:
        return list(self.past.each()) if self.past else []

    def _entries(self) -> list[dict[str, Any]]:
        events = self.scenario.plan.events if self.scenario else {}
        found = entries(self.lines, events)
        for entry, changed in zip(found, self._changes, strict=False):
            entry["changes"] = [_short(one) for one in changed]
        self._judge(found)
        seen = {entry["id"] for entry in found}
        waiting = [e for e in events.values() if e.id not in seen and not expects(e) and not e.id.startswith(LATER)]
        return found + [_pending(one) for one in waiting]

    def _judge(self, found: list[dict[str, Any]]) -> None:
        if self.verdict is None:
            return
        for act, line in self.verdict.matched.items():
            if 0 <= line < len(found):
                found[line]["matched"] = act
        for line in self.verdict.extra:
            if 0 <= line < len(found):
                found[line]["extra"] = True

    def _oracle(self) -> Iterator[dict[str, Any]]:
        if self.scenario is None:
            return
        oracle = Oracle.of(self.scenario)
        for one in oracle.acts:
            yield _expected(one, oracle, self.verdict)

    def _said(self) -> dict[str, Any] | None:
        verdict = self.verdict
        if verdict is None:
            return None
        return {
            "success": verdict.accepted,
            "decision": verdict.decision,
            "share": verdict.share,
            "lines": [one_line(reason.text, LONGEST) for reason in verdict.reasons],
            "reasons": [{"fault": r.fault, "event": r.event, "n": r.line if r.line >= 0 else None,
                         "text": one_line(r.text, LONGEST)} for r in verdict.reasons],
            "marks": dict(verdict.marks),
            "questions": [{"event": q.event, "n": q.line, "about": list(q.about)} for q in verdict.questions],
            "answers": [{"same": a.same, "text": one_line(a.text, LONGEST), "judge": a.judge} for a in verdict.answers],
        }  # fmt: skip


def _recorded(scenario: Scenario, lines: Sequence[Happened]) -> Scenario:
    """The scenario with what servers answered then: whoever looks at a world asks nobody outside."""
    if not any(hasattr(app, "recorded") for app in scenario.apps):
        return scenario
    apps = [app.recorded(lines) if hasattr(app, "recorded") else app for app in scenario.apps]
    return replace(scenario, apps=apps)


def _verdict(rollout: Rollout, scenario: Scenario, lines: Sequence[Happened]) -> Verdict:
    left = rollout.state.get("verdict")
    return Structural.of(scenario)(lines) if left is None else read_verdict(left)


def _expected(one: Expected, oracle: Oracle, verdict: Verdict | None) -> dict[str, Any]:
    act = one.act
    why = [one_line(reason.text, LONGEST) for reason in verdict.reasons if reason.event == act.id] if verdict else []
    return {
        "id": act.id,
        "app": act.app,
        "action": act.action,
        "args": clipped(msgspec.to_builtins(act.args, str_keys=True)),
        "parents": list(act.after),
        "due": max(oracle.start + act.delay if not act.after else 0.0, act.at or 0.0) or None,
        "delay": act.delay,
        "turn": one.turn,
        "matched": verdict.matched.get(act.id) if verdict else None,
        "why": "; ".join(why) or None,
    }


def _short(change: Change) -> dict[str, Any]:
    short: dict[str, Any] = clipped(
        {"app": change.app, "path": list(change.path), "kind": change.kind, "after": change.after}, STATE
    )
    return short


def _pending(event: Any) -> dict[str, Any]:
    """An event that never happened."""
    return {
        "n": None, "time": event.at, "kind": "event", "app": getattr(event, "app", "world"),
        "action": getattr(event, "action", type(event).__name__.lower()), "by": getattr(event, "by", "world"),
        "args": clipped(msgspec.to_builtins(getattr(event, "args", {}), str_keys=True)), "result": None, "error": None,
        "status": "pending", "parents": list(event.after), "id": event.id, "delay": event.delay,
    }  # fmt: skip


KEPT = 8
"""Worlds that are kept open: each is somebody's scrubbing back and forth."""


class Views:
    """The worlds that were looked at last. Rollouts never change, so that a view stays right."""

    def __init__(self) -> None:
        self._views: OrderedDict[tuple[Path, int, int], WorldView] = OrderedDict()
        self._lock = Lock()

    def view(self, where: Place, id: int) -> WorldView:
        """The world of a rollout. Raises NotFound, StoreError, and UsageError for one without a world."""
        file = where.store.stat().st_ino if where.store.exists() else 0  # a run may be made anew at the same place
        with self._lock:
            known = self._views.get((where.store, file, id))
        if known is None:
            played, env = stored(where, id)
            known = world_of(played, where.folder, env)
        with self._lock:
            self._views[where.store, file, id] = known
            self._views.move_to_end((where.store, file, id))
            while len(self._views) > KEPT:
                self._views.popitem(last=False)
        return known


def stored(where: Place, id: int) -> tuple[Rollout, str]:
    """A rollout, and what its run calls the environment. Raises NotFound and StoreError."""
    with opened(where) as store:
        rows = store.rollouts({"id": id})
        if not rows:
            raise NotFound(f"there is no rollout {id} in this run")
        return store.get(id), rows[0].env


def world_of(played: Rollout, folder: Path, env: str) -> WorldView:
    """The world of a rollout of the run in `folder`, whose row names `env`; what cannot be made again is said in it.

    Raises UsageError for a rollout that left no world.
    """
    try:
        return WorldView.of(played, trusted(settings_of(folder), env).env)
    except _Unknown as unknown:
        return WorldView.of(played, None, str(unknown))


class _Unknown(UsageError):
    """The environment of a run cannot be made, or must not be."""


def trusted(settings: Mapping[str, Any], env: str) -> Found:
    """The environment that a run was played in: a ready-made one, or one in a file below this folder.

    A run may come from anybody, and what it names is made by calling it: so nothing else is. Raises UsageError.
    """
    name = settings.get("env") or env
    if not isinstance(name, str) or not name:
        raise _Unknown("the run does not say in which environment it was played")
    where, _, rest = name.partition(",")
    known = ready_made()
    short = next((one for one, target in known.items() if target == where), where)
    if short not in known and not _ours(where):
        raise _Unknown(f"only ready-made environments and files below this folder are opened, not {one_line(name)!r}")
    try:
        return find_environment(f"{short},{rest}" if rest else short)
    except WanderlustError as error:
        raise _Unknown(f"the environment cannot be made: {one_line(str(error), 500)}") from error


def _ours(where: str) -> bool:
    file, colon, _ = where.rpartition(":")
    return bool(colon) and file.endswith(".py") and Path(file).resolve().is_relative_to(Path.cwd().resolve())
