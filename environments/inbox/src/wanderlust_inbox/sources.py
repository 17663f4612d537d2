"""Raw messages out of mbox files, Maildir folders, single messages and folders of these, one at a time.

A message is read line by line and kept in bounded memory: of each MIME part only the beginning, so that a mail of 50 MB
costs no more than its headers and texts. Links are not followed, and only regular files are opened.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

MAX_PART_BYTES = 1_000_000
"""Bytes of a MIME part that are kept."""
MAX_HEADER_BYTES = 250_000
"""Bytes of a header block that are kept."""
MAX_MESSAGE_BYTES = 16_000_000
"""Bytes of a message that are kept, all parts together."""
LINE_BYTES = 65_536
"""Bytes that are read at once; a longer line is read in pieces."""
MAX_FOLDER_DEPTH = 64
SNIFFED_LINES = 100
"""Lines at the beginning of a file in which the headers of a message are looked for."""

_SEPARATOR = re.compile(rb"From (?:\S+ .*\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b.*\d:\d\d|\S+@\S+\s*$|-?\s*$|- )")
_DATED_SEPARATOR = re.compile(rb"From \S+ +(?:\w{3},? ){1,2} *\d{1,2} +\d\d:\d\d.*\d{4}")
_HEADER = re.compile(rb"[!-9;-~]+:")
_KNOWN_HEADER = re.compile(rb"(?i)(?:from|date|subject|message-id|received|return-path|delivered-to|to):")
_BOUNDARY = re.compile(rb"""(?i)boundary\s*=\s*(?:"([^"]{1,200})"|([^\s;"]{1,200}))""")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawMessage:
    """The bytes of one message."""

    place: str
    """The file, and for an mbox the number of the message in it."""
    data: bytes
    size: int
    """Bytes in the file; more than those of `data` where parts were shortened."""
    envelope: str = ""
    """The mbox line before it, which may have a date."""
    shortened: bool = False
    repairs: tuple[str, ...] = ()
    """What had to be mended to read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A file, folder or message that gives no mail, and why."""

    place: str
    reason: str


def raw_messages(paths: Iterable[Path]) -> Iterator[RawMessage | LeftOut]:
    """Every message at the paths, in the order of the paths, within folders by name."""
    for path in paths:
        yield from _entry(path, 0, named=True)


def _entry(path: Path, depth: int, *, named: bool = False) -> Iterator[RawMessage | LeftOut]:
    place = str(path)
    try:
        mode = path.stat().st_mode if named else path.lstat().st_mode
        if stat.S_ISLNK(mode):
            yield LeftOut(place=place, reason="a link, which is not followed")
        elif stat.S_ISDIR(mode):
            yield from _folder(path, depth)
        elif stat.S_ISREG(mode):
            yield from _file(path)
        else:
            yield LeftOut(place=place, reason="no regular file")
    except OSError as error:
        yield LeftOut(place=place, reason=f"cannot be read: {error.strerror or error}")


def _folder(path: Path, depth: int) -> Iterator[RawMessage | LeftOut]:
    if depth > MAX_FOLDER_DEPTH:
        yield LeftOut(place=str(path), reason=f"a folder more than {MAX_FOLDER_DEPTH} levels deep")
        return
    with os.scandir(path) as entries:
        names = sorted(entry.name for entry in entries)
    is_maildir = {"cur", "new"} <= {*names}
    for name in names:
        for found in _entry(path / name, depth + 1):
            unfinished = is_maildir and name == "tmp"
            yield LeftOut(place=found.place, reason="an unfinished delivery (tmp)") if unfinished else found


def _file(path: Path) -> Iterator[RawMessage | LeftOut]:
    with open(path, "rb", opener=_open_regular) as file:
        kind = _kind(file, path)
        if not kind:
            yield LeftOut(place=str(path), reason="no mail" if os.fstat(file.fileno()).st_size else "an empty file")
            return
        file.seek(0)
        yield from _mbox(file, str(path)) if kind == "mbox" else _single(file, str(path))


def _open_regular(path: str, flags: int) -> int:
    """Open without waiting, as a file may have become a pipe since it was looked at."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _kind(file: IO[bytes], path: Path) -> str:
    """`mbox`, `single`, or nothing where a file does not begin like mail."""
    first, known = b"", 0
    for number in range(SNIFFED_LINES):
        line = file.readline(LINE_BYTES)
        if not line or (first and not line.strip()):
            break
        if not first and line.strip():
            first = line
            if line.startswith(b"From "):
                return "mbox"
        if number == 0 and path.suffix == ".emlx" and line.strip().isdigit():
            first = b""
            continue
        known += bool(_KNOWN_HEADER.match(line))
    if not first:
        return ""
    if path.suffix.lower() in (".mbox", ".mbx"):
        return "mbox"
    if path.suffix.lower() == ".eml":
        return "single"
    return "single" if known >= 2 and _HEADER.match(first) else ""


