"""The list of runs: found in folders, named by keys, and read again when their files change; broken ones too."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from typing import Any

from wanderlust.errors import StoreError, UsageError, WanderlustError, one_line
from wanderlust.runner.control import send_command
from wanderlust.store.provenance import LOCK_FILE
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
from wanderlust.store.store import writer_of
from wanderlust.studio.results import TRAINING_STAGES, VersionReward, read_report, recorded_time, rewards_by_version
from wanderlust.tasks.registry import short_environment_name
from wanderlust.types import Status

CONTROL_QUERY_TIMEOUT_SECONDS = 0.5
"""Seconds that a locked store is waited for: the list must not hang on one run."""


class NotFound(WanderlustError):
    """There is nothing of that name (404)."""


@dataclass(slots=True, kw_only=True)
class RunInfo:
    """A run in the list; None for unknown values."""

    key: str
    path: str
    name: str
    recipe: str = ""
    kind: str = "other"
    """`training`, `evaluation` or `other`."""
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
    """Recorded by the run itself; None where it recorded nothing."""
    seconds_of: str = ""
    """What `seconds` covers: `run`, `steps` so far, `rollouts`; empty for unknown."""
    versions: list[VersionReward] = field(default_factory=list)
    """Where the code changed during an evaluation: the reward of each version, and no common one."""
    touched: float = 0.0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSummary:
    """The rollouts of one stage."""

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
    """The info of a run that does not exist any more."""
    return RunInfo(key=key, path=str(folder), name=folder.name, problem="the run was deleted, or never was there")


def read_run_info(key: str, folder: Path, store: Path) -> tuple[RunInfo, list[StageSummary]]:
    """Read a run's info and stages; an error in the run becomes its `problem`."""
    stages: list[StageSummary] = []
    info = RunInfo(
        key=key,
        path=str(folder),
        name=folder.name,
        touched=max(
            (status.st_mtime for status in _stats(store, Path(f"{store}-wal"), folder / REPORT_FILE)), default=0.0
        ),
    )
    try:
        run = open_folder(folder)
        if run is not None:
            config = run.config
            info.recipe, info.finished = run.recipe, run.finished
            info.kind = {EVALUATION_RECIPE: "evaluation", PLAY_RECIPE: "other"}.get(run.recipe, "training")
            info.env, info.policy = shown_environment(_text(config.get("env"))), _text(config.get("policy"))
        if not store.is_file():
            info.problem = "nothing was played yet" if run is not None else "there is no run here"
            return info, stages
        info.running = writer_of(store) is not None
        if info.running:
            with suppress(UsageError, StoreError):
                reached = send_command(folder, "status", by="studio")
                info.controllable, info.paused = True, reached.state == "paused"
        with RunReader(store, timeout=CONTROL_QUERY_TIMEOUT_SECONDS) as reader:
            stages = stages_of(reader)
            _read_rollout_counts(info, reader, run, stages={stage.name: stage for stage in stages})
            report = {} if info.running else read_report(folder)
            recorded = recorded_time(report, reader, info.recipe)
            info.seconds, info.seconds_of = recorded.seconds, recorded.source
            if info.kind == "evaluation":
                info.versions = rewards_by_version(folder, reader, report)
                info.reward = None if info.versions else info.reward
    except StoreError as error:
        info.problem = one_line(str(error).removeprefix(f"{store}: ").removeprefix(f"{folder}: "), 300)
    return info, stages


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
        info.env = info.env or shown_environment(_text(env))
    if info.kind == "training" and run is not None:
        for stage in TRAINING_STAGES:
            losses = reader.select("select max(step) from metrics where stage = ? and name = 'loss'", stage)
            if losses and losses[0][0] is not None:
                info.stage, info.step, info.of = stage, int(losses[0][0]) + 1, run.steps(stage) or None
                break
        sql = "select value from metrics where stage = ? and name = 'reward' order by step desc limit 1"
        rewards = reader.select(sql, info.stage)
        info.reward = rewards[0][0] if rewards else None
        return
    info.reward = sum(stage.total for stage in stages.values()) / scored if scored else None
    info.step = info.rollouts if info.kind == "evaluation" else info.step
    if EVALUATION_STAGE in stages and run is not None:
        tasks, samples = run.config.get("num_tasks", run.config.get("n")), run.config.get("samples")
        info.of = tasks * samples if isinstance(tasks, int) and isinstance(samples, int) else None
        info.of = info.rollouts if info.finished else info.of


