"""The folder's files by path, read and written by a program inside the sandbox, where every path ends at its walls.

A path is the model's word. It is resolved inside, links and all, and refused unless the whole of it lies in the
folder; should a program in the sandbox exchange a part of it meanwhile, it gains a file of the sandbox, never one of
the machine.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

from wanderlust.core.text import one_line
from wanderlust.tools.sandbox.contract import Result

FOLDER = "/work"
_OUTSIDE, _IRREGULAR, _MISSING, _FAILED = 81, 82, 83, 84
_RESOLVE = (
    'here=$(pwd -P) || exit 84; path=$(realpath -m -- "$1" 2>/dev/null; echo x) || exit 83; path=${path%?x};'
    ' case "$path/" in "$here"/*/) ;; "$here/") exit 82 ;; *) exit 81 ;; esac;'
)
_READ = _RESOLVE + '[ -e "$path" ] || exit 83; [ -f "$path" ] || exit 82; exec head -c "$2" -- "$path"'
_WRITE = (
    _RESOLVE
    + 'if [ -e "$path" ] && [ ! -f "$path" ]; then exit 82; fi; mkdir -p -- "${path%/*}" && cat > "$path" || exit 84'
)

Run = Callable[[list[str], bytes, int], Awaitable[Result]]
"""Runs a program with its input inside the sandbox, keeping this many bytes of its output."""


async def read(run: Run, path: str, limit: int) -> bytes:
    """The first `limit` bytes of a file; errors as in `Sandbox.read`."""
    _possible(path)
    result = await run(["sh", "-c", _READ, "sh", path, str(limit)], b"", 2 * limit + 2)
    _check(result, path)
    return result.stdout[:limit]


async def write(run: Run, path: str, data: bytes) -> None:
    """Write a file and the folders it lies in; errors as in `Sandbox.write`."""
    _possible(path)
    _check(await run(["sh", "-c", _WRITE, "sh", path], data, 4096), path)


def _possible(path: str) -> None:
    """Refuse what no system call takes, before a shell sees it."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise FileNotFoundError(errno.ENOENT, "no such file in the folder", one_line(path)) from None
    if not encoded or b"\0" in encoded or len(encoded) > 4096:
        raise FileNotFoundError(errno.ENOENT, "no such file in the folder", one_line(path))


def _check(result: Result, path: str) -> None:
    if result.stopped:
        raise TimeoutError(errno.ETIMEDOUT, "the file took too long", one_line(path))
    if result.code == _OUTSIDE:
        raise PermissionError(errno.EACCES, "the path leaves the folder", one_line(path))
    if result.code == _IRREGULAR:
        raise PermissionError(errno.EACCES, "not a regular file", one_line(path))
    if result.code == _MISSING:
        raise FileNotFoundError(errno.ENOENT, "no such file in the folder", one_line(path))
    if result.code != 0:
        raise OSError(errno.EIO, one_line(result.stderr.decode("utf-8", "replace")) or "failed", one_line(path))
