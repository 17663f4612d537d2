"""A rollout of a world as the page shows it: what happened and why, what was expected, and how the apps stood."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from typing import Any

import msgspec

from wanderlust.core.contracts import Environment
from wanderlust.core.errors import EnvironmentFailure, UsageError, WanderlustError, boundary
from wanderlust.core.text import one_line
from wanderlust.core.types import Rollout
from wanderlust.studio.server.world_entries import clipped, entries
from wanderlust.worlds.changes import Change
from wanderlust.worlds.environment import WorldEnvironment, log_of
from wanderlust.worlds.families.grading import Structural
from wanderlust.worlds.log import Happened
from wanderlust.worlds.oracle import Expected, Oracle
from wanderlust.worlds.plan import LATER, expects
from wanderlust.worlds.retrace import Retraced
from wanderlust.worlds.scenario import Scenario
from wanderlust.worlds.thinking import decisions
from wanderlust.worlds.verdict import Verdict, read_verdict

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
