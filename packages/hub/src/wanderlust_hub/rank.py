"""`rank`: a run's figures, kept in a hub only where its rollouts can be played again and come to the same.

Every rollout is played once more with its recorded answers, in the package's own process and sandbox. Messages, ends,
states and scores must be equal. Not covered: who really gave the answers, and runs that were not handed in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import zstandard

from wanderlust.environment import Environment
from wanderlust.errors import EnvironmentFailure, StoreError, UsageError, one_line
from wanderlust.evals.gate import MAX_TASKS_COMPARED
from wanderlust.evals.splits import shared_tasks
from wanderlust.runner.engine import run_blocking
from wanderlust.store.provenance import read_lock
from wanderlust.store.run_folder import EVALUATION_STAGE, STORE_FILE, find_evaluation
from wanderlust.store.store import RunStore
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.testing import UNREPLAYABLE_REASONS, replay_rollout
from wanderlust.types import Rollout, Status, Task
from wanderlust_hub.add import check_listing, prepare
from wanderlust_hub.added import CODE_FOLDER, LIBRARY_FOLDER
from wanderlust_hub.board import (
    LIMITS,
    SPLIT,
    answers_digest,
    grid_of,
    read_rollouts,
    reward_figure,
    track,
    track_limits,
)
from wanderlust_hub.entry import (
    MAX_TEXT_CHARS,
    HubEntry,
    HubError,
    Listing,
    RankedRun,
    Ranking,
    Record,
    Setting,
    StoredFile,
)
from wanderlust_hub.index import Hub, OnProgress, rollouts_file
from wanderlust_hub.isolated import IsolatedEnvironment
from wanderlust_hub.launch import Source
from wanderlust_hub.location import folder_of, write_durably
from wanderlust_hub.publishing import Change, change
from wanderlust_hub.signing import fingerprint, public_key

MAX_ROLLOUTS, MAX_TRAINING_TASKS = 100_000, 20_000
COMPRESSION_LEVEL = 10
SAMPLED_ROLLOUTS = 8
"""Rollouts of each entry that `wander hub verify` plays again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """An evaluation on disk."""

    folder: Path
    settings: Mapping[str, Any]
    rollouts: Sequence[Rollout]


def rank(
    name: str,
    runs: Sequence[Path],
    *,
    hub: str | Path,
    key: Path,
    version: str | None = None,
    trained_on: Sequence[Path] = (),
    on_progress: OnProgress = lambda what, number, of: None,
) -> list[Ranking]:
    """Play evaluations again, and add each to the leaderboard of an environment as a signed record.

    Args:
        name: Name of the environment in the hub.
        runs: Folders of evaluations (`wander eval --out`).
        hub: Folder of the hub.
        key: Private SSH key of somebody who may publish.
        version: By default the newest usable one.
        trained_on: Training runs whose tasks are compared with those of the evaluations. By default the run of the
            checkpoint that the evaluation names.
        on_progress: Called for each rollout that is played again.

    Returns:
        The leaderboard. Raises UsageError or HubError at the first run that does not come to the same figures; the hub
        is then as it was.
    """
    place, by = folder_of(hub), fingerprint(public_key(key))
    opened = Hub.open(place)
    listing = opened.find(name, version)
    check_listing(opened, listing)
    made = list[tuple[RankedRun, bytes]]()
    with isolated_version(opened, listing) as env:
        tasks = choose_tasks(iter_tasks(env, SPLIT), MAX_TASKS_COMPARED)
        for run in map(read_run, runs):
            try:
                rows, settings = grid_of(run.rollouts, tasks, entry=listing.entry, limits=other_limits(env, run))
            except HubError as error:
                raise HubError(f"{run.folder} is refused: {error}") from None
            whole = replace(run, rollouts=rows)
            recompute(env, whole, tasks, on_progress=on_progress)
            made.append(_ranked(listing, whole, tasks, trained_on=trained_on, settings=settings))
    for ranked, body in made:
        write_durably(place / rollouts_file(ranked), body)
        record = Record(number=0, previous="", action="rank", by=by, run=ranked)
        change(place, Change(record=record, files={}), key=key)
    return Hub.open(place).rankings(name, listing.entry.version)


