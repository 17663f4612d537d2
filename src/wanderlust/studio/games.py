"""Games in the studio: playable environments, tasks and opponents, and sessions in a thread of their own."""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import cache
from itertools import islice
from pathlib import Path
from threading import Lock, Thread
from typing import Any, TypeAlias, TypeVar

from wanderlust.environment import Environment
from wanderlust.errors import EnvironmentFailure, UsageError, WanderlustError, boundary, one_line
from wanderlust.policies.resolve import PolicyOptions, players_of, resolve_policy
from wanderlust.store.run_folder import HUMAN_POLICY, StoredRollout, checkpoints_of, folder_for, save_played_rollout
from wanderlust.studio.play_session import GameSession, SessionLimits
from wanderlust.studio.viewers import GameSetting, LiveViewer, SetupViewer, Viewer
from wanderlust.tasks.registry import (
    ResolvedEnvironment,
    environment_name,
    installed_environments,
    resolve_environment,
    resolve_object,
    two_seat_environment,
)
from wanderlust.types import Message, Policy, Rollout, Task, ToolCall, assistant

SaveRollout: TypeAlias = Callable[[Rollout], StoredRollout]
MAX_TASKS_LISTED = 200
"""Most tasks in one answer."""
MAX_TASKS_SEARCHED = 100_000
"""First tasks of a split that are searched for an id."""
OPTIONAL_METHODS = {"duel": Environment.duel, "oracle": Environment.oracle}
"""Methods that do nothing unless an environment defines them."""


@cache
def playable_environments(viewers: tuple[Viewer, ...]) -> list[dict[str, Any]]:
    """Every ready-made environment with its settings, seats and players; `problem` is why it cannot be played."""
    live = [one for one in viewers if isinstance(one, LiveViewer)]
    records: list[dict[str, Any]] = []
    for name, target in installed_environments().items():
        try:
            with boundary(EnvironmentFailure):
                kind = resolve_object(target)
        except WanderlustError as error:
            problem = one_line(str(error))
            records.append({"name": name, "settings": [], "seats": [], "problem": problem, **_entries(live, None)})
            continue
        settings = []
        for one in inspect.signature(kind).parameters.values():
            if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
                default = one.default if isinstance(one.default, str | int | float | bool | None) else None
                settings.append({"name": one.name, "default": None if one.default is one.empty else default})
        seats = list(getattr(kind, "seats", ("agent",)))
        duels, solved = (getattr(kind, name, own) is not own for name, own in OPTIONAL_METHODS.items())
        record = {
            "name": name,
            "about": one_line((inspect.getdoc(kind) or "").partition("\n")[0]),
            "settings": settings,
            "seats": seats,
            "players": [*getattr(kind, "players", {}), *(["oracle"] if solved else [])],
            "opponent": "needed" if len(seats) > 1 else "possible" if duels else "none",
        }
        records.append({**record, **_entries(live, kind)})
    return records


def _entries(viewers: Iterable[LiveViewer], kind: object) -> dict[str, Any]:
    return {name: value for viewer in viewers for name, value in viewer.playable(kind).items()}


def opponent_checkpoints(folders: Iterable[Path]) -> list[Path]:
    """The checkpoints of these runs."""
    return [path for folder in folders for path in checkpoints_of(folder)]


def checkpoint_records(folders: Iterable[Path]) -> list[dict[str, str]]:
    """The checkpoints of these runs as opponents: the name to show, and the path."""
    pairs = ((folder, one) for folder in folders for one in checkpoints_of(folder))
    return [{"name": f"{folder.name}/{one.name}", "path": str(one)} for folder, one in pairs]


def task_records(
    env: str, split: str, viewers: Iterable[Viewer], *, offset: int = 0, limit: int = 50
) -> dict[str, Any]:
    """Some tasks of a split, with their beginnings. Raises UsageError for an environment that is not ready-made."""
    _check_ready_made(env)
    environment = resolve_environment(env).env
    with boundary(EnvironmentFailure):
        some = list(islice(environment.tasks(split), offset, offset + limit + 1))
    hidden = any(one.hides_info(environment) for one in viewers if isinstance(one, SetupViewer))
    records = []
    for index, task in enumerate(some[:limit], offset):
        question = next((message.content for message in reversed(task.prompt) if message.role == "user"), "")
        info = {} if hidden else task.info
        details = ", ".join(f"{key} {value}" for key, value in info.items() if isinstance(value, str | int | float))
        records.append({"index": index, "id": task.id, "begins": one_line(question or details, 160)})
    return {"tasks": records, "more": len(some) > limit}