def stages_of(reader: RunReader) -> list[StageSummary]:
    """Summarize the stages by name; a stage with metrics alone has no rollouts."""
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


def _stats(*files: Path) -> Iterator[os.stat_result]:
    """Yield the status of each file that is not empty: reading a store makes an empty log beside it."""
    for file in files:
        with suppress(OSError):
            status = file.stat()
            if status.st_size:
                yield status


def _text(value: object) -> str:
    return one_line(value, 300) if isinstance(value, str) else ""


def shown_environment(name: str) -> str:
    """The name of an environment that the page shows: short for a ready-made one, a file without its folder."""
    where, comma, settings = short_environment_name(name).partition(",")
    file, _, member = where.rpartition(":")
    return f"{Path(file).name}:{member}{comma}{settings}" if file.endswith(".py") else f"{where}{comma}{settings}"


_ENVIRONMENTS = """with recursive names(name) as (
    select min(env) from rollouts union all
    select (select min(env) from rollouts where env > name) from names where name is not null
) select name from names where name is not null"""
"""`select distinct` by one index lookup for each environment, not for each rollout."""


def environment_column(reader: RunReader) -> str:
    """SQL of the rollouts' environment under the name that is shown, for filters and exports."""
    stored = [name for (name,) in reader.select(_ENVIRONMENTS)]
    shorter = {name: shown_environment(name) for name in stored if shown_environment(name) != name}
    cases = " ".join(f"when {_sql_text(name)} then {_sql_text(short)}" for name, short in shorter.items())
    return f"case +env {cases} else env end" if cases else "+env"


def _sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def settings_of(folder: Path, recipe: str | None = None) -> Mapping[str, Any]:
    """A run's configuration; empty where it cannot be read, or is of another recipe."""
    try:
        run = open_folder(folder)
    except StoreError:
        return {}
    return run.config if run is not None and recipe in (None, run.recipe) else {}


MAX_SEARCH_DEPTH = 3
"""Depth of folders below a root that are searched for runs."""
MAX_RUNS = 5000
"""Most runs that are listed."""


@dataclass(slots=True)
class RunLocation:
    """The place of a run, and its info at the last look."""

    key: str
    folder: Path
    store: Path
    stamp: tuple[int, ...] = ()
    info: RunInfo | None = None
    stages: list[StageSummary] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def current_stamp(self) -> tuple[int, ...]:
        """A stamp that changes whenever a file of the run does."""
        names = (REPORT_FILE, CONFIG_FILE, LOCK_FILE)
        files = (self.store, Path(f"{self.store}-wal"), *(self.folder / n for n in names))
        stamp: list[int] = []
        for file in files:
            status = next(_stats(file), None)
            stamp += (0, 0) if status is None else (status.st_mtime_ns, status.st_size)
        return tuple(stamp)


class RunIndex:
    """The runs at some paths: folders of runs, run folders, stores. Safe to use from several threads."""

    def __init__(self, roots: Sequence[Path]):
        absolute = [Path(os.path.abspath(root)) for root in roots]
        self.roots = [root.parent if root.name == STORE_FILE and root.is_file() else root for root in absolute]
        self.locations: dict[str, RunLocation] = {}
        self._keys: dict[Path, str] = {}
        self._lock = Lock()

    def refresh(self) -> list[RunInfo]:
        """The info of all runs, read again where their files have changed."""
        return [self.info(place) for place in self._search()]

    def info(self, place: RunLocation) -> RunInfo:
        """The info of one run; never raises for an error in the run."""
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
        """Open its store, for one request. Raises NotFound and StoreError."""
        return open_run_store(self.location(key))

    def add(self, folder: Path) -> str:
        """Add the run in a folder anywhere; returns its key."""
        path = Path(os.path.abspath(folder))
        with self._lock:
            self._place(path)
            return self._keys[path]

    def _search(self) -> list[RunLocation]:
        """Find all runs; those found before stay in the list."""
        with self._lock:
            for path in islice(chain.from_iterable(_runs(root, 0) for root in self.roots), MAX_RUNS):
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


def _runs(path: Path, depth: int) -> Iterator[Path]:
    """Yield the folders with a run in them, by name; a run is not searched."""
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


def open_run_store(location: RunLocation) -> RunReader:
    """The store of a run. Raises StoreError."""
    if not location.folder.exists():
        raise StoreError(f"{location.folder}: the run was deleted")
    return RunReader(location.store, timeout=CONTROL_QUERY_TIMEOUT_SECONDS)
