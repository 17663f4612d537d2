"""The games that are under way in the studio, in a thread of their own: an environment never holds up a page."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from threading import Lock, Thread
from typing import Any, TypeVar

from wanderlust.core.errors import UsageError
from wanderlust.core.messages import Message, ToolCall, assistant
from wanderlust.studio.played import Stored
from wanderlust.studio.server.session import Bounds, Session, Setting
from wanderlust.studio.server.world_entries import clipped

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
