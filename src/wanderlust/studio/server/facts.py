"""What the list says about a run, broken ones included."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanderlust.core.errors import StoreError, UsageError
from wanderlust.core.text import one_line
from wanderlust.core.types import Status
from wanderlust.recipes.folder import CONFIG, EVALUATION, PLAY, REPORT, RunFolder, open_folder
from wanderlust.rollout.control import ask
from wanderlust.rollout.lock import writer_of
from wanderlust.rollout.reader import RunReader
from wanderlust.studio.kept import STAGE

PATIENCE = 0.5
"""Seconds that a locked store is waited for: the list must not hang on one run."""
LEARNING = ("reinforce", "imitate")
"""Stages of a training run, the last one first."""


@dataclass(slots=True, kw_only=True)
class RunInfo:
    """A run as the list shows it; None for what is not known."""

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
    touched: float = 0.0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
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


def gone(key: str, folder: Path) -> RunInfo:
    """A run that is not there any more."""
    return RunInfo(key=key, path=str(folder), name=folder.name, problem="the run was deleted, or never was there")


def look(key: str, folder: Path, store: Path) -> tuple[RunInfo, list[Stage]]:
    """Everything the list says, and what was played; whatever is wrong with the run is its `problem`."""
    stages: list[Stage] = []
    info = RunInfo(key=key, path=str(folder), name=folder.name, touched=_touched(folder, store))
    try:
        run = open_folder(folder)
        if run is not None:
            _configured(info, run)
        if not store.is_file():
            info.problem = "nothing was played yet" if run is not None else "there is no run here"
            return info, stages
        info.running = writer_of(store) is not None
        if info.running:
            _asked(info, folder)
        began = next(_stats(folder / CONFIG), None)
        info.seconds = max(info.touched - began.st_mtime, 0.0) if began is not None else None
        with RunReader(store, patience=PATIENCE) as reader:
            stages = stages_of(reader)
            _played(info, reader, run, stages={stage.name: stage for stage in stages})
    except StoreError as error:
        info.problem = one_line(str(error).removeprefix(f"{store}: ").removeprefix(f"{folder}: "), 300)
    return info, stages


def _asked(info: RunInfo, folder: Path) -> None:
    """Whether whoever is at work there can be paused, and is."""
    try:
        reached = ask(folder, "status", by="studio")
    except (UsageError, StoreError):
        return
    info.controllable, info.paused = True, reached.state == "paused"


def _configured(info: RunInfo, run: RunFolder) -> None:
    config = run.config
    info.recipe, info.finished = run.recipe, run.finished
    info.kind = {EVALUATION: "evaluation", PLAY: "other"}.get(run.recipe, "training")
    info.env, info.policy = _text(config.get("env")), _text(config.get("policy"))


def _played(info: RunInfo, reader: RunReader, run: RunFolder | None, *, stages: Mapping[str, Stage]) -> None:
    info.rollouts = sum(stage.rollouts for stage in stages.values())
    info.errors = sum(stage.statuses.get(str(Status.ERROR), 0) for stage in stages.values())
    scored = sum(stage.scored for stage in stages.values())
    info.coverage = scored / info.rollouts if info.rollouts else None
    newest = reader.select("select stage, step, env from rollouts order by id desc limit 1")
    if newest:
        ((info.stage, info.step, env),) = newest
        info.env = info.env or _text(env)
    if info.kind == "training" and run is not None:
        _trained(info, reader, run)
        return
    info.reward = sum(stage.total for stage in stages.values()) / scored if scored else None
    info.step = info.rollouts if info.kind == "evaluation" else info.step
    if STAGE in stages and run is not None:
        tasks = run.config.get("tasks")
        info.of = int(tasks) * int(run.config.get("samples") or 1) if isinstance(tasks, int) else None
        info.of = info.rollouts if info.finished else info.of


def _trained(info: RunInfo, reader: RunReader, run: RunFolder) -> None:
    for stage in LEARNING:
        newest = reader.select("select max(step) from metrics where stage = ? and name = 'loss'", stage)
        if newest and newest[0][0] is not None:
            info.stage, info.step, info.of = stage, int(newest[0][0]) + 1, run.steps(stage) or None
            break
    found = reader.select(
        "select value from metrics where stage = ? and name = 'reward' order by step desc limit 1", info.stage
    )
    info.reward = found[0][0] if found else None


def stages_of(reader: RunReader) -> list[Stage]:
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
            Stage(
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


def _touched(folder: Path, store: Path) -> float:
    return max((found.st_mtime for found in _stats(store, Path(f"{store}-wal"), folder / REPORT)), default=0.0)


def _stats(*files: Path) -> Iterator[os.stat_result]:
    """Of those that have something in them: whoever reads a store makes an empty log beside it."""
    for file in files:
        with suppress(OSError):
            found = file.stat()
            if found.st_size:
                yield found


def _text(value: object) -> str:
    return one_line(value, 300) if isinstance(value, str) else ""


def settings_of(folder: Path, recipe: str | None = None) -> Mapping[str, Any]:
    """What a run was configured by; nothing where that cannot be read, or where it is of another recipe."""
    try:
        run = open_folder(folder)
    except StoreError:
        return {}
    return run.config if run is not None and recipe in (None, run.recipe) else {}
