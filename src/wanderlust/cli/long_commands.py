"""Shared by all long commands: quiet libraries, progress on stderr, and a clean end on SIGINT and SIGTERM."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from wanderlust.cli.output import print_note
from wanderlust.errors import UsageError, WanderlustError
from wanderlust.runner.control import SIGNALS
from wanderlust.runner.progress import Progress
from wanderlust.store.run_folder import CONFIG_FILE, open_folder

QUIET_LIBRARY_SETTINGS = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    # Threads that wait for work by spinning take a core from the workers.
    "GOMP_SPINCOUNT": "0",
    "KMP_BLOCKTIME": "0",
    "OMP_WAIT_POLICY": "passive",  # as libgomp has it: in a Turkish locale PASSIVE is another word
}
ONE_THREAD_SETTINGS = {"MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Parallel work is done by worker processes, one core each."""


def set_library_environment(*, one_thread: bool = False) -> None:
    """Settings of other libraries, for this process and its workers; must come before they are imported."""
    for name, value in {**QUIET_LIBRARY_SETTINGS, **(ONE_THREAD_SETTINGS if one_thread else {})}.items():
        os.environ.setdefault(name, value)
    warnings.showwarning = _print_warning


def _print_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Shows this library's warnings, and Python's own about a forgotten `await`, which makes figures wrong."""
    forgotten = issubclass(category, RuntimeWarning) and "never awaited" in str(message)
    if category.__module__.startswith("wanderlust") or forgotten:
        print_note(f"{message}: put `await` before the call" if forgotten else str(message))


@contextmanager
def stoppable(farewell: Callable[[], str]) -> Iterator[Progress]:
    """Progress on stderr; SIGINT and SIGTERM end the process at once, with the line that `farewell` returns."""
    set_library_environment()
    progress = Progress()

    def leave() -> None:
        progress.close()
        print_note(farewell())

    with end_on_signal(leave), progress:
        yield progress


@contextmanager
def resumable(folder: Path, resume_command: str) -> Iterator[Progress]:
    """Like `stoppable`, for a run that `resume_command` resumes; the command is printed whatever stops the run, but for
    a usage error, which says itself what to do."""

    def farewell() -> str:
        exists = (folder / CONFIG_FILE).is_file()
        return (
            f"stopped; finished work is saved; resume with: {resume_command}" if exists else "stopped before it began"
        )

    set_library_environment(one_thread=True)
    with stoppable(farewell) as progress:
        try:
            yield progress
        except WanderlustError as error:
            progress.close()
            run = None if isinstance(error, UsageError) else open_folder(folder)  # the same call would fail again
            if run is not None and not run.finished:
                print_note(f"resume the run with: {resume_command}")
            raise


@contextmanager
def end_on_signal(farewell: Callable[[], None]) -> Iterator[None]:
    """Guarantees that SIGINT and SIGTERM call `farewell` and end the process with 128 + signal, at once.

    Only for work that survives `kill -9`: nothing is unwound. An exception raised into the main thread would wait
    for the C code there, and libraries being imported turn it into anything. Call it in the main thread.
    """
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    watcher = Thread(target=_watch, args=(ours, farewell), daemon=True)
    before = [signal.signal(number, lambda *_: None) for number in SIGNALS]  # the watcher gets every signal too
    previous_fd = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous_fd)
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)
        theirs.close()
        watcher.join()
        ours.close()


def _watch(signal_socket: socket.socket, farewell: Callable[[], None]) -> None:
    while received := signal_socket.recv(1):
        if (number := received[0]) in SIGNALS:
            try:
                for process in multiprocessing.active_children():
                    process.terminate()
                farewell()
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(128 + number)
