"""A rollout of a world as JSON data for the page: its timeline, the expected acts, the verdict, the apps' states."""

from __future__ import annotations

import inspect
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.environment import Environment
from wanderlust.errors import EnvironmentFailure, UsageError, WanderlustError, boundary, one_line
from wanderlust.policies.resolve import PolicyOptions, resolve_policy
from wanderlust.store.run_folder import HUMAN_POLICY
from wanderlust.studio.games import SaveRollout, check_opponent, opponent_checkpoints
from wanderlust.studio.play_session import GameSession
from wanderlust.studio.requests import (
    EnvironmentUnavailable,
    json_response,
    load_shown,
    path_number,
    request_body,
    requested_branch,
    requested_run,
    resolve_trusted_environment,
    studio_state,
)
from wanderlust.studio.run_index import settings_of
from wanderlust.studio.viewers import GameSetting, ShownRollout
from wanderlust.tasks.registry import ResolvedEnvironment
from wanderlust.types import Rollout, Tool
from wanderlust_worlds.engine.events import LATER_PREFIX, Event, is_agent_call
from wanderlust_worlds.engine.log import ENGINE, LogEntry
from wanderlust_worlds.engine.replay import Replay, StateChange
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.engine.world import World
from wanderlust_worlds.verification.grading import StructuralVerifier
from wanderlust_worlds.verification.oracle import ExpectedCall, Oracle
from wanderlust_worlds.verification.verdict import Verdict, read_verdict
from wanderlust_worlds.wrap.teams import TeamWorldEnvironment
from wanderlust_worlds.wrap.world_environment import (
    THINKING_REASON,
    AppTool,
    WorldEnvironment,
    decision_lines,
    log_of,
)

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


def make_world_view(shown: ShownRollout) -> WorldView:
    """The view of a rollout; its `why` says what is missing. Raises UsageError for a rollout without a world."""
    try:
        return WorldView.of(shown.rollout, resolve_trusted_environment(settings_of(shown.folder), shown.env).env)
    except EnvironmentUnavailable as unknown:
        return WorldView.of(shown.rollout, None, str(unknown))


MAX_VIEWS_KEPT = 8
"""One for each person who looks at a world."""


class WorldViewer:
    """Worlds as the studio's part `world`. The views used last are kept: rollouts never change."""

    part = "world"

    def __init__(self) -> None:
        self._views: OrderedDict[tuple[Path, int, int], WorldView] = OrderedDict()
        self._lock = Lock()

    def shows(self, rollout: Rollout) -> bool:
        """Whether it left the log of a world."""
        return "log" in rollout.state

    def view(self, shown: ShownRollout) -> dict[str, Any]:
        """The world without its states."""
        return self._view(shown.store, shown.id, lambda: shown).record()

    def exported(self, shown: ShownRollout) -> dict[str, Any]:
        """The world with the state that it began in."""
        return make_world_view(shown).record(whole=True)

    def playable(self, kind: object) -> dict[str, Any]:
        """Whether an environment is a world; a team has seats as soon as it is made."""
        world = inspect.isclass(kind) and issubclass(kind, WorldEnvironment)
        team = inspect.isclass(kind) and issubclass(kind, TeamWorldEnvironment)
        return {"world": world, **({"opponent": "needed"} if team else {})}

    def live(self, tools: Sequence[Tool]) -> World | None:
        """The world that the tools act in."""
        return next((tool.world for tool in tools if isinstance(tool, AppTool)), None)

    def routes(self) -> Sequence[Route]:
        """States of a stored world and of one that is played in, and branches."""
        root = "/api/runs/{key}/rollouts/{id}/world"
        return (
            Route("/api/play/{session}/apps", get_session_apps),
            Route(f"{root}/at", self.get_state),
            Route(f"{root}/difference", self.get_difference),
            Route(f"{root}/branch", post_branch, methods=["POST"]),
        )

    def get_state(self, request: Request) -> Response:
        """The state of every app after entry `n`; -1 is the start."""
        return json_response(self._requested_view(request).at(_moment(request, "n")))

    def get_difference(self, request: Request) -> Response:
        """Changes between the moments after two entries."""
        view = self._requested_view(request)
        return json_response(view.difference(_moment(request, "from"), _moment(request, "to")))

    def _requested_view(self, request: Request) -> WorldView:
        where, id = requested_run(request), path_number(request, "id")
        return self._view(where.store, id, lambda: load_shown(where, id))

    def _view(self, store: Path, id: int, load: Callable[[], ShownRollout]) -> WorldView:
        """The view of a rollout. Raises NotFound, StoreError, and UsageError for one without a world."""
        key = store, store.stat().st_ino if store.exists() else 0, id  # a run may be made anew at the same place
        with self._lock:
            view = self._views.get(key)
        if view is None:
            view = make_world_view(load())
        with self._lock:
            self._views[key] = view
            self._views.move_to_end(key)
            while len(self._views) > MAX_VIEWS_KEPT:
                self._views.popitem(last=False)
        return view