def find_task(env: Environment, split: str, position_or_id: Any) -> Task:
    """A task by its position or its id. Raises UsageError when there is none."""
    if isinstance(position_or_id, int) and position_or_id >= 0:
        match = next(islice(env.tasks(split), position_or_id, None), None)
    else:
        match = next((task for task in islice(env.tasks(split), MAX_TASKS_SEARCHED) if task.id == position_or_id), None)
    if match is None:
        raise UsageError(f"the split {split!r} has no task {one_line(repr(position_or_id))}")
    return match


def check_opponent(name: str, env: Environment, opponents: Iterable[Path]) -> str:
    """Return an opponent's name. Raises UsageError unless it is a player of the environment or a listed checkpoint."""
    names = [*players_of(env), *(str(path) for path in opponents)]
    if name not in names:
        raise UsageError(f"there is no opponent {one_line(name)!r}; there are: {', '.join(names[:20]) or 'none'}")
    return name


def game_setting(body: Mapping[str, Any], *, root: Path, folders: Iterable[Path]) -> GameSetting:
    """Make the requested game. Raises UsageError of one line for an impossible one."""
    name = body.get("env")
    if not isinstance(name, str):
        raise UsageError("say which environment is to be played: env")
    _check_ready_made(name)
    resolved, opponent, seed = resolve_environment(name), body.get("opponent") or "", body.get("seed", 0)
    if not isinstance(seed, int) or not isinstance(opponent, str):
        raise UsageError("seed is a whole number, and opponent a name")
    game, seat, others = _seats(
        resolved,
        opponent and check_opponent(opponent, resolved.env, opponent_checkpoints(folders)),
        str(body.get("seat") or ""),
    )
    with boundary(EnvironmentFailure):
        task = find_task(game, str(body.get("split") or "train"), body.get("task", 0))
    settings = {"env": environment_name(resolved.target), "policy": HUMAN_POLICY}
    return GameSetting(
        name=name, env=game, task=task, seed=seed, seat=seat, others=others,
        labels={seat: HUMAN_POLICY, **dict.fromkeys(others, opponent)} if others else {},
        save=rollout_saver(root, resolved, name=f"play-{name}", settings=settings),
    )  # fmt: skip


def _check_ready_made(name: str) -> None:
    if ":" in name.partition(",")[0]:
        raise UsageError(f"only ready-made environments are played here, and {one_line(name)!r} is none")


def _seats(resolved: ResolvedEnvironment, opponent: str, seat: str) -> tuple[Environment, str, dict[str, Policy]]:
    """The game, the person's seat, and the policies of the others."""
    env = resolved.env
    if not opponent:
        if len(env.seats) > 1:
            raise UsageError(f"{resolved.name} has the seats {', '.join(env.seats)}: choose who plays the others")
        return env, env.seats[0], {}
    policy = resolve_policy(opponent, env, PolicyOptions(temperature=0.0)).policy
    if len(env.seats) == 1:
        env = two_seat_environment(resolved)
        seat = seat or env.seats[1]
    seat = seat or env.seats[0]
    if seat not in env.seats:
        raise UsageError(f"{resolved.name} has no seat {one_line(seat)!r}: one of {', '.join(env.seats)}")
    return env, seat, {one: policy for one in env.seats if one != seat}


def rollout_saver(root: Path, resolved: ResolvedEnvironment, *, name: str, settings: Mapping[str, Any]) -> SaveRollout:
    """Make a function that stores games with these settings in a run below `root`."""
    return lambda played: save_played_rollout(
        played, folder_for(root, name, settings), env=environment_name(resolved.target), settings=settings
    )


T = TypeVar("T")
CALL_TIMEOUT_SECONDS = 330.0
"""Seconds that a caller waits for the games' thread, which answers much sooner unless an environment blocks it."""


