"""Mined tasks as data: one JSON object per task, and the archives of their packages beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from wanderlust.errors import UsageError, one_line
from wanderlust.store.whole_files import write_whole
from wanderlust_repository.mutants import Edit

TASKS_FILE = "tasks.jsonl"
PACKAGES_FOLDER = "packages"
"""One file per package: what is known of its suite, and its tasks as they are found."""
SOURCES_FOLDER = "sources"
SITES_FOLDER = "sites"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryTask:
    """One fault in a package, and the tests that show it."""

    id: str
    package: str
    """Name and version; the name of its files in the folder."""
    digest: str
    """SHA-256 of the package's archive."""
    licence: str
    edit: Edit
    """What was changed; undone, it is the solution."""
    original_digest: str
    """SHA-256 of the changed file as it was."""
    start_digest: str
    """SHA-256 of the file that the agent finds."""
    fails: tuple[str, ...]
    """Ids of the tests that fail, and that a solution makes pass."""
    sentinels: tuple[str, ...]
    """Those of them that, spoilt, fail on the original."""
    passing: int
    """How many further tests pass, and must still."""
    issue: str
    """What the agent is told."""
    validated: tuple[float, float] = (1.0, 0.0)
    """Rewards of the original put back, and of no change at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageRecord:
    """What mining found out about one package."""

    package: str
    digest: str
    licence: str
    licence_text: str
    requirements: tuple[str, ...]
    known: tuple[str, ...] = ()
    """Ids of the tests that passed every time."""
    state: str = "mined"
    """`mined`, or the case why there are no tasks: `no tests`, `flaky`, `slow`, ..."""
    why: str = ""
    notes: tuple[str, ...] = ()
    """One line for each thing that was left out: flaky, slow and networking tests, sources readable elsewhere."""
    suite_seconds: float = 0.0
    tried: int = 0
    """Changes whose tests were run."""


def encode(value: object) -> bytes:
    """One line of JSON."""
    return msgspec.json.encode(value)


def decode_task(line: bytes | str) -> RepositoryTask:
    """The task of a line. Raises UsageError for anything else."""
    try:
        return msgspec.json.decode(line, type=RepositoryTask)
    except msgspec.DecodeError as error:
        raise UsageError(f"this is no repository task: {one_line(str(error))}") from error


def load_repository_tasks(folder: Path) -> list[RepositoryTask]:
    """The tasks of a folder that mining has made. Raises UsageError, with the file and the line."""
    path = folder / TASKS_FILE
    if not path.is_file():
        raise UsageError(f"{folder} has no {TASKS_FILE}: make tasks with wander tasks mine PACKAGE --out {folder}")
    tasks = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                tasks.append(decode_task(line))
            except UsageError as error:
                raise UsageError(f"{path}, line {number}: {error}") from error
    return tasks


def load_record(folder: Path, package: str) -> PackageRecord:
    """What is known of a package. Raises UsageError where its file is missing or damaged."""
    path = folder / PACKAGES_FOLDER / f"{package}.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=PackageRecord)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path} cannot be read: {one_line(str(error))}") from error


def read_lines(path: Path) -> Iterator[dict[str, object]]:
    """The whole lines of a file that may have been cut while it was written."""
    if path.is_file():
        for line in path.read_bytes().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                return


def write_tasks(folder: Path, tasks: Iterable[RepositoryTask]) -> None:
    """Write the tasks, in their order."""
    write_whole(folder / TASKS_FILE, b"".join(encode(asdict(task)) + b"\n" for task in tasks))
