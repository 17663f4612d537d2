"""Which runs there are: found in folders, named by keys, and looked at again when their files change."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from wanderlust.core.errors import StoreError
from wanderlust.recipes.folder import CONFIG, REPORT, STORE
from wanderlust.rollout.reader import RunReader
from wanderlust.studio.server.answers import NotFound
from wanderlust.studio.server.facts import PATIENCE, RunInfo, Stage, gone, look

DEEPEST = 3
"""Folders below one that was named in which runs are looked for."""
MOST = 5000
"""Runs that are listed."""


@dataclass(slots=True)
class Place:
    """Where a run lies, and what was seen of it last."""

    key: str
    folder: Path
    store: Path
    stamp: tuple[int, ...] = ()
    info: RunInfo | None = None
    stages: list[Stage] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def now(self) -> tuple[int, ...]:
        """Changes whenever something in the run does."""
        files = (self.store, Path(f"{self.store}-wal"), self.folder / REPORT, self.folder / CONFIG)
        return tuple(part for file in files for part in _stamp(file))


class Catalogue:
    """The runs at some paths: folders of runs, run folders, stores. Safe to ask from several threads."""

    def __init__(self, roots: Sequence[Path]):
        absolute = [Path(os.path.abspath(root)) for root in roots]
        self.roots = [root.parent if root.name == STORE and root.is_file() else root for root in absolute]
        self.places: dict[str, Place] = {}
        self._keys: dict[Path, str] = {}
        self._lock = Lock()

    def refresh(self) -> list[RunInfo]:
        """All runs, looked at anew where their files have changed."""
        return [self.info(place) for place in self._search()]

    def info(self, place: Place) -> RunInfo:
        """What is to be said about one run; never raises for what is wrong with it."""
        with place.lock:
            stamp = place.now()
            if place.info is None or place.info.running or stamp != place.stamp:
                exists = place.folder.exists() and (place.store.exists() or place.folder.is_dir())
                place.info, place.stages = gone(place.key, place.folder), []
                if exists:
                    place.info, place.stages = look(place.key, place.folder, place.store)
                place.stamp = stamp
            return place.info

    def place(self, key: str) -> Place:
        """The run of that key. Raises NotFound."""
        found = self.places.get(key)
        if found is None:
            self._search()
            found = self.places.get(key)
        if found is None:
            raise NotFound(f"there is no run {key!r} here")
        return found

    def reader(self, key: str) -> RunReader:
        """Its store, for this request alone. Raises NotFound and StoreError."""
        return opened(self.place(key))

    def add(self, folder: Path) -> str:
        """The key of the run in a folder, which may lie elsewhere than the others."""
        path = Path(os.path.abspath(folder))
        with self._lock:
            self._place(path)
            return self._keys[path]

    def _search(self) -> list[Place]:
        """All runs that are there, and that were."""
        with self._lock:
            for path in _found(self.roots):
                self._place(path)
            return list(self.places.values())

    def _place(self, path: Path) -> None:
        if path in self._keys:
            return
        name = path.stem if path.suffix == ".db" else path.name
        key, count = name, 1
        while key in self.places:
            count += 1
            key = f"{name}~{count}"
        folder, store = (path.parent, path) if path.is_file() else (path, path / STORE)
        self._keys[path] = key
        self.places[key] = Place(key, folder, store)


def _found(roots: Sequence[Path]) -> Iterator[Path]:
    count = 0
    for root in roots:
        for path in _runs(root, 0):
            count += 1
            if count > MOST:
                return
            yield path


def _runs(path: Path, depth: int) -> Iterator[Path]:
    """The folders with a run in them, by name; a run is not looked into."""
    if path.is_file() or (path / CONFIG).is_file() or (path / STORE).exists():
        yield path
        return
    if depth >= DEEPEST:
        return
    try:
        below = sorted(Path(entry.path) for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for folder in below:
        if not folder.name.startswith("."):
            yield from _runs(folder, depth + 1)


def _stamp(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return (found.st_mtime_ns, found.st_size) if found.st_size else (0, 0)  # whoever reads makes an empty log


def opened(place: Place) -> RunReader:
    """The store of a run. Raises StoreError."""
    if not place.folder.exists():
        raise StoreError(f"{place.folder}: the run was deleted")
    return RunReader(place.store, patience=PATIENCE)
