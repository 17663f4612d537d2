"""Changes of a hub in a folder: create it, publish and yank versions, allow and revoke keys.

Every change is one signed record. The index is written last, in one step: until then readers see the old state, and
what an interrupted change left behind is replaced by the next one.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from wanderlust.errors import UsageError, one_line
from wanderlust_hub.admission import admit, admit_wrapped
from wanderlust_hub.entry import (
    MAX_TEXT_CHARS,
    HubEntry,
    HubError,
    Index,
    Record,
    SignedIndex,
    StoredFile,
    canonical,
    check_name,
    check_version,
    digest_of,
)
from wanderlust_hub.foreign import foreign_source
from wanderlust_hub.index import (
    INDEX_FILE,
    LOG_FILE,
    MAX_LOG_BYTES,
    MAX_PART_BYTES,
    PARTS,
    Hub,
    OnProgress,
    version_folder,
)
from wanderlust_hub.location import check_seen, folder_of, keep_seen, read_file, write_durably
from wanderlust_hub.log import replay, signed_bytes, split_log
from wanderlust_hub.package_draft import write_wheel
from wanderlust_hub.signing import INDEX, RECORD, fingerprint, public_key, sign
from wanderlust_hub.wheel import Package, build_wheel, read_wheel

LOCK_FILE = ".lock"
Admission = Callable[[Package, Path], tuple[bytes, bytes]]
"""Card and tasks of a package, which may be unpacked in the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A record before it has its place in the log."""

    record: Record
    files: Mapping[str, bytes]
    """Files of the version that is published, by their names."""


def create_hub(folder: str | Path, *, key: Path, title: str = "") -> Index:
    """Create a hub in a folder that has none; the key becomes the owner's."""
    place = folder_of(folder)
    if (place / INDEX_FILE).exists() or (place / LOG_FILE).exists():
        raise UsageError(f"{place} has a hub already")
    public = public_key(key)
    record = Record(
        number=0, previous="", action="create", by=fingerprint(public), key=public, text=_line(title or place.name)
    )
    place.mkdir(parents=True, exist_ok=True)
    with _locked(place):
        return _append(place, [], Change(record=record, files={}), key=key)


def publish(
    package: str | Path,
    *,
    hub: str | Path,
    key: Path,
    card: Path | None = None,
    stored_only: bool = False,
    admission: Admission | None = None,
    on_progress: OnProgress = lambda what, number, of: None,
) -> HubEntry:
    """Build a package, run the gate of `wander check` on it, sign what came out, and add it to a hub.

    Args:
        package: Folder with a pyproject.toml, or a wheel: its code is run, by the gate. Or an environment from
            elsewhere as in `gymnasium:Taxi-v4` (`wanderlust_hub.foreign`): its code is run isolated.
        hub: Folder of the hub.
        key: Private SSH key, or its `.pub` file where an agent has the key.
        card: File of a stored card. The gate does not run where it is current: the environment's own file, its tasks,
            rubric, settings and limits have not changed. Any other is written anew.
        stored_only: Refuse a package whose stored card is not current: the time is then bounded.
        admission: Gives card and tasks of a package in the place of the gate, which then does not run.
        on_progress: Called with what the gate does, its number, and the number of all steps.

    Returns:
        The entry. Raises UsageError or HubError when it is refused; the hub is then as it was.
    """
    place = folder_of(hub)
    opened = Hub.open(place)
    by = fingerprint(public_key(key))
    with TemporaryDirectory(prefix="wander-publish-") as scratch:
        wheel = write_foreign(str(package), Path(scratch))
        if card is not None and wheel is not None:
            raise UsageError(f"{package} is from elsewhere: a stored card is of a package")
        built = read_wheel(wheel or build_wheel(Path(package), Path(scratch)))
        check_name(built.name)
        check_version(built.version)
        draft = entry_of(built, code=b"", data=b"", card=b"{}")
        _rehearse(opened, Record(number=0, previous="", action="publish", by=by, entry=draft))
        own_gate = partial(admit, card=card, stored_only=stored_only, on_progress=on_progress)
        gate = admission or (partial(admit_wrapped, on_progress=on_progress) if wheel else own_gate)
        report, data = gate(built, Path(scratch))
        parts = {"code": built.wheel.read_bytes(), "data": data, "card": report}
    for part, body in parts.items():
        if len(body) > MAX_PART_BYTES:
            raise UsageError(f"the {part} of {built.name} has {len(body):,} bytes; a hub takes {MAX_PART_BYTES:,}")
    entry = entry_of(built, **parts)
    record = Record(number=0, previous="", action="publish", by=by, entry=entry)
    files = {file: parts[part] for part, file in PARTS}
    change(place, Change(record=record, files=files), key=key)
    return entry


