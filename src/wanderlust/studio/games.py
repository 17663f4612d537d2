"""What can be played, and against whom.

The games that are under way in the studio, in a thread of their own: an environment never holds up a page.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from functools import cache
from itertools import islice
from pathlib import Path
from threading import Lock, Thread
from typing import Any, TypeAlias, TypeVar

from wanderlust.environment import Environment
from wanderlust.errors import EnvironmentFailure, UsageError, WanderlustError, boundary, one_line
from wanderlust.policies.resolve import Voice, find_policy, players_of, written
from wanderlust.store.run_folder import HAND, Stored, checkpoints_of, folder_for, keep
from wanderlust.studio.play_session import Bounds, Session, Setting
from wanderlust.studio.world_view import clipped
from wanderlust.tasks.registry import Found, find_environment, for_two, named, ready_made
from wanderlust.types import Message, Policy, Rollout, Task, ToolCall, assistant
from wanderlust.worlds.wrap.environment import WorldEnvironment, log_of
from wanderlust.worlds.wrap.teams import TeamWorlds
from wanderlust.worlds.wrap.thinking_time import decisions

Keep: TypeAlias = Callable[[Rollout], Stored]
MOST_TASKS = 200
"""Tasks that are listed at once."""
FAR = 100_000
"""How far into a split a task is looked for by its id."""


@cache
def environments() -> list[dict[str, Any]]:
    """Every ready-made environment: its settings, its seats, who can play in it; with `problem` where it cannot be."""
    return [_told(name, target) for name, target in ready_made().items()]


def _told(name: str, target: str) -> dict[str, Any]:
    try:
        with boundary(EnvironmentFailure):
            kind = named(target)
    except WanderlustError as error:
        return {"name": name, "settings": [], "seats": [], "world": False, "problem": one_line(str(error))}
    seats = list(getattr(kind, "seats", ("agent",)))
    team = inspect.isclass(kind) and issubclass(kind, TeamWorlds)
    duel = getattr(kind, "duel", None)
    return {
        "name": name,
        "about": one_line((inspect.getdoc(kind) or "").partition("\n")[0]),
        "settings": list(_settings(kind)),
        "seats": seats,
        "world": inspect.isclass(kind) and issubclass(kind, WorldEnvironment),
        "players": [*getattr(kind, "players", {}), *(["oracle"] if hasattr(kind, "oracle") else [])],
        "opponent": "needed" if team or len(seats) > 1 else "possible" if duel is not None else "none",
    }


def _settings(kind: Any) -> Iterator[dict[str, Any]]:
    for one in inspect.signature(kind).parameters.values():
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            default = one.default if isinstance(one.default, str | int | float | bool | None) else None
            yield {"name": one.name, "default": None if one.default is one.empty else default}


def opponents_in(folders: Iterable[Path]) -> list[Path]:
    """The checkpoints of these runs."""
    return [path for folder in folders for path in checkpoints_of(folder)]


def checkpoints(folders: Iterable[Path]) -> list[dict[str, str]]:
    """The checkpoints of these runs, as opponents: what to show, and the path that names each."""
    found = ((folder, one) for folder in folders for one in checkpoints_of(folder))
    return [{"name": f"{folder.name}/{one.name}", "path": str(one)} for folder, one in found]


def tasks(env: str, split: str, *, offset: int = 0, limit: int = 50) -> dict[str, Any]:
    """Some tasks of a split, with how they begin. Raises UsageError for what is not ready-made."""
    _ready(env)
    found = find_environment(env).env
    with boundary(EnvironmentFailure):
        some = list(islice(found.tasks(split), offset, offset + limit + 1))
    shown = [{"index": offset + n, "id": task.id, "begins": _begins(task)} for n, task in enumerate(some[:limit])]
    return {"tasks": shown, "more": len(some) > limit}


def _begins(task: Task) -> str:
    said = next((message.content for message in reversed(task.prompt) if message.role == "user"), "")
    told = ", ".join(f"{key} {value}" for key, value in task.info.items() if isinstance(value, str | int | float))
    return one_line(said or told, 160)


def the_task(env: Environment, split: str, asked: Any) -> Task:
    """A task by its position or its id. Raises UsageError when there is none."""
    if isinstance(asked, int) and asked >= 0:
        found = next(islice(env.tasks(split), asked, None), None)
    else:
        found = next((task for task in islice(env.tasks(split), FAR) if task.id == asked), None)
    if found is None:
        raise UsageError(f"the split {split!r} has no task {one_line(repr(asked))}")
    return found


def allowed(name: str, env: Environment, opponents: Iterable[Path]) -> str:
    """An opponent's name, if it is a player of the environment or a checkpoint of a run that is open here."""
    known = [*players_of(env), *(str(path) for path in opponents)]
    if name not in known:
        raise UsageError(f"there is no opponent {one_line(name)!r}; there are: {', '.join(known[:20]) or 'none'}")
    return name


