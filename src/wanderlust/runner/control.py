"""Pause, resume and stop a run from outside: a Unix socket in its folder, which its owner alone may write to.

A pause takes hold before the next rollout, and in training before the next step; what is under way is finished first.
Nothing is computed differently for it, so a run that was paused ends in the same bits, and a paused one can be killed.
Stopping is one Ctrl-C. What was asked is kept as events of the run. Not covered: systems without Unix sockets.

What a run goes through before each rollout and each step: shut while it is paused.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import Literal, get_args

from wanderlust.errors import StoreError, UsageError, one_line
from wanderlust.store.reader import told


class Turnstile:
    """Open, unless the run is paused. Shut and opened from another thread than the one that waits."""

    def __init__(self) -> None:
        self.shut = False
        self._lock = Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    async def opened(self) -> None:
        """Wait while it is shut."""
        while self.shut:
            loop = asyncio.get_running_loop()
            waiting = loop, loop.create_future()
            with self._lock:
                if not self.shut:
                    return
                self._waiting.append(waiting)
            await waiting[1]

    def close(self) -> None:
        """Let nobody through."""
        with self._lock:
            self.shut = True

    def open(self) -> None:
        """Let everybody through."""
        with self._lock:
            self.shut, waiting, self._waiting = False, self._waiting, []
        for loop, future in waiting:
            with suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(_release, future)


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


TURNSTILE: ContextVar[Turnstile | None] = ContextVar("turnstile", default=None)


async def passed() -> None:
    """Returns at once, unless the run that the caller belongs to is paused."""
    turnstile = TURNSTILE.get()
    if turnstile is not None and turnstile.shut:
        await turnstile.opened()


SOCKET, EVENT = "control.sock", "control"
"""Name of the socket, and kind of the events."""
LONGEST_PATH, LONGEST_LINE = 100, 1000
"""Bytes that the address of a Unix socket may have everywhere, and of a request."""
PATIENCE = 2.0
"""Seconds that either side waits for the other's line."""
Deed = Literal["pause", "resume", "stop", "status"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What a run says when it is asked."""

    state: str
    """`running`, `paused` or `stopping`."""
    process: int


@contextmanager
def controlled(store: Path, say: Callable[[str], object]) -> Iterator[None]:
    """For the time of the block, the run whose store this process writes can be asked; `say` hears what was asked.

    Where no socket can be made, `say` hears why, and the run goes on without.
    """
    path, turnstile = store.parent / SOCKET, Turnstile()
    try:
        path.unlink(missing_ok=True)  # of a process that was killed: the store has one writer
        listening = _at(path, _listen)
    except OSError as error:
        say(f"this run cannot be paused from outside: {path}: {error.strerror or error}")
        yield
        return
    thread = Thread(target=_Listener(store, turnstile, say).listen, args=(listening,), daemon=True)
    thread.start()
    before = TURNSTILE.set(turnstile)
    try:
        yield
    finally:
        TURNSTILE.reset(before)
        turnstile.open()
        with suppress(OSError):
            _at(path, _connect).close()  # a connection that says nothing ends the listener
        thread.join()
        path.unlink(missing_ok=True)


@dataclass(slots=True)
class _Listener:
    """Answers one request after the other, in a thread of its own."""

    store: Path
    turnstile: Turnstile
    say: Callable[[str], object]
    stopping: bool = False

    def listen(self, listening: socket.socket) -> None:
        with listening:
            while True:
                connection, _ = listening.accept()
                with connection:
                    connection.settimeout(PATIENCE)
                    try:
                        line = _line(connection)
                        if not line:
                            return
                        connection.sendall(self.answer(line) + b"\n")
                    except OSError:  # whoever asked has gone, or says nothing
                        continue
                if self.stopping:
                    os.kill(os.getpid(), signal.SIGINT)

    def answer(self, line: bytes) -> bytes:
        try:
            asked = json.loads(line)
            deed, by = asked["do"], one_line(str(asked["by"]), 40)
        except (ValueError, TypeError, KeyError, RecursionError):
            return b'{"error": "this is no request"}'
        if deed not in get_args(Deed):
            return b'{"error": "there are pause, resume, stop and status"}'
        try:
            self.do(deed, by)
        except StoreError as error:
            return json.dumps({"error": str(error)}).encode()
        return json.dumps(asdict(Reached(state=self.state, process=os.getpid()))).encode()

    @property
    def state(self) -> str:
        return "stopping" if self.stopping else "paused" if self.turnstile.shut else "running"

    def do(self, deed: str, by: str) -> None:
        if deed == "status" or self.stopping or (deed != "stop" and self.turnstile.shut == (deed == "pause")):
            return
        _record(self.store, {"do": deed, "by": by})
        if deed == "stop":
            self.stopping = True
        elif deed == "pause":
            self.turnstile.close()
            self.say("paused from outside; what is under way is finished first")
        else:
            self.say("goes on")
            self.turnstile.open()


def _record(store: Path, body: dict[str, str]) -> None:
    """Beside the store's own connection, which belongs to another thread of this process."""
    with told(store), closing(sqlite3.connect(store)) as db, db:
        db.execute("insert into events (kind, body) values (?, ?)", (EVENT, json.dumps(body)))


def ask(folder: Path, deed: Deed, *, by: str) -> Reached:
    """What the run in `folder` says to that. Raises UsageError when nobody is at work there who can be asked."""
    try:
        with _at(folder / SOCKET, _connect) as connection:
            connection.settimeout(PATIENCE)
            connection.sendall(json.dumps({"do": deed, "by": by}).encode() + b"\n")
            body = json.loads(_line(connection))
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError) as error:
        raise UsageError(f"{folder}: nobody is at work there") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder}: whoever is at work there does not answer: {one_line(str(error))}") from error
    if "error" in body:
        raise StoreError(f"{folder}: {one_line(str(body['error']))}")
    return Reached(state=str(body["state"]), process=int(body["process"]))


def _line(connection: socket.socket) -> bytes:
    """Up to the first line break, or the end."""
    read = b""
    while b"\n" not in read and len(read) < LONGEST_LINE:
        more = connection.recv(LONGEST_LINE)
        if not more:
            break
        read += more
    return read.partition(b"\n")[0]


def _listen(address: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(address)
        os.chmod(address, 0o600)
        listening.listen(8)
    except OSError:
        listening.close()
        raise
    return listening


def _connect(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(PATIENCE)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def _at(path: Path, do: Callable[[str], socket.socket]) -> socket.socket:
    """Do that with the address of `path`; a long one is told through the open folder, which Linux can."""
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return do(str(path))
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return do(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


SIGNALS = (signal.SIGINT, signal.SIGTERM)