def _single(file: IO[bytes], place: str) -> Iterator[RawMessage]:
    """The one message of a file; Apple's .emlx has its length on a line of its own before it."""
    message = _Message(place)
    for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES), b"")):
        if number == 0 and place.endswith(".emlx") and line.strip().isdigit():
            continue
        message.add(line)
    yield message.finished()


def _mbox(file: IO[bytes], place: str) -> Iterator[RawMessage | LeftOut]:
    """The messages of an mbox. A line `From ...` begins one where a header follows it."""
    message: _Message | None = None
    count, stray, blank, begins = 0, 0, True, True
    line = file.readline(LINE_BYTES)
    while line:
        following = file.readline(LINE_BYTES)
        if begins and line.startswith(b"From ") and (repairs := _separator(line, following, blank=blank)) is not None:
            if message is not None:
                yield message.finished()
            count += 1
            message = _Message(f"{place}, message {count}", envelope=line, repairs=repairs)
        elif message is None:
            stray += len(line.strip())
        else:
            message.add(line[1:] if begins and line.startswith(b">From ") else line)
        blank = begins and not line.strip()
        begins = line.endswith(b"\n")
        line = following
    if stray:
        yield LeftOut(place=place, reason="text before the first message of an mbox")
    if message is not None:
        yield message.finished()


def _separator(line: bytes, following: bytes, *, blank: bool) -> tuple[str, ...] | None:
    """The repairs that taking a line for the beginning of a message needs; None where it is none."""
    header = bool(_HEADER.match(following)) or following.startswith(b">From ")
    if blank:
        return () if header and _SEPARATOR.match(line) else None
    return ("mbox without a blank line between messages",) if header and _DATED_SEPARATOR.match(line) else None


class _Message:
    """A message while it is read: lines are added, and parts that grow too long are shortened."""

    def __init__(self, place: str, *, envelope: bytes = b"", repairs: tuple[str, ...] = ()):
        self.place, self.envelope, self.repairs = place, envelope.decode("ascii", "replace").strip(), [*repairs]
        self._lines: list[bytes] = []
        self._size = self._kept = self._part = 0
        self._boundaries: set[bytes] = set()
        self._headers, self._begins = True, True

    def add(self, line: bytes) -> None:
        self._size += len(line)
        begins, self._begins = self._begins, line.endswith(b"\n")
        if begins and line.startswith(b"--") and self._is_boundary(line):
            self._headers, self._part = True, 0
        elif begins and self._headers and not line.strip():
            self._headers, self._part = False, 0
        self._part += len(line)
        too_long = self._part > (MAX_HEADER_BYTES if self._headers else MAX_PART_BYTES)
        if too_long or self._kept + len(line) > MAX_MESSAGE_BYTES:
            return
        self._kept += len(line)
        self._lines.append(line)
        if begins and b"=" in line and len(self._boundaries) < 1000:
            self._boundaries.update(b"--" + (one[0] or one[1]) for one in _BOUNDARY.findall(line[:2000]))

    def _is_boundary(self, line: bytes) -> bool:
        text = line.rstrip()
        return text in self._boundaries or text.removesuffix(b"--") in self._boundaries

    def finished(self) -> RawMessage:
        return RawMessage(
            place=self.place,
            data=b"".join(self._lines),
            size=self._size,
            envelope=self.envelope,
            shortened=self._kept < self._size,
            repairs=tuple(self.repairs),
        )