class GameSessions:
    """Games by their id, to be called from any thread; `close` ends them all.

    They run in one thread with one event loop: an environment that computes blocks other games, never pages.
    """

    def __init__(self, bounds: SessionLimits | None = None, viewers: Iterable[Viewer] = ()):
        self.bounds, self._viewers = bounds or SessionLimits(), [one for one in viewers if isinstance(one, LiveViewer)]
        self._sessions: dict[str, GameSession] = {}
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def begin(self, setting: GameSetting) -> dict[str, Any]:
        """Begin a game and wait for the person's first turn; the oldest finished ones make room.

        Raises UsageError when too many are in progress.
        """
        with self._lock:
            over = [id for id, session in self._sessions.items() if session.over]
            for id in over[: max(len(self._sessions) - self.bounds.sessions + 1, 0)]:
                del self._sessions[id]
            if len(self._sessions) >= self.bounds.sessions:
                raise UsageError(f"{len(self._sessions)} games are under way, and no more can be: end one of them")
            session = GameSession(secrets.token_hex(8), setting, self.bounds, viewers=self._viewers)
            self._sessions[session.id] = session
        self._run(session.begin())
        return self.record(session.id)

    def act(self, id: str, body: Any) -> dict[str, Any]:
        """Take a turn: `text`, a `call`, or both; or `stop`. Raises UsageError for anything else."""
        session = self._session(id)
        action = _action(body, turn=len(session.messages))
        self._run(session.leave("left") if action is None else session.act(action))
        return self.record(id)

    def record(self, id: str) -> dict[str, Any]:
        """A game as JSON data. Raises UsageError when there is none of that id."""
        return self.read(id, GameSession.record)

    def stored(self, id: str) -> StoredRollout | None:
        """The stored rollout of a finished game."""
        return self._session(id).stored

    def read(self, id: str, read: Callable[[GameSession], T]) -> T:
        """What `read` finds in a game; it runs in the games' thread, between two steps of the game.

        Raises UsageError when there is no game of that id.
        """
        session = self._session(id)

        async def reading() -> T:
            return read(session)

        return self._run(reading())

    def drop(self, id: str) -> None:
        """Drop a game; it is not stored unless it was finished."""
        self._run(self._session(id).drop())
        with self._lock:
            self._sessions.pop(id, None)

    def list(self) -> list[dict[str, Any]]:
        """The games without their messages, newest first."""
        with self._lock:
            sessions = list(self._sessions.values())
        return [
            {"id": one.id, "env": one.setting.name, "task": one.setting.task.id, "over": one.over}
            for one in sessions[::-1]
        ]

    def close(self) -> None:
        """End all games and their thread; those in progress are not stored."""
        if self._loop is None or self._thread is None:
            return
        for session in list(self._sessions.values()):
            self._run(session.drop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def _session(self, id: str) -> GameSession:
        session = self._sessions.get(id)
        if session is None:
            raise UsageError(f"there is no game {id!r} (any more)")
        return session

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = Thread(target=self._loop.run_forever, name="games", daemon=True)
                self._thread.start()
            loop = self._loop
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result(CALL_TIMEOUT_SECONDS)
        except FutureTimeout as error:
            future.cancel()
            raise UsageError(
                f"no answer within {CALL_TIMEOUT_SECONDS:g} s: an environment holds up all games"
            ) from error


def _action(body: Any, *, turn: int) -> Message | None:
    """Parse a person's action; None when they leave."""
    if not isinstance(body, dict) or not body.keys() & {"text", "call", "stop"}:
        raise UsageError('an answer is {"text": ...}, {"call": {"name": ..., "arguments": {...}}} or {"stop": true}')
    if body.get("stop"):
        return None
    text, call = body.get("text") or "", body.get("call")
    if not isinstance(text, str):
        raise UsageError("the text of an answer is a text")
    text = text.encode(errors="backslashreplace").decode()  # lone surrogates can be neither sent nor stored
    if call is None:
        return assistant(text)
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise UsageError("a call has a name and arguments")
    arguments = call.get("arguments", {})
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return assistant(text, ToolCall(id=f"typed-{turn}", name=call["name"], arguments=written))
