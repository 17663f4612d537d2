"""Where a hub is: bounded reads from a folder or a web server, whole writes, and the last state seen of each hub."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from wanderlust.errors import UsageError
from wanderlust.store.whole_files import replacing
from wanderlust_hub.entry import Digest, Fingerprint, HubError, Index, canonical, decode, digest_of

CHUNK_BYTES = 1 << 16
SOCKET_SECONDS, MAX_READ_SECONDS = 20, 300
"""Wall-clock seconds that a server may be silent, and that one file may take."""


def is_remote(location: str) -> bool:
    """Whether a hub is read over HTTP."""
    return location.startswith(("http://", "https://"))


def folder_of(location: str | Path) -> Path:
    """The folder of a hub that is to be changed. Raises UsageError for a URL."""
    if is_remote(str(location)):
        raise UsageError(f"{location} is a web address: changes are made in a folder, which a server or git shows")
    return Path(location)


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _bounded(stream: _Stream | BinaryIO, what: str, limit: int) -> bytes:
    parts, size, end = list[bytes](), 0, time.monotonic() + MAX_READ_SECONDS
    while part := stream.read(CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if size > limit:
            raise HubError(f"{what} is larger than {limit:,} bytes, and was not read")
        if time.monotonic() > end:
            raise HubError(f"{what} took longer than {MAX_READ_SECONDS} s, and was given up")
    return b"".join(parts)


def read_file(location: str, path: str, *, limit: int) -> bytes:
    """Read one file of a hub, at most `limit` bytes. Raises HubError in one line when it cannot be read."""
    what = f"{location.rstrip('/')}/{path}"
    try:
        if not is_remote(location):
            with (Path(location) / path).open("rb") as file:
                return _bounded(file, what, limit)
        request = Request(f"{location.rstrip('/')}/{quote(path)}", headers={"User-Agent": "wanderlust"})
        with urlopen(request, timeout=SOCKET_SECONDS) as answer:
            return _bounded(answer, what, limit)
    except HTTPError as error:
        error.close()
        raise HubError(f"{what}: the server answered {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__
        raise HubError(f"{what} cannot be read: {why}") from None


def write_durably(path: Path, body: bytes) -> None:
    """Write a file whole, readable by all. OSErrors pass: the caller says what to set."""
    with replacing(path, mode=0o644, durable=True, shared=True) as draft:
        draft.write_bytes(body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The newest state that this user has seen of a hub."""

    location: str
    owner: Fingerprint
    records: int
    head: Digest
    verified_records: int = 0
    verified_head: Digest | None = None
    """State at the last complete verification, which the log must still contain."""


def seen_file(location: str) -> Path:
    """`$XDG_CACHE_HOME/wanderlust/hubs/…`, below `~/.cache` where that is not set."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "wanderlust" / "hubs" / f"{digest_of(_place(location).encode())[:32]}.json"


def _place(location: str) -> str:
    return location.rstrip("/") if is_remote(location) else str(Path(location).resolve())


def read_seen(location: str) -> Seen | None:
    """What was seen of a hub; None at the first contact."""
    file = seen_file(location)
    if not file.is_file():
        return None
    return decode(file.read_bytes(), Seen, f"{file} (the last state seen of {location})")


def check_seen(location: str, index: Index) -> Seen | None:
    """The last state seen of a hub. Raises HubError where an index is older, or of another history or owner."""
    before, owner = read_seen(location), index.owner.fingerprint
    if before is not None:
        if before.owner != owner:
            raise HubError(
                f"{location} now belongs to the key {owner}, and before to {before.owner}: if its owner says that this "
                f"is right, delete {seen_file(location)}"
            )
        if index.records < before.records:
            raise HubError(
                f"{location} shows an older index ({index.records} records) than the last one seen ({before.records})"
            )
        if index.records == before.records and index.head != before.head:
            raise HubError(f"{location} shows another history than before: its last record has changed")
    return before


def keep_seen(location: str, index: Index, *, verified: bool = False) -> None:
    """Compare an index with the last state seen, as `check_seen` does, and keep it."""
    before = check_seen(location, index)
    seen = before or Seen(location=_place(location), owner=index.owner.fingerprint, records=0, head=index.head)
    now = replace(seen, records=index.records, head=index.head)
    if verified:
        now = replace(now, verified_records=index.records, verified_head=index.head)
    if now != before:
        try:
            write_durably(seen_file(location), canonical(now))
        except OSError as error:
            raise UsageError(
                f"{seen_file(location)} cannot be written ({error.strerror}): set XDG_CACHE_HOME to a folder of yours"
            ) from None