def yank(name: str, version: str, *, hub: str | Path, key: Path, reason: str = "") -> Index:
    """Mark a version as one that nobody should begin to use; its files stay."""
    check_name(name)
    check_version(version)
    by = fingerprint(public_key(key))
    record = Record(number=0, previous="", action="yank", by=by, name=name, version=version, text=_line(reason))
    return change(folder_of(hub), Change(record=record, files={}), key=key)


def allow(publisher: Path, *, hub: str | Path, key: Path) -> Index:
    """Let the holder of a public key publish; `key` is the owner's."""
    record = Record(number=0, previous="", action="allow", by=fingerprint(public_key(key)), key=public_key(publisher))
    return change(folder_of(hub), Change(record=record, files={}), key=key)


def revoke(mark: str, *, hub: str | Path, key: Path, reason: str = "") -> Index:
    """Withdraw a key, given by its fingerprint, and every version that it has signed; `key` is the owner's."""
    place = folder_of(hub)
    known = Hub.open(place).index.key(mark)
    if known is None:
        raise UsageError(f"{place} knows no key {mark}; wander hub info shows its keys")
    by = fingerprint(public_key(key))
    record = Record(number=0, previous="", action="revoke", by=by, key=known.key, text=_line(reason))
    return change(place, Change(record=record, files={}), key=key)


def _line(text: str) -> str:
    return one_line(text, MAX_TEXT_CHARS)


def write_foreign(text: str, folder: Path) -> Path | None:
    """The wheel around an environment from elsewhere; None for what is no `KIND:PLACE`."""
    found = foreign_source(text)
    return None if found is None else write_wheel(found[0].draft(found[1]), folder)


def entry_of(built: Package, *, code: bytes, data: bytes, card: bytes) -> HubEntry:
    """What is signed of a package: its metadata, the digests of its parts, and the figures of its card."""
    report = json.loads(card)
    ceilings, probe = report.get("ceilings", {}), report.get("probe") or {}
    return HubEntry(
        name=built.name,
        version=built.version,
        summary=built.summary,
        licence=built.licence,
        environment=built.environment,
        requires=built.requires,
        permissions=built.permissions,
        code=StoredFile.of(code),
        data=StoredFile.of(data),
        card=StoredFile.of(card),
        tasks=report.get("tasks", {}),
        oracle=ceilings.get("oracle"),
        chance=ceilings.get("chance"),
        verdict=_line(probe.get("verdict", "not probed")),
    )


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """One change at a time in this folder."""
    with (place / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _published_lines(hub: Hub) -> list[bytes]:
    """The lines of the log that the index was made of; what an interrupted change has added behind them is left out."""
    lines = split_log(read_file(hub.location, LOG_FILE, limit=MAX_LOG_BYTES))[: hub.index.records]
    if len(lines) < hub.index.records or digest_of(lines[-1]) != hub.index.head:
        raise HubError(f"{hub.location}: log and index differ; `wander hub verify {hub.location}` says more")
    return lines


def _rehearse(hub: Hub, record: Record) -> None:
    """Raises HubError when the rules refuse a record that came next."""
    state = replay(_published_lines(hub))
    state.add(replace(record, number=state.count, previous=state.head))


def change(place: Path, drafted: Change, *, key: Path) -> Index:
    """Sign one record, and write files, log and index; readers see the old state until the last."""
    if not place.is_dir():
        raise UsageError(f"there is no hub {place}: `wander hub init {place}` makes one")
    with _locked(place):
        return _append(place, _published_lines(Hub.open(place)), drafted, key=key)


def _append(place: Path, lines: list[bytes], change: Change, *, key: Path) -> Index:
    """Hold the rules, sign, and write: files, log, index."""
    state = replay(lines)
    record = replace(change.record, number=state.count, previous=state.head)
    record = replace(record, signature=sign(signed_bytes(record), key, namespace=RECORD))
    state.add(record)
    index = state.index()
    check_seen(str(place), index)
    signature = sign(canonical(index), key, namespace=INDEX)
    signed = SignedIndex(format=1, index=index, by=record.by, signature=signature)
    if record.entry is not None:
        _write_files(place, record.entry, change.files)
    write_durably(place / LOG_FILE, b"".join(line + b"\n" for line in [*lines, canonical(record)]))
    write_durably(place / INDEX_FILE, canonical(signed))
    keep_seen(str(place), index)
    return index


def _write_files(place: Path, entry: HubEntry, files: Mapping[str, bytes]) -> None:
    """The folder of a version, whole or not at all; one that no record names is of an interrupted change."""
    folder = place / version_folder(entry.name, entry.version)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=".new-") as scratch:
        draft = Path(scratch) / folder.name
        draft.mkdir()
        for name, body in files.items():
            (draft / name).write_bytes(body)
        if folder.exists():
            shutil.rmtree(folder)
        draft.rename(folder)
