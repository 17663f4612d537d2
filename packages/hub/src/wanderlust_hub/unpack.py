"""A wheel that is unpacked without running anything of it: plain files below one folder, bounded in number and size.

Refused are paths that leave the folder, links and devices, files that Python runs at its start, schemes that install
outside of the package (`.data`), and modules with the names of others.
"""

from __future__ import annotations

import stat
import sys
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from wanderlust.errors import UsageError, one_line

MAX_FILES, MAX_UNPACKED_BYTES, MAX_PATH_CHARS = 10_000, 1 << 28, 240
STARTUP_MODULES = frozenset({"sitecustomize", "usercustomize", "site", "__main__", "conftest"})
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_CHUNK_BYTES = 1 << 16


def unpack_wheel(wheel: Path, folder: Path, *, reserved: Iterable[str] = ()) -> int:
    """Unpack a wheel into a new folder, and return the number of its files.

    Args:
        wheel: The file.
        folder: The folder, which must not exist.
        reserved: Modules that the wheel must not have, besides those of Python.

    Raises:
        UsageError: The wheel has something that it must not have; the folder may then have some of its files.
    """
    taken = {*reserved, *STARTUP_MODULES, *sys.stdlib_module_names}
    try:
        with zipfile.ZipFile(wheel) as archive:
            items = archive.infolist()
            if len(items) > MAX_FILES:
                raise UsageError(f"the wheel has {len(items):,} files, and at most {MAX_FILES:,} are unpacked")
            files, places = [item for item in items if not item.is_dir()], set[str]()
            for item in items:
                _check(item, taken)
                if item.filename.casefold() in places:
                    raise UsageError(f"the wheel has {one_line(item.filename, 80)!r} twice")
                places.add(item.filename.casefold())
            if sum(item.file_size for item in files) > MAX_UNPACKED_BYTES:
                raise UsageError(f"the wheel unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
            folder.mkdir(parents=True)
            for item in files:
                _write(archive, item, folder)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise UsageError(f"the wheel cannot be unpacked: {one_line(str(error), 120) or type(error).__name__}") from None
    return len(files)


def _check(item: zipfile.ZipInfo, taken: set[str]) -> None:
    """Raises UsageError for a member that must not be there."""
    name, kind = item.filename, stat.S_IFMT(item.external_attr >> 16)
    shown, path = one_line(ascii(name), 100), PurePosixPath(name)
    wrong = ""
    if not name or len(name) > MAX_PATH_CHARS or not name.isprintable() or any(c in name for c in '\\:*?"<>|'):
        wrong = "is no plain path"
    elif path.is_absolute() or any(part in ("", ".", "..") for part in name.rstrip("/").split("/")):
        wrong = "leaves its folder"
    elif kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        wrong = "is a link or a device"
    elif item.flag_bits & 0x1 or item.compress_type not in METHODS:
        wrong = "is encrypted or packed in an unusual way"
    elif path.parts[0].endswith(".data"):
        wrong = "installs outside of the package"
    elif name.endswith((".pth", ".egg-link")) and len(path.parts) == 1:
        wrong = "is run by Python at its start"
    elif not path.parts[0].endswith(".dist-info") and (module := path.parts[0].partition(".")[0]) in taken:
        wrong = f"has the name of another module, {module}"
    if wrong:
        raise UsageError(f"the wheel is refused: {shown} {wrong}")


def _write(archive: zipfile.ZipFile, item: zipfile.ZipInfo, folder: Path) -> None:
    """Write one file; its declared size is the most that is written."""
    path, left = folder / item.filename, item.file_size
    path.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(item) as packed, path.open("xb") as file:
        while part := packed.read(_CHUNK_BYTES):
            left -= len(part)
            if left < 0:
                raise UsageError(f"the wheel is refused: {one_line(ascii(item.filename), 100)} is larger than it says")
            file.write(part)
    path.chmod(0o644)
