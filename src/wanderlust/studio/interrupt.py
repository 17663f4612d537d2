"""Ctrl-C and SIGTERM at any moment, in the middle of an import or of a long pass of the model too."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def leaving(farewell: Callable[[], None]) -> Iterator[None]:
    """Guarantees that SIGINT and SIGTERM call `farewell` and end the process with 128 + signal, at once.

    Only for work that survives `kill -9`: nothing is unwound. An exception raised into the main thread would wait
    for the C code there, and libraries being imported turn it into anything. Call it in the main thread.
    """
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    watcher = Thread(target=_watch, args=(ours, farewell), daemon=True)
    before = [signal.signal(number, _wait) for number in SIGNALS]
    told = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(told)
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)
        theirs.close()
        watcher.join()
        ours.close()


def _wait(number: int, frame: object) -> None:
    """Nothing: the watcher has heard of it as well."""


def _watch(heard: socket.socket, farewell: Callable[[], None]) -> None:
    while received := heard.recv(1):
        if (number := received[0]) in SIGNALS:
            try:
                for process in multiprocessing.active_children():
                    process.terminate()
                farewell()
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(128 + number)
