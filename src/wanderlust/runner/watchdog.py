"""Report what an evaluation waits for, and interrupt code that blocks the event loop.

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
from wanderlust.agent import Activity

NOTICE_SECONDS, LIMIT_SECONDS = 5.0, 60.0
"""Seconds that code may hold the event loop before it is reported, and before it is interrupted."""
SIGNAL = signal.SIGUSR1
_OURS = Path(wanderlust.__file__).parent
_ENGINE_FILES = ("environment.py", "errors.py", "types.py", "openai_types.py")
_ENGINE_FOLDERS = ("runner", "serving", "store", "policies", "tools", "rubrics", "evals", "cli", "studio")
_ENGINE = tuple(str(_OURS / part) for part in (*_ENGINE_FILES, *_ENGINE_FOLDERS))
"""Code of the engine, which is never named as the culprit."""
_MODEL = str(_OURS / "policies" / "local")
"""A local model's pass blocks the loop by design, and is not interrupted."""
_INTERPRETER = (sysconfig.get_path("stdlib"), "<frozen")


class BlockedLoop(Exception):
    """Raised inside code that held the event loop for too long; it becomes that code's failure at the next boundary."""


def describe_waiting(active: Collection[Activity], now: float) -> str:
    """Describe episodes under way, e.g. `waiting for 3 rollouts, oldest 212 s, in tool search (task a)`."""
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
    """Watch the main thread's running loop in this block: report code that blocks it, and at last interrupt it.

    Code that blocks it longer than `notice` seconds is reported with file and line; after `limit` seconds BlockedLoop
    is raised in it, so that it fails and the rest continues. In other threads it does nothing.
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
    """Frame of the loop's callback at the last inspection."""
    since: float = 0.0
    reported: bool = False

    def watch(self) -> None:
        """In a thread: schedule `beat` in the loop, and inspect the main thread when it has not run."""
        while not self.over.wait(self.notice / 2):
            if self.alive:
                self.alive = False
                self.loop.call_soon_threadsafe(self.beat)
            else:
                signal.pthread_kill(main_thread().ident or 0, SIGNAL)

    def beat(self) -> None:
        """Mark the loop as alive."""
        self.alive, self.callback, self.reported = True, None, False

    def inspect_frame(self, number: int, frame: FrameType | None) -> None:
        """In the main thread, as a signal handler: find the code that blocks it, and report or interrupt it."""
        chain = []
        while frame is not None and frame.f_code is not Handle._run.__code__:
            chain.append(frame)
            frame = frame.f_back
        if frame is None or frame is not self.callback:
            self.callback, self.since = frame, time.monotonic() - self.notice / 2
        if any(one.f_code.co_filename.startswith(_MODEL) for one in chain):
            self.since = time.monotonic()  # what the model took is not on whoever called it
            return
        held, culprit = time.monotonic() - self.since, next(filter(_is_foreign_frame, chain), None)
        if frame is None or culprit is None or held < self.notice:
            return
        code = culprit.f_code
        where = f"{code.co_qualname} ({Path(code.co_filename).name}:{culprit.f_lineno})"
        if not self.reported:
            self.reported = True
            self.say(f"event loop blocked: {where} has held the event loop for {held:.0f} s")
        if held >= self.limit:
            self.callback = None
            raise BlockedLoop(f"{where} held the event loop for {held:.0f} s and was interrupted")


def _is_foreign_frame(frame: FrameType) -> bool:
    """Whether it is neither the interpreter's code nor the engine's."""
    file = frame.f_code.co_filename
    installed = "site-packages" in file or "dist-packages" in file  # these may lie within the interpreter's folder
    return not file.startswith(_ENGINE) and (installed or not file.startswith(_INTERPRETER))