def seated(body: Mapping[str, Any], *, root: Path, folders: Iterable[Path]) -> Setting:
    """The game that somebody asks for. Raises UsageError in one line for whatever cannot be."""
    name = body.get("env")
    if not isinstance(name, str):
        raise UsageError("say which environment is to be played: env")
    _ready(name)
    found, opponent, seed = find_environment(name), body.get("opponent") or "", body.get("seed", 0)
    if not isinstance(seed, int) or not isinstance(opponent, str):
        raise UsageError("seed is a whole number, and opponent a name")
    game, seat, others = _seats(
        found, opponent and allowed(opponent, found.env, opponents_in(folders)), str(body.get("seat") or "")
    )
    with boundary(EnvironmentFailure):
        task = the_task(game, str(body.get("split") or "train"), body.get("task", 0))
    return Setting(
        name=name, env=game, task=task, seed=seed, seat=seat, others=others,
        labels={seat: HAND, **dict.fromkeys(others, opponent)} if others else {},
        keep=keeper(root, found, name=f"play-{name}", settings={"env": written(found), "policy": HAND}),
    )  # fmt: skip


def _ready(name: str) -> None:
    if ":" in name.partition(",")[0]:
        raise UsageError(f"only ready-made environments are played here, and {one_line(name)!r} is none")


def _seats(found: Found, opponent: str, seat: str) -> tuple[Environment, str, dict[str, Policy]]:
    """The game, the person's seat, and who sits in the others."""
    env = found.env
    if not opponent:
        if len(env.seats) > 1:
            raise UsageError(f"{found.name} has the seats {', '.join(env.seats)}: choose who plays the others")
        return env, env.seats[0], {}
    policy = find_policy(opponent, env, Voice(temperature=0.0)).policy
    if len(env.seats) == 1:
        env = for_two(found)
        seat = seat or env.seats[1]
    seat = seat or env.seats[0]
    if seat not in env.seats:
        raise UsageError(f"{found.name} has no seat {one_line(seat)!r}: one of {', '.join(env.seats)}")
    return env, seat, {one: policy for one in env.seats if one != seat}


def keeper(root: Path, found: Found, *, name: str, settings: Mapping[str, Any]) -> Keep:
    """A function that keeps games with these settings in a run below `root`."""
    return lambda played: keep(played, folder_for(root, name, settings), env=found.name, settings=settings)


def onward(
    rollout: Rollout,
    moment: int,
    found: Found,
    *,
    policy: str,
    since: Mapping[str, Any],
    keep: Keep,
    opponents: Iterable[Path],
) -> Setting:
    """The game that goes on from the first decision of a rollout at or after a moment, by hand or with a policy.

    Raises UsageError where nothing is left to be decided, and for a team by hand: its other seats need somebody.
    """
    env = found.env
    if not isinstance(env, WorldEnvironment):
        raise UsageError(f"{found.name} is no world: there is nothing to go on from")
    places = decisions(log_of(rollout))
    number = bisect_left(places, moment)
    if number == len(places):
        raise UsageError("the agent decides nothing after this moment: choose an earlier one")
    player = None
    if policy != HAND:
        player = find_policy(allowed(policy, env, opponents), env, Voice(temperature=0.0)).policy
    elif len(env.seats) > 1:
        raise UsageError(f"the seats {', '.join(env.seats[1:])} need somebody: go on with a policy")
    seat, others = env.seats[0], {} if player is None else dict.fromkeys(env.seats[1:], player)
    return Setting(
        name=found.name, env=env.onward(rollout, number), task=rollout.task, seed=rollout.seed, seat=seat,
        policy=player, others=others, labels={seat: policy, **dict.fromkeys(others, policy)},
        since={**since, "n": places[number], "decision": number}, keep=keep,
    )  # fmt: skip