@contextmanager
def isolated_version(hub: Hub, listing: Listing) -> Iterator[IsolatedEnvironment]:
    """A version's environment in its sandbox, unpacked for the time of the block."""
    with TemporaryDirectory(prefix="wander-rank-") as scratch:
        folder = Path(scratch)
        package, _ = prepare(hub, listing, folder)
        entry = listing.entry
        env = IsolatedEnvironment(
            Source(
                name=entry.name,
                code=folder / CODE_FOLDER,
                libraries=folder / LIBRARY_FOLDER,
                target=package.target,
                requires=entry.requires,
                permissions=entry.permissions,
                digest=entry.code.digest,
            )
        )
        try:
            yield env
        finally:
            env.close()


def read_run(folder: Path) -> StoredRun:
    """Read an evaluation. Raises UsageError where there is none, or nothing was played."""
    store, settings = find_evaluation(folder)
    with RunStore.read(store) as reader:
        groups = reader.iter_groups(EVALUATION_STAGE, 0)
        rollouts = [one for group in islice(groups, MAX_ROLLOUTS) for one in group.rollouts]
    if not any(one.status is not Status.ERROR for one in rollouts):
        raise UsageError(f"{folder} has no scored rollout of an evaluation")
    return StoredRun(folder=folder, settings=settings, rollouts=rollouts)


def other_limits(env: Environment, run: StoredRun) -> dict[str, Any]:
    """The limits that the run was played under and that are not the environment's own."""
    given = {name: run.settings[name] for name in sorted(LIMITS & run.settings.keys())}
    return {name: value for name, value in given.items() if value not in (None, getattr(env.limits, name))}


def replay_entries(
    hub: Hub,
    name: str | None = None,
    *,
    count: int | None = SAMPLED_ROLLOUTS,
    on_progress: OnProgress = lambda what, number, of: None,
) -> list[str]:
    """Play rollouts of every entry again, in the sandbox; returns what comes out otherwise, one line each.

    Of each entry `count` rollouts, drawn by the digest of the newest record of the log, so that nobody knew them when
    the entry was made; all where it is None. Versions that are withdrawn are left out.
    """
    problems = list[str]()
    for listing in hub.newest() if name is None else [hub.find(name)]:
        found = hub.rankings(listing.entry.name, listing.entry.version)
        if not found:
            continue
        with isolated_version(hub, listing) as env:
            tasks = choose_tasks(iter_tasks(env, SPLIT), MAX_TASKS_COMPARED)
            for one in found:
                try:
                    some = _drawn(hub, one.run, tasks, entry=listing.entry, count=count)
                    recompute(env, some, tasks, on_progress=on_progress)
                except HubError as error:
                    problems.append(f"{one.run.name} {one.run.version}, {one_line(one.run.policy, 60)!r}: {error}")
    return problems


def _drawn(hub: Hub, run: RankedRun, tasks: Sequence[Task], *, entry: HubEntry, count: int | None) -> StoredRun:
    """The rollouts that are played again. Raises HubError where they are not those of a run of its track."""
    rows = read_rollouts(hub.ranked_rollouts(run))
    if run.answers:
        _, departs = grid_of(rows, tasks, entry=entry, limits=track_limits(run))
        if departs != run.settings:
            raise HubError(f"it is signed for the track {track(run) or 'main'!r}, and is of another one")
    draw = Random(f"{hub.index.head}/{run.record.digest}")
    some = rows if count is None else draw.sample(rows, min(count, len(rows)))
    return StoredRun(folder=Path("the run"), settings=track_limits(run), rollouts=some)


def recompute(
    env: Environment, run: StoredRun, tasks: Iterable[Task], *, on_progress: OnProgress = lambda what, number, of: None
) -> None:
    """Play every scored rollout again. Raises HubError at the first of another task, or that comes out otherwise."""
    known = {task.id: _body(task) for task in tasks}
    limits, places = replace(env.limits, **other_limits(env, run)), set[tuple[str, int, int]]()

    async def replay() -> None:
        for number, one in enumerate(run.rollouts, 1):
            on_progress("played again", number, len(run.rollouts))
            if (place := (one.task.id, one.seed, one.sample_index)) in places:
                raise HubError(
                    f"{run.folder} is refused: it has task {one_line(one.task.id, 60)!r} twice with one seed"
                )
            places.add(place)
            if known.get(one.task.id) != _body(one.task):
                raise HubError(f"{run.folder} is refused: task {one_line(one.task.id, 60)!r} is none of this version")
            if one.status is Status.ERROR:
                continue
            if one.stop_reason in UNREPLAYABLE_REASONS:
                raise HubError(f"{run.folder} is refused: task {one.task.id!r} ended by the clock: play it again")
            if len({seat.score.reward for seat in one.trajectories if seat.trainable and seat.score is not None}) > 1:
                raise HubError(
                    f"{run.folder} is refused: the policy played against itself, which tells nothing of its strength: "
                    "give all seats but one to a player of the environment (--seats SEAT=PLAYER)"
                )
            try:
                await replay_rollout(env, one, limits=limits)
            except EnvironmentFailure as failure:
                raise HubError(f"{run.folder} is refused: {one_line(str(failure), 300)}") from None

    run_blocking(replay)


