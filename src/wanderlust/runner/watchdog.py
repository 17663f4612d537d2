"""Says what an evaluation waits for, and frees an event loop that somebody's code does not give back.

Not covered: C code that holds the interpreter's lock and never looks at signals; then nothing in this process can run.
"""

from __future__ import annotations

import asyncio
import signal
import sysconfig
import time
from asyncio.events import Handle
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread, get_ident, main_thread
from types import FrameType

import wanderlust
from wanderlust.environment import Activity

NOTICE_SECONDS, LIMIT_SECONDS = 5.0, 60.0
"""How long one piece of code may hold the event loop before it is named, and before it is interrupted."""
SIGNAL = signal.SIGUSR1
_OURS = Path(wanderlust.__file__).parent
_ENGINE = tuple(
    str(_OURS / room)
    for room in ("runner", "policies", "tools", "rubrics", "evals", "store", "serving", "studio", "cli")
)
_MODEL = str(_OURS / "policies" / "local")
"""A pass of a local model takes as long as it takes: whoever waits for it waits for nothing else."""
_INTERPRETER = (sysconfig.get_path("stdlib"), "<frozen")


class BlockedLoop(Exception):
    """Raised inside code that held the event loop for too long; the wall it crosses is the one it stands behind."""


def describe_waiting(active: Collection[Activity], now: float) -> str:
    """What is still being played, e.g. `waiting for 3 rollouts, oldest 212 s, in tool search (task a)`."""
    if not active:
        return "no active episodes"
    oldest = min(active, key=lambda activity: activity.since)
    plural = "s" if len(active) > 1 else ""
    where = f"in {oldest.current_step} (task {oldest.task})"
    return f"waiting for {len(active)} rollout{plural}, oldest {now - oldest.since:.0f} s, {where}"


@contextmanager
def watch_event_loop(
    say: Callable[[str], object], *, notice: float = NOTICE_SECONDS, limit: float = LIMIT_SECONDS
) -> Iterator[None]:
    """Inside, in the main thread's running loop: code that holds the loop is named and at last interrupted.

    What holds it longer than `notice` seconds is said, with file and line; after `limit` seconds BlockedLoop is raised
    in it, so that it fails and all else goes on. In other threads it does nothing.
    """
    if get_ident() != main_thread().ident or signal.getsignal(SIGNAL) is not signal.SIG_DFL:
        yield
        return
    guard = _Guard(say, notice, limit, asyncio.get_running_loop())
    signal.signal(SIGNAL, guard.inspect_frame)
    thread = Thread(target=guard.watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        guard.over.set()
        thread.join()
        signal.signal(SIGNAL, signal.SIG_DFL)


@dataclass(slots=True)
class _Guard:
    say: Callable[[str], object]
    notice: float
    limit: float
    loop: asyncio.AbstractEventLoop
    over: Event = field(default_factory=Event)
    alive: bool = True
    callback: FrameType | None = None
    """What the loop was running when it was looked at last."""
    since: float = 0.0
    reported: bool = False

    def watch(self) -> None:
        """In a thread: ask the loop for a sign of life, and look at it when there is none."""
        while not self.over.wait(self.notice / 2):
            if self.alive:
                self.alive = False
                self.loop.call_soon_threadsafe(self.beat)
            else:
                signal.pthread_kill(main_thread().ident or 0, SIGNAL)

    def beat(self) -> None:
        """The loop is alive."""
        self.alive, self.callback, self.reported = True, None, False

    def inspect_frame(self, number: int, frame: FrameType | None) -> None:
        """In the main thread, at whatever holds it."""
        chain = []
        while frame is not None and frame.f_code is not Handle._run.__code__:
            chain.append(frame)
            frame = frame.f_back
        if frame is None or frame is not self.callback:
            self.callback, self.since = frame, time.monotonic() - self.notice / 2
        held, culprit = time.monotonic() - self.since, next(filter(_is_foreign_frame, chain), None)
        if frame is None or culprit is None or held < self.notice or any(map(_is_model_frame, chain)):
            return
        code = culprit.f_code
        where = f"{code.co_qualname} ({Path(code.co_filename).name}:{culprit.f_lineno})"
        if not self.reported:
            self.reported = True
            self.say(f"event loop blocked: {where} has held the event loop for {held:.0f} s")
        if held >= self.limit:
            self.callback = None
            raise BlockedLoop(f"{where} held the event loop for {held:.0f} s and was interrupted")


def _is_model_frame(frame: FrameType) -> bool:
    """Whether it is a local model's pass."""
    return frame.f_code.co_filename.startswith(_MODEL)


def _is_foreign_frame(frame: FrameType) -> bool:
    """Whether it is neither the interpreter's code nor the engine's."""
    file = frame.f_code.co_filename
    installed = "site-packages" in file or "dist-packages" in file  # these may lie within the interpreter's folder
    return not file.startswith(_ENGINE) and (installed or not file.startswith(_INTERPRETER))