T = TypeVar("T")
CALLED = 330.0
"""Seconds that a caller waits for the games' thread, which answers much sooner unless an environment holds it up."""


class Sessions:
    """Games by their id, to be called from any thread; `close` ends them all.

    They are played in one thread with one event loop: an environment that computes holds up other games, never pages.
    """

    def __init__(self, bounds: Bounds | None = None):
        self.bounds = bounds or Bounds()
        self._open: dict[str, Session] = {}
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def begin(self, setting: Setting) -> dict[str, Any]:
        """A new game, as far as the person's first turn. Raises UsageError when too many are under way."""
        with self._lock:
            self._make_room()
            session = Session(secrets.token_hex(8), setting, self.bounds)
            self._open[session.id] = session
        self._run(session.begin())
        return self.record(session.id)

    def _make_room(self) -> None:
        """Forget the oldest that are over; those under way stay."""
        over = [id for id, session in self._open.items() if session.over]
        for id in over[: max(len(self._open) - self.bounds.sessions + 1, 0)]:
            del self._open[id]
        if len(self._open) >= self.bounds.sessions:
            raise UsageError(f"{len(self._open)} games are under way, and no more can be: end one of them")

    def act(self, id: str, body: Any) -> dict[str, Any]:
        """Take a turn: `text`, a `call`, or both; or `stop`. Raises UsageError for anything else."""
        session = self._session(id)
        action = _action(body, turn=len(session.messages))
        self._run(session.leave("left") if action is None else session.act(action))
        return self.record(id)

    def record(self, id: str) -> dict[str, Any]:
        """A game as the page has it. Raises UsageError when there is none of that id."""
        return self._run(_made(self._session(id)))

    def stored(self, id: str) -> Stored | None:
        """Where a game lies that is over."""
        return self._session(id).stored

    def apps(self, id: str) -> dict[str, Any]:
        """How the apps of the world stand that a game is played in. Raises UsageError where there is none."""
        return self._run(_apps(self._session(id)))

    def drop(self, id: str) -> None:
        """Throw a game away; nothing of it is kept unless it was over."""
        self._run(self._session(id).drop())
        with self._lock:
            self._open.pop(id, None)

    def list(self) -> list[dict[str, Any]]:
        """The games there are, newest first, without what was said."""
        with self._lock:
            found = list(self._open.values())
        return [
            {"id": one.id, "env": one.setting.name, "task": one.setting.task.id, "over": one.over}
            for one in found[::-1]
        ]

    def close(self) -> None:
        """End all games and their thread; nothing of those under way is kept."""
        if self._loop is None or self._thread is None:
            return
        for session in list(self._open.values()):
            self._run(session.drop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def _session(self, id: str) -> Session:
        session = self._open.get(id)
        if session is None:
            raise UsageError(f"there is no game {id!r} (any more)")
        return session

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            loop = self._started()
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result(CALLED)
        except FutureTimeout as error:
            future.cancel()
            raise UsageError(f"no answer within {CALLED:g} s: an environment holds up all games") from error

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = Thread(target=self._loop.run_forever, name="games", daemon=True)
            self._thread.start()
        return self._loop


async def _made(session: Session) -> dict[str, Any]:
    return session.record()


async def _apps(session: Session) -> dict[str, Any]:
    world = session.world
    if world is None:
        raise UsageError("this game is played in no world of apps")
    return {
        "time": world.now,
        "apps": {name: clipped(app.state(), 20_000) for name, app in world.apps.items()},
        "kinds": {name: type(app).__name__ for name, app in world.apps.items()},
    }


def _action(body: Any, *, turn: int) -> Message | None:
    """What a person did; None when they leave."""
    if not isinstance(body, dict) or not body.keys() & {"text", "call", "stop"}:
        raise UsageError('an answer is {"text": ...}, {"call": {"name": ..., "arguments": {...}}} or {"stop": true}')
    if body.get("stop"):
        return None
    text, call = body.get("text") or "", body.get("call")
    if not isinstance(text, str):
        raise UsageError("the text of an answer is a text")
    text = text.encode(errors="replace").decode()  # lone surrogates can be neither sent nor stored
    if call is None:
        return assistant(text)
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise UsageError("a call has a name and arguments")
    arguments = call.get("arguments", {})
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return assistant(text, ToolCall(id=f"typed-{turn}", name=call["name"], arguments=written))
