"""A rollout of a world as JSON data for the page: its timeline, the expected acts, the verdict, the apps' states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from typing import Any

import msgspec

from wanderlust.environment import Environment
from wanderlust.errors import EnvironmentFailure, UsageError, WanderlustError, boundary, one_line
from wanderlust.types import Rollout
from wanderlust.worlds.engine.events import LATER_PREFIX, Event, is_agent_call
from wanderlust.worlds.engine.log import ENGINE, LogEntry
from wanderlust.worlds.engine.replay import Replay, StateChange
from wanderlust.worlds.engine.scenario import Scenario
from wanderlust.worlds.life.grading import StructuralVerifier
from wanderlust.worlds.verification.oracle import ExpectedCall, Oracle
from wanderlust.worlds.verification.verdict import Verdict, read_verdict
from wanderlust.worlds.wrap.world_environment import THINKING_REASON, WorldEnvironment, decision_lines, log_of

MAX_ENTRY_CHARS = 4_000
"""Characters of one text in an entry."""
ENTRY_KINDS: Mapping[str, str] = {
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


def timeline_entries(lines: Sequence[LogEntry], events: Mapping[str, Event]) -> list[dict[str, Any]]:
    """One entry per line: its number `n`, `time` and `until`, its `kind`, and the events it came after.

    Kinds are `event` (the user's, the environment's or the data's), `call` (the agent's), `think` and `time` (passing
    time), `wait`, `notification`, `match` (an expected act was recognised), `turn` (a turn was verified), `condition`,
    `stop`. `decision` is the number of the agent's decision that an entry belongs to, from 0; None before the first.
    """
    result, decision = [], None
    for number, line in enumerate(lines):
        entry = _entry(number, line, events)
        if entry["kind"] == "think" and line.args["why"] == THINKING_REASON:
            decision = 0 if decision is None else decision + 1
        result.append(entry | {"decision": decision})
        if entry["kind"] == "match":
            position, event = line.args.get("line"), events.get(str(line.args.get("event")))
            if isinstance(position, int) and 0 <= position < len(result) and event is not None:
                result[position] |= {"id": event.id, "parents": list(event.after)}
    for entry in result:
        entry["until"] = _end_time(entry, result)
    return result


def _entry(number: int, line: LogEntry, events: Mapping[str, Event]) -> dict[str, Any]:
    event = events.get(line.event or "")
    failed = line.error is not None or (line.action == "minefield" and line.result is False)
    kind = ENTRY_KINDS.get(line.action, "event")
    if line.app != ENGINE:
        kind = "call" if line.by == "agent" else "event"
    elif line.action == "advance" and str(line.args.get("why", "")).startswith(THINKING_REASON):
        kind = "think"
    return {
        "n": number,
        "time": line.time,
        "kind": kind,
        "app": line.app,
        "action": line.action,
        "by": line.by,
        "args": clip_texts(msgspec.to_builtins(line.args, str_keys=True)),
        "result": clip_texts(msgspec.to_builtins(line.result, str_keys=True)),
        "error": line.error,
        "status": "failed" if failed else "done",
        "parents": list(event.after) if event else [],
        "id": line.event,
        "writes": line.writes,
    }


def _end_time(entry: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> float:
    """End of an entry, in seconds of the world's clock."""
    if entry["kind"] in ("think", "time"):
        return float(entry["time"] + entry["args"]["seconds"])
    if entry["kind"] == "wait":
        over = (one["time"] for one in entries[entry["n"] + 1 :] if one["kind"] in ("notification", "think", "stop"))
        return float(next(over, entries[-1]["time"]))
    return float(entry["time"])