def _ranked(
    listing: Listing,
    run: StoredRun,
    tasks: Sequence[Task],
    *,
    trained_on: Sequence[Path],
    settings: Mapping[str, Setting],
) -> tuple[RankedRun, bytes]:
    """The figures of a run, and its rollouts as they are kept."""
    figure, played = reward_figure(run.rollouts)
    lines = (
        msgspec.json.encode(replace(one, seconds=0.0, failure=None), order="sorted") + b"\n" for one in run.rollouts
    )
    body = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL).compress(b"".join(lines))
    lock = read_lock(run.folder if run.folder.is_dir() else run.folder.parent)
    inputs = lock.made_by[-1].get("inputs", {}) if lock is not None and lock.made_by else {}
    policy, (shared, where) = str(run.settings.get("policy", "unknown")), _contamination(run, tasks, trained_on)
    entry = listing.entry
    ranked = RankedRun(
        name=entry.name,
        version=entry.version,
        policy=one_line(policy, MAX_TEXT_CHARS),
        model=one_line(str(inputs.get("the policy", "")), MAX_TEXT_CHARS),
        code=entry.code.digest,
        reward=figure.value,
        low=figure.low,
        high=figure.high,
        tasks=played,
        of=len(tasks),
        rollouts=len(run.rollouts),
        failed=0,
        shared=shared,
        trained_on=one_line(where, MAX_TEXT_CHARS),
        record=StoredFile.of(body),
        settings=dict(settings),
        answers=answers_digest(run.rollouts),
    )
    return ranked, body


def _contamination(run: StoredRun, tasks: Sequence[Task], trained_on: Sequence[Path]) -> tuple[int | None, str]:
    """How many of the run's tasks are in its training data, and where that comes from."""
    played = {one.task.id for one in run.rollouts}
    evaluated = [task for task in tasks if task.id in played]
    found = [*trained_on] or _training_runs(run)
    if not found:
        return None, "unknown"
    trained = [task for folder in found for task in _training_tasks(folder)]
    shared = next(iter(shared_tasks(trained, evaluated)), None)
    return 0 if shared is None else len(shared.ids), ", ".join(folder.name for folder in found)


def _training_runs(run: StoredRun) -> list[Path]:
    """The run that the evaluated checkpoint is in."""
    policy = Path(str(run.settings.get("policy", "")).partition(",")[0])
    near = (policy, *list(policy.parents)[:2]) if policy.parts and policy.exists() else ()
    return [folder for folder in near if (folder / STORE_FILE).is_file()][:1]


def _training_tasks(folder: Path) -> list[Task]:
    """The different tasks that a run was trained on. Raises UsageError for a folder without a run."""
    store = folder / STORE_FILE if folder.is_dir() else folder
    if not store.is_file():
        raise UsageError(f"{folder} is no training run: it has no {STORE_FILE}")
    found = dict[str, Task]()
    try:
        with RunStore.read(store) as reader:
            for row in reader.rollouts({"stage !=": EVALUATION_STAGE}, limit=MAX_TRAINING_TASKS):
                if row.task not in found:
                    found[row.task] = reader.get(row.id).task
    except StoreError as error:
        raise UsageError(f"the training tasks of {folder} cannot be read: {one_line(str(error), 120)}") from None
    return list(found.values())


def _body(task: Task) -> bytes:
    """What must be equal for a task to be the published one; plain data as it is stored."""
    plain = json.loads(msgspec.json.encode(task, enc_hook=repr))
    return msgspec.json.encode(plain, order="sorted")
