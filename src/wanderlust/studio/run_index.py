"""What the list says about a run, broken ones included.

Which runs there are: found in folders, named by keys, and looked at again when their files change.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from wanderlust.errors import StoreError, UsageError, one_line
from wanderlust.runner.control import send_command
from wanderlust.store.lock import writer_of
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import (
    CONFIG_FILE,
    EVALUATION_RECIPE,
    EVALUATION_STAGE,
    PLAY_RECIPE,
    REPORT_FILE,
    STORE_FILE,
    RunFolder,
    open_folder,
)
from wanderlust.studio.responses import NotFound
from wanderlust.types import Status

CONTROL_QUERY_TIMEOUT_SECONDS = 0.5
"""Seconds that a locked store is waited for: the list must not hang on one run."""
TRAINING_STAGES = ("rl", "sft", "reinforce", "imitate")
"""Stages of a training run, the last one first."""


@dataclass(slots=True, kw_only=True)
class RunInfo:
    """A run as the list shows it; None for what is not known."""

    key: str
    path: str
    name: str
    recipe: str = ""
    kind: str = "other"
    """`training`, `find_evaluation` or `other`."""
    env: str = ""
    policy: str = ""
    stage: str = ""
    step: int = 0
    of: int | None = None
    finished: bool = False
    running: bool = False
    paused: bool = False
    controllable: bool = False
    reward: float | None = None
    rollouts: int = 0
    errors: int = 0
    coverage: float | None = None
    seconds: float | None = None
    touched: float = 0.0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSummary:
    """What was played in one stage."""

    name: str
    first: int | None
    last: int | None
    """Steps."""
    rollouts: int
    statuses: dict[str, int]
    scored: int
    total: float
    """Of all rewards."""


def missing_run_info(key: str, folder: Path) -> RunInfo:
    """A run that is not there any more."""
    return RunInfo(key=key, path=str(folder), name=folder.name, problem="the run was deleted, or never was there")


def read_run_info(key: str, folder: Path, store: Path) -> tuple[RunInfo, list[StageSummary]]:
    """Everything the list says, and what was played; whatever is wrong with the run is its `problem`."""
    stages: list[StageSummary] = []
    info = RunInfo(key=key, path=str(folder), name=folder.name, touched=_last_modified(folder, store))
    try:
        run = open_folder(folder)
        if run is not None:
            _read_config(info, run)
        if not store.is_file():
            info.problem = "nothing was played yet" if run is not None else "there is no run here"
            return info, stages
        info.running = writer_of(store) is not None
        if info.running:
            _read_control_state(info, folder)
        began = next(_stats(folder / CONFIG_FILE), None)
        info.seconds = max(info.touched - began.st_mtime, 0.0) if began is not None else None
        with RunReader(store, timeout=CONTROL_QUERY_TIMEOUT_SECONDS) as reader:
            stages = stages_of(reader)
            _read_rollout_counts(info, reader, run, stages={stage.name: stage for stage in stages})
    except StoreError as error:
        info.problem = one_line(str(error).removeprefix(f"{store}: ").removeprefix(f"{folder}: "), 300)
    return info, stages


def _read_control_state(info: RunInfo, folder: Path) -> None:
    """Whether whoever is at work there can be paused, and is."""
    try:
        reached = send_command(folder, "status", by="studio")
    except (UsageError, StoreError):
        return
    info.controllable, info.paused = True, reached.state == "paused"


def _read_config(info: RunInfo, run: RunFolder) -> None:
    config = run.config
    info.recipe, info.finished = run.recipe, run.finished
    info.kind = {EVALUATION_RECIPE: "evaluation", PLAY_RECIPE: "other"}.get(run.recipe, "training")
    info.env, info.policy = _text(config.get("env")), _text(config.get("policy"))


def _read_rollout_counts(
    info: RunInfo, reader: RunReader, run: RunFolder | None, *, stages: Mapping[str, StageSummary]
) -> None:
    info.rollouts = sum(stage.rollouts for stage in stages.values())
    info.errors = sum(stage.statuses.get(str(Status.ERROR), 0) for stage in stages.values())
    scored = sum(stage.scored for stage in stages.values())
    info.coverage = scored / info.rollouts if info.rollouts else None
    newest = reader.select("select stage, step, env from rollouts order by id desc limit 1")
    if newest:
        ((info.stage, info.step, env),) = newest
        info.env = info.env or _text(env)
    if info.kind == "training" and run is not None:
        _read_training_metrics(info, reader, run)
        return
    info.reward = sum(stage.total for stage in stages.values()) / scored if scored else None
    info.step = info.rollouts if info.kind == "evaluation" else info.step
    if EVALUATION_STAGE in stages and run is not None:
        tasks = run.config.get("tasks")
        info.of = int(tasks) * int(run.config.get("samples") or 1) if isinstance(tasks, int) else None
        info.of = info.rollouts if info.finished else info.of


def _read_training_metrics(info: RunInfo, reader: RunReader, run: RunFolder) -> None:
    for stage in TRAINING_STAGES:
        newest = reader.select("select max(step) from metrics where stage = ? and name = 'loss'", stage)
        if newest and newest[0][0] is not None:
            info.stage, info.step, info.of = stage, int(newest[0][0]) + 1, run.steps(stage) or None
            break
    rows_found = reader.select(
        "select value from metrics where stage = ? and name = 'reward' order by step desc limit 1", info.stage
    )
    info.reward = rows_found[0][0] if rows_found else None


def stages_of(reader: RunReader) -> list[StageSummary]:
    """In the order of their names; those that were only measured have no rollouts."""
    counts = reader.counts()
    measured = [name for (name,) in reader.select("select distinct stage from metrics")]
    rewards = "select count(reward), total(reward) from rollouts where stage = ?"
    ends = "select (select {0}(step) from {1} where stage = ?)"
    out = []
    for name in sorted({*counts, *measured}):
        ((scored, total),) = reader.select(rewards, name)
        table = "rollouts" if name in counts else "metrics"
        first, last = (reader.select(ends.format(end, table), name)[0][0] for end in ("min", "max"))
        out.append(
            StageSummary(
                name=name,
                first=first,
                last=last,
                rollouts=sum(counts.get(name, {}).values()),
                statuses=counts.get(name, {}),
                scored=scored,
                total=total,
            )
        )
    return out


def _last_modified(folder: Path, store: Path) -> float:
    return max((status.st_mtime for status in _stats(store, Path(f"{store}-wal"), folder / REPORT_FILE)), default=0.0)


def _stats(*files: Path) -> Iterator[os.stat_result]:
    """Of those that have something in them: whoever reads a store makes an empty log beside it."""
    for file in files:
        with suppress(OSError):
            status = file.stat()
            if status.st_size:
                yield status


def _text(value: object) -> str:
    return one_line(value, 300) if isinstance(value, str) else ""


def settings_of(folder: Path, recipe: str | None = None) -> Mapping[str, Any]:
    """What a run was configured by; nothing where that cannot be read, or where it is of another recipe."""
    try:
        run = open_folder(folder)
    except StoreError:
        return {}
    return run.config if run is not None and recipe in (None, run.recipe) else {}


MAX_SEARCH_DEPTH = 3
"""Folders below one that was named in which runs are looked for."""
MAX_RUNS = 5000
"""Runs that are listed."""


@dataclass(slots=True)
class RunLocation:
    """Where a run lies, and what was seen of it last."""

    key: str
    folder: Path
    store: Path
    stamp: tuple[int, ...] = ()
    info: RunInfo | None = None
    stages: list[StageSummary] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def current_stamp(self) -> tuple[int, ...]:
        """Changes whenever something in the run does."""
        files = (self.store, Path(f"{self.store}-wal"), self.folder / REPORT_FILE, self.folder / CONFIG_FILE)
        return tuple(part for file in files for part in _stamp(file))


class RunIndex:
    """The runs at some paths: folders of runs, run folders, stores. Safe to ask from several threads."""

    def __init__(self, roots: Sequence[Path]):
        absolute = [Path(os.path.abspath(root)) for root in roots]
        self.roots = [root.parent if root.name == STORE_FILE and root.is_file() else root for root in absolute]
        self.locations: dict[str, RunLocation] = {}
        self._keys: dict[Path, str] = {}
        self._lock = Lock()

    def refresh(self) -> list[RunInfo]:
        """All runs, looked at anew where their files have changed."""
        return [self.info(place) for place in self._search()]

    def info(self, place: RunLocation) -> RunInfo:
        """What is to be said about one run; never raises for what is wrong with it."""
        with place.lock:
            stamp = place.current_stamp()
            if place.info is None or place.info.running or stamp != place.stamp:
                exists = place.folder.exists() and (place.store.exists() or place.folder.is_dir())
                place.info, place.stages = missing_run_info(place.key, place.folder), []
                if exists:
                    place.info, place.stages = read_run_info(place.key, place.folder, place.store)
                place.stamp = stamp
            return place.info

    def location(self, key: str) -> RunLocation:
        """The run of that key. Raises NotFound."""
        location = self.locations.get(key)
        if location is None:
            self._search()
            location = self.locations.get(key)
        if location is None:
            raise NotFound(f"there is no run {key!r} here")
        return location

    def reader(self, key: str) -> RunReader:
        """Its store, for this request alone. Raises NotFound and StoreError."""
        return open_run_store(self.location(key))

    def add(self, folder: Path) -> str:
        """The key of the run in a folder, which may lie elsewhere than the others."""
        path = Path(os.path.abspath(folder))
        with self._lock:
            self._place(path)
            return self._keys[path]

    def _search(self) -> list[RunLocation]:
        """All runs that are there, and that were."""
        with self._lock:
            for path in _run_folders(self.roots):
                self._place(path)
            return list(self.locations.values())

    def _place(self, path: Path) -> None:
        if path in self._keys:
            return
        name = path.stem if path.suffix == ".db" else path.name
        key, count = name, 1
        while key in self.locations:
            count += 1
            key = f"{name}~{count}"
        folder, store = (path.parent, path) if path.is_file() else (path, path / STORE_FILE)
        self._keys[path] = key
        self.locations[key] = RunLocation(key, folder, store)


def _run_folders(roots: Sequence[Path]) -> Iterator[Path]:
    count = 0
    for root in roots:
        for path in _runs(root, 0):
            count += 1
            if count > MAX_RUNS:
                return
            yield path


def _runs(path: Path, depth: int) -> Iterator[Path]:
    """The folders with a run in them, by name; a run is not looked into."""
    if path.is_file() or (path / CONFIG_FILE).is_file() or (path / STORE_FILE).exists():
        yield path
        return
    if depth >= MAX_SEARCH_DEPTH:
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
        status = file.stat()
    except OSError:
        return 0, 0
    return (status.st_mtime_ns, status.st_size) if status.st_size else (0, 0)  # whoever reads makes an empty log


def open_run_store(location: RunLocation) -> RunReader:
    """The store of a run. Raises StoreError."""
    if not location.folder.exists():
        raise StoreError(f"{location.folder}: the run was deleted")
    return RunReader(location.store, timeout=CONTROL_QUERY_TIMEOUT_SECONDS)