def _moment(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > 12 or int(text) < -1:
        raise UsageError(f"{name} must be the number of an entry, or -1, and is {one_line(text, 40)!r}")
    return int(text)


def get_session_apps(request: Request) -> Response:
    """The apps of the world that a game is played in, as they stand."""
    return json_response(studio_state(request).games.read(str(request.path_params["session"]), live_apps))


def live_apps(session: GameSession) -> dict[str, Any]:
    """State of the apps of a game's world. Raises UsageError where there is none."""
    world = session.live.get(WorldViewer.part)
    if not isinstance(world, World):
        raise UsageError("this game is played in no world of apps")
    return {
        "time": world.now,
        "apps": {name: clip_texts(app.state(), MAX_STATE_VALUE_CHARS) for name, app in world.apps.items()},
        "kinds": {name: type(app).__name__ for name, app in world.apps.items()},
    }


async def post_branch(request: Request) -> Response:
    """Begin a session that continues a rollout from a moment, by hand or with a policy."""
    body = await request_body(request)

    def begun() -> dict[str, Any]:
        moment, policy = body.get("n"), body.get("policy", HUMAN_POLICY)
        if not isinstance(moment, int) or not isinstance(policy, str):
            raise UsageError("say from where, as the number n of an entry, and with which policy")
        here, (shown, resolved, save) = studio_state(request), requested_branch(request, policy)
        setting = branch_setting(
            shown.rollout,
            moment,
            resolved,
            policy=policy,
            since={"run": request.path_params["key"], "rollout": shown.id},
            save=save,
            opponents=opponent_checkpoints(here.folders()),
        )
        return {"session": here.session(here.games.begin(setting))}

    return json_response(await run_in_threadpool(begun))


def branch_setting(
    rollout: Rollout,
    moment: int,
    resolved: ResolvedEnvironment,
    *,
    policy: str,
    since: Mapping[str, Any],
    save: SaveRollout,
    opponents: Iterable[Path],
) -> GameSetting:
    """Make a game that continues a rollout from its first decision at or after a moment, by hand or with a policy.

    Raises UsageError where no decision is left, and for a team by hand: its other seats need policies.
    """
    env = resolved.env
    if not isinstance(env, WorldEnvironment):
        raise UsageError(f"{resolved.name} is no world: there is nothing to go on from")
    places = decision_lines(log_of(rollout))
    number = bisect_left(places, moment)
    if number == len(places):
        raise UsageError("the agent decides nothing after this moment: choose an earlier one")
    player = None
    if policy != HUMAN_POLICY:
        player = resolve_policy(check_opponent(policy, env, opponents), env, PolicyOptions(temperature=0.0)).policy
    elif len(env.seats) > 1:
        raise UsageError(f"the seats {', '.join(env.seats[1:])} need somebody: go on with a policy")
    seat, others = env.seats[0], {} if player is None else dict.fromkeys(env.seats[1:], player)
    return GameSetting(
        name=resolved.name, env=env.branch_at(rollout, number), task=rollout.task, seed=rollout.seed, seat=seat,
        policy=player, others=others, labels={seat: policy, **dict.fromkeys(others, policy)},
        since={**since, "n": places[number], "decision": number}, save=save,
    )  # fmt: skip
