"""Whole folders into a sandbox and out of it, as one archive.

`tar` runs inside, as the sandbox's user. What comes out is untrusted: folders and regular files are made of it, and
nothing else. Links, devices, and entries whose names leave the folder or are too long for this machine are left out.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath

COPY_BYTES = 1 << 20


def pack_folder(source: Path) -> bytes:
    """An archive of what lies in `source`, links as links; it names no user."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for entry in sorted(source.iterdir()):
            archive.add(entry, entry.name, filter=_without_owner)
    return data.getvalue()


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack_folder(data: bytes, target: Path) -> None:
    """Write the folders and regular files of an untrusted archive into `target`, which holds no links."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts:
                continue
            try:
                if member.isdir():
                    (target / path).mkdir(parents=True, exist_ok=True)
                elif member.isreg():
                    (target / path).parent.mkdir(parents=True, exist_ok=True)
                    source = archive.extractfile(member)
                    assert source is not None
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                    with os.fdopen(os.open(target / path, flags, 0o600), "wb") as file:
                        shutil.copyfileobj(source, file, COPY_BYTES)
                        os.fchmod(file.fileno(), 0o755 if member.mode & 0o100 else 0o644)
            except OSError as error:
                if error.errno not in (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.ENOTDIR, errno.EEXIST):
                    raise
