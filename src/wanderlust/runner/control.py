"""Pause, resume and stop a run from outside, over a Unix socket in its folder that only its owner may write to.

A pause takes effect at the gate before the next rollout, and in training before the next step; running ones are
finished first. It changes no result, so a run that was paused ends in the same bits, and a paused one can be killed.
Stopping is one Ctrl-C. Requests are stored as events of the run. Not covered: systems without Unix sockets.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from threading import Thread
from typing import Literal, get_args

from wanderlust.errors import StoreError, UsageError, one_line
from wanderlust.runner.pause import PauseGate, pause_gate
from wanderlust.store.reader import store_errors

SOCKET_NAME, CONTROL_EVENT = "control.sock", "control"
"""Name of the socket, and kind of the events."""
MAX_SOCKET_PATH_BYTES, MAX_LINE_BYTES = 100, 1000
"""Longest address of a Unix socket that all systems take, and longest request."""
CONTROL_TIMEOUT_SECONDS = 2.0
"""Seconds that either side waits for the other's line."""
ControlCommand = Literal["pause", "resume", "stop", "status"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlState:
    """A run's answer to a request."""

    state: str
    """`running`, `paused` or `stopping`."""
    process: int


@contextmanager
def serve_control(store: Path, say: Callable[[str], object]) -> Iterator[None]:
    """Answer requests to the run whose store this process writes, for the time of the block; `say` reports them.

    Where no socket can be made, `say` reports the reason, and the run goes on without it.
    """
    path, gate = store.parent / SOCKET_NAME, PauseGate()
    try:
        path.unlink(missing_ok=True)  # of a process that was killed: the store has one writer
        listening = _at(path, _listen)
    except OSError as error:
        say(f"this run cannot be paused from outside: {path}: {error.strerror or error}")
        yield
        return
    end, ended = socket.socketpair()
    thread = Thread(target=_Listener(store, gate, say).listen, args=(listening, ended), daemon=True)
    thread.start()
    before = pause_gate.set(gate)
    try:
        yield
    finally:
        pause_gate.reset(before)
        gate.open()
        end.close()
        thread.join()
        path.unlink(missing_ok=True)


@dataclass(slots=True)
class _Listener:
    """Answer one request after the other, in a thread of its own."""

    store: Path
    gate: PauseGate
    say: Callable[[str], object]
    stopping: bool = False

    def listen(self, listening: socket.socket, ended: socket.socket) -> None:
        """Until the other end of `ended` is closed, also where the address is gone with its folder."""
        with listening, ended, DefaultSelector() as selector:
            listening.setblocking(False)
            for one in (listening, ended):
                selector.register(one, EVENT_READ)
            while all(key.fileobj is not ended for key, _ in selector.select()):
                before = self.stopping
                with suppress(OSError):  # the client has gone, or sends nothing
                    connection, _ = listening.accept()
                    with connection:
                        connection.settimeout(CONTROL_TIMEOUT_SECONDS)
                        connection.sendall(self.answer(_line(connection)) + b"\n")
                if self.stopping and not before:
                    os.kill(os.getpid(), signal.SIGINT)  # once: a second one ends the process without saving

    def answer(self, line: bytes) -> bytes:
        try:
            request = json.loads(line)
            command, by = request["do"], one_line(str(request["by"]), 40)
        except (ValueError, TypeError, KeyError, RecursionError):
            return b'{"error": "this is no request"}'
        if command not in get_args(ControlCommand):
            return b'{"error": "there are pause, resume, stop and status"}'
        try:
            self.do(command, by)
        except StoreError as error:
            return json.dumps({"error": str(error)}).encode()
        return json.dumps(asdict(ControlState(state=self.state, process=os.getpid()))).encode()

    @property
    def state(self) -> str:
        return "stopping" if self.stopping else "paused" if self.gate.is_closed else "running"

    def do(self, command: str, by: str) -> None:
        if command == "status" or self.stopping or (command != "stop" and self.gate.is_closed == (command == "pause")):
            return
        body = {"do": command, "by": by}
        # A connection of its own: the store's belongs to another thread of this process.
        with store_errors(self.store), closing(sqlite3.connect(self.store)) as db, db:
            db.execute("insert into events (kind, body) values (?, ?)", (CONTROL_EVENT, json.dumps(body)))
        if command == "stop":
            self.stopping = True
        elif command == "pause":
            self.gate.close()
            self.say("paused by request; episodes under way are finished first")
        else:
            self.say("resumed")
            self.gate.open()


def send_command(folder: Path, command: ControlCommand, *, by: str) -> ControlState:
    """Send a command to the run in `folder`. Raises UsageError when no active process answers for it."""
    try:
        with _at(folder / SOCKET_NAME, _connect) as connection:
            connection.settimeout(CONTROL_TIMEOUT_SECONDS)
            connection.sendall(json.dumps({"do": command, "by": by}).encode() + b"\n")
            body = json.loads(_line(connection))
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError) as error:
        raise UsageError(f"{folder}: no active process for this run") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder}: the process of this run does not answer: {one_line(str(error))}") from error
    if "error" in body:
        raise StoreError(f"{folder}: {one_line(str(body['error']))}")
    return ControlState(state=str(body["state"]), process=int(body["process"]))


def _line(connection: socket.socket) -> bytes:
    """Read up to the first line break, or the end."""
    read = b""
    while b"\n" not in read and len(read) < MAX_LINE_BYTES:
        more = connection.recv(MAX_LINE_BYTES)
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
        connection.settimeout(CONTROL_TIMEOUT_SECONDS)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def _at(path: Path, do: Callable[[str], socket.socket]) -> socket.socket:
    """Call `do` with the address of `path`; a path that is too long is given through its open folder (Linux)."""
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return do(str(path))
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return do(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


SIGNALS = (signal.SIGINT, signal.SIGTERM)


def stopping_signal() -> asyncio.Future[int]:
    """The exit code for the first SIGINT or SIGTERM from now on; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(number: int) -> None:
        if not stopped.done():
            for handled in SIGNALS:
                loop.remove_signal_handler(handled)
                signal.signal(handled, signal.SIG_DFL)
            stopped.set_result(128 + number)

    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    return stopped
