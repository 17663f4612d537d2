"""A lock that allows one writer per file, and ends with its process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from weakref import WeakSet

from wanderlust.errors import StoreError


class WriterLock:
    """Holds `path` + `.lock` until released or until the process dies, `kill -9` included.

    A second holder, in this process or another, gets a StoreError. The side file stays behind on purpose:
    removing it would let two processes lock two different files of one name.
    """

    def __init__(self, path: Path):
        try:
            self._file = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"{path}: cannot lock it for writing: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise StoreError(f"{path}: another writer has it open (process {holder})") from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, str(os.getpid()).encode(), 0)
        _held.add(self)

    def release(self) -> None:
        """Let the next writer in; a second call does nothing."""
        if self in _held:
            _held.discard(self)
            os.close(self._file)


LOCKS = Path("/proc/locks")
"""Linux's list of all locks."""


def writer_of(path: Path) -> int | None:
    """The process that writes the file at `path`, None without one; the lock itself is not touched.

    Where the system lists no locks, a process with the number of a killed writer is mistaken for it.
    """
    try:
        side = Path(f"{path}.lock")
        inode, process = side.stat().st_ino, int(side.read_text())
        os.kill(process, 0)
    except PermissionError:
        pass  # it lives, and belongs to another user
    except (OSError, ValueError, OverflowError):
        return None
    try:
        held = [line.split() for line in LOCKS.read_text().splitlines()]
    except OSError:
        return process
    return (
        process
        if any(
            (len(words) > 5 and words[1] == "FLOCK" and words[4] == str(process) and words[5].endswith(f":{inode}"))
            for words in held
        )
        else None
    )


_held: WeakSet[WriterLock] = WeakSet()


def _forget() -> None:
    for lock in list(_held):
        lock.release()


# A forked child shares the lock; without this an orphaned worker would hold it after its parent was killed.
os.register_at_fork(after_in_child=_forget)