def clip_texts(value: Any, limit: int = MAX_ENTRY_CHARS) -> Any:
    """Cut the texts in plain data to `limit` characters, with a note of how many more there are."""
    if isinstance(value, str):
        return value if len(value) <= limit else f"{value[:limit]}… ({len(value) - limit:,} more characters)"
    if isinstance(value, dict):
        return {key: clip_texts(part, limit) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [clip_texts(part, limit) for part in value]
    return value


MAX_CHANGE_CHARS = 500
"""Longest reason."""
MAX_STATE_VALUE_CHARS = 20_000
"""Longest text in an app's state."""


@dataclass(frozen=True)
class WorldView:
    """One rollout of a world. `why` says in one line what cannot be shown, or does not agree with the score.

    The number of an entry is its line in the log; `at` gives the moment after it, and -1 is the start.
    """

    lines: Sequence[LogEntry]
    scenario: Scenario | None = None
    replay: Replay | None = None
    verdict: Verdict | None = None
    why: str = ""

    @classmethod
    def of(cls, rollout: Rollout, env: Environment | None, problem: str = "") -> WorldView:
        """Make a view; `env` is the rollout's environment where it can still be made, `problem` says why it cannot.

        Raises UsageError for a rollout without a world's log.
        """
        lines = log_of(rollout)
        if not isinstance(env, WorldEnvironment):
            return cls(lines, why=problem or "the run does not say in which scenarios it was played")
        try:
            with boundary(EnvironmentFailure):
                scenario = env.scenario(rollout.task)
                # Servers give their recorded answers, so that a view calls nothing outside.
                apps = [app.recorded(lines) if hasattr(app, "recorded") else app for app in scenario.apps]
                past = Replay(replace(scenario, apps=apps), lines, rollout.seed)
                left = rollout.state.get("verdict")
                verdict = StructuralVerifier.of(scenario)(lines) if left is None else read_verdict(left)
        except WanderlustError as error:
            return cls(lines, why=f"the scenario cannot be made again: {one_line(str(error), MAX_CHANGE_CHARS)}")
        problem = one_line(past.problem, MAX_CHANGE_CHARS)
        notes = [f"shown up to line {past.last_moment} only: {problem}"] if past.problem else []
        score = next((seat.score for seat in rollout.trajectories if seat.score is not None), None)
        if score is not None and bool(score.parts.get("accepted", verdict.accepted)) is not verdict.accepted:
            told = one_line(str(score.notes.get("verdict", "")), MAX_CHANGE_CHARS)
            notes.append(f"the score has another verdict: {told or 'it does not say which'}")
        return cls(lines, scenario, past, verdict, "; ".join(notes))

    def record(self, *, whole: bool = False) -> dict[str, Any]:
        """All but the states; each entry has its changes. `whole` adds the `initial` state, which completes it."""
        past, oracle = self.replay, Oracle.of(self.scenario) if self.scenario else None
        apps = {app.name: type(app).__name__ for app in self.scenario.apps} if self.scenario else {}
        start = self.scenario.start if self.scenario else self.lines[0].time if self.lines else 0.0
        record = {
            "start": start,
            "end": max([start, *(line.time for line in self.lines)]),
            "known": past.last_moment - 1 if past else -1,
            "entries": self._entries(),
            "oracle": [_expected_record(one, oracle, self.verdict) for one in oracle.acts] if oracle else [],
            "verdict": self._verdict_record(),
            "apps": list(apps),
            "kinds": apps,
            "decisions": decision_lines(self.lines),
            "why": self.why,
        }
        return record | ({"initial": self.at(-1)} if whole and past else {})

    def at(self, entry: int) -> dict[str, Any]:
        """The time, and the state of every app, after an entry. Raises UsageError where they are unknown."""
        world = self._require_replay().world(entry + 1)
        apps = {name: clip_texts(app.state(), MAX_STATE_VALUE_CHARS) for name, app in world.apps.items()}
        return {"time": world.now if isfinite(world.now) else 0.0, "apps": apps}

    def difference(self, before: int, after: int) -> dict[str, Any]:
        """Changes between the moments after two entries."""
        changes = msgspec.to_builtins(self._require_replay().changes(before + 1, after + 1), str_keys=True)
        return {"changes": clip_texts(changes, MAX_STATE_VALUE_CHARS)}

    def _require_replay(self) -> Replay:
        if self.replay is None:
            raise UsageError(self.why)
        return self.replay

    @cached_property
    def _changes(self) -> list[list[StateChange]]:
        return list(self.replay.changes_per_line()) if self.replay else []

    def _entries(self) -> list[dict[str, Any]]:
        events = self.scenario.plan.events if self.scenario else {}
        result = timeline_entries(self.lines, events)
        for entry, changed in zip(result, self._changes, strict=False):
            fields = [{"app": c.app, "path": list(c.path), "kind": c.kind, "after": c.after} for c in changed]
            entry["changes"] = clip_texts(fields, MAX_STATE_VALUE_CHARS)
        if self.verdict is not None:
            for act, line in self.verdict.matched.items():
                if 0 <= line < len(result):
                    result[line]["matched"] = act
            for line in self.verdict.extra:
                if 0 <= line < len(result):
                    result[line]["extra"] = True
        ids = {entry["id"] for entry in result}
        waiting = [e for e in events.values() if e.id not in ids and not is_agent_call(e)]
        return result + [_pending_record(one) for one in waiting if not one.id.startswith(LATER_PREFIX)]

    def _verdict_record(self) -> dict[str, Any] | None:
        verdict = self.verdict
        if verdict is None:
            return None
        return {
            "success": verdict.accepted,
            "decision": verdict.decision,
            "share": verdict.share,
            "lines": [one_line(reason.text, MAX_CHANGE_CHARS) for reason in verdict.reasons],
            "reasons": [{"fault": r.fault, "event": r.event, "n": r.line if r.line >= 0 else None,
                         "text": one_line(r.text, MAX_CHANGE_CHARS)} for r in verdict.reasons],
            "marks": dict(verdict.marks),
            "questions": [{"event": q.event, "n": q.line, "about": list(q.about)} for q in verdict.questions],
            "answers": [{"same": a.same, "text": one_line(a.text, MAX_CHANGE_CHARS), "judge": a.judge}
                        for a in verdict.answers],
        }  # fmt: skip


def _expected_record(expected: ExpectedCall, oracle: Oracle, verdict: Verdict | None) -> dict[str, Any]:
    act = expected.act
    reasons = [reason.text for reason in verdict.reasons if reason.event == act.id] if verdict else []
    why = [one_line(text, MAX_CHANGE_CHARS) for text in reasons]
    return {
        "id": act.id,
        "app": act.app,
        "action": act.action,
        "args": clip_texts(msgspec.to_builtins(act.args, str_keys=True)),
        "parents": list(act.after),
        "due": max(oracle.start + act.delay if not act.after else 0.0, act.at or 0.0) or None,
        "delay": act.delay,
        "turn": expected.turn,
        "matched": verdict.matched.get(act.id) if verdict else None,
        "why": "; ".join(why) or None,
    }


def _pending_record(event: Any) -> dict[str, Any]:
    """An event that never happened."""
    return {
        "n": None, "time": event.at, "kind": "event", "app": getattr(event, "app", "world"),
        "action": getattr(event, "action", type(event).__name__.lower()), "by": getattr(event, "by", "world"),
        "args": clip_texts(msgspec.to_builtins(getattr(event, "args", {}), str_keys=True)),
        "result": None, "error": None, "status": "pending",
        "parents": list(event.after), "id": event.id, "delay": event.delay,
    }  # fmt: skip
