"""Files and folders that are written whole: whoever reads sees the old content or the new, whenever a process dies."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wanderlust.errors import writing

PARTIAL = ".partial"
"""End of the name of a draft."""


@contextmanager
def replacing(path: Path, *, mode: int | None = None, durable: bool = False, shared: bool = False) -> Iterator[Path]:
    """The path of a draft beside `path`: what the block makes there, a file or a folder, takes its place at the end.

    The draft is removed where the block fails. One that a killed process left is removed by the next. Folders above
    `path` are made. OSErrors pass.

    Args:
        path: A file or folder; an existing one is replaced. (A folder is missing for a moment.)
        mode: Permissions of a file; it is never readable by others before it has them. Default: the process's own.
        durable: A file is on the disk before it takes its place.
        shared: Several processes may write at once: each draft has a name of its own.
    """
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL}" if shared else f"{path.name}{PARTIAL}")
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove(draft)
    try:
        if mode is not None:
            os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield draft
        if mode is not None:
            draft.chmod(mode)
        if durable:
            with draft.open("rb") as file:
                os.fsync(file)
        if draft.is_dir() and path.is_dir():
            shutil.rmtree(path)
        draft.replace(path)
    finally:
        _remove(draft)


def write_whole(path: Path, body: bytes | str, *, mode: int | None = None, shared: bool = False) -> None:
    """Write a file as `replacing` does; a text in UTF-8. Raises StoreError where it cannot be written."""
    with writing(path), replacing(path, mode=mode, shared=shared) as draft:
        draft.write_bytes(body.encode() if isinstance(body, str) else body)


def _remove(draft: Path) -> None:
    if draft.is_dir():
        shutil.rmtree(draft)
    else:
        draft.unlink(missing_ok=True)
