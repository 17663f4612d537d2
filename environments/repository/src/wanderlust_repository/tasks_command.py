"""`wander tasks`: make repository tasks from packages, look at them, and exchange them as Harbor task folders."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from wanderlust.cli.commands import nested
from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import ANSWER_DEFAULTS, JsonFlag, ModelOptions, MorePaths, PositiveInt
from wanderlust.cli.output import print_note, show_result
from wanderlust.errors import UsageError
from wanderlust.policies.resolve import resolve_judge_policy
from wanderlust.runner.terminal import Table
from wanderlust_repository.harbor_tasks import NeedsContainer, plan_sandbox, read_harbor_task, write_harbor_tasks
from wanderlust_repository.issues import issue_by
from wanderlust_repository.mining import Mined, MiningOptions, mine
from wanderlust_repository.task_file import load_repository_tasks

tasks = nested(
    "tasks",
    """Make repository tasks from packages' own tests; check and write Harbor task folders.

    wander eval repository,folder=TASKS --policy NAME plays what mine has made, and wander eval harbor,folder=FOLDER
    Harbor task folders. The exit code is 1 when no task was made or found, or a folder is malformed.""",
)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class MineOptions:
    """How packages are mined."""

    per_package: PositiveInt = 60
    """Most tasks of one package."""
    with_: Annotated[tuple[str, ...], Parameter(name="--with", negative=())] = ()
    """A requirement that is installed beside what the packages ask for themselves; may be repeated."""
    installed: bool = False
    """Take libraries from this Python's own packages instead of from an index."""
    workers: PositiveInt = 1
    """Packages that are mined at once; the tasks are the same with any number."""
    issue_by: str | None = None
    """A policy that writes the tasks' texts; by default a template does."""


DEFAULT_MINE_OPTIONS = MineOptions()


@tasks.command(name="mine")
def mine_command(
    package: Path,
    /,
    *packages: MorePaths,
    out: Path,
    options: MineOptions = DEFAULT_MINE_OPTIONS,
    answer_options: ModelOptions = ANSWER_DEFAULTS,
    json: JsonFlag = False,
) -> int:
    """Make tasks of packages: one fault at a time.

    Keeps faults that break a few of a package's tests, and checks each: the original earns 1, no change earns 0.

    Parameters
    ----------
    package:
        A source distribution, or a folder of one.
    out:
        Folder that is written; the same command goes on in it where it stopped.
    """
    policy = None
    if options.issue_by is not None:
        policy = resolve_judge_policy(options.issue_by, answer_options.policy_options(greedy=False)).policy
    mining = MiningOptions(
        per_package=options.per_package,
        requirements=options.with_,
        installed=options.installed,
        seed=answer_options.seed,
    )
    with stoppable(lambda: "stopped; the same command goes on from here"):
        mined = mine(
            (package, *packages),
            out,
            options=mining,
            workers=options.workers,
            write_issue=None if policy is None else issue_by(policy),
            progress=print_note,
        )
    _show_mined(mined, json=json)
    return 0 if mined.tasks else 1


def _show_mined(mined: Mined, *, json: bool) -> None:
    counts = Counter(task.package for task in mined.tasks)
    table = Table("package", "licence", "tests", "tasks", "")
    for record in mined.packages:
        said = (
            "; ".join(record.notes) if record.state == "mined" else ": ".join(filter(None, [record.state, record.why]))
        )
        table.add_row(record.package, record.licence, str(len(record.known)), str(counts[record.package]), said)
    packages = [
        {key: value for key, value in asdict(record).items() if key not in ("known", "licence_text")}
        | {"tests": len(record.known), "tasks": counts[record.package]}
        for record in mined.packages
    ]
    total = len(mined.tasks)
    line = f"{total:,} tasks of {len(counts)} packages; play them: wander eval repository,folder={mined.folder}"
    body = {"folder": str(mined.folder), "tasks": total, "packages": packages}
    show_result(body, line, table=table, json=json)


@tasks.command(name="list")
def list_tasks(folder: Path, /, *folders: MorePaths, json: JsonFlag = False) -> int:
    """List the repository tasks in folders."""
    found = [task for place in (folder, *folders) for task in load_repository_tasks(place)]
    table = Table("task", "file", "function", "failing tests", "licence")
    for task in found:
        edit = task.edit
        table.add_row(task.id, f"{edit.path}:{edit.line}", edit.function, str(len(task.fails)), task.licence)
    rows = [{"id": t.id, "issue": t.issue, "fails": t.fails, "kind": t.edit.kind} for t in found]
    show_result({"tasks": rows}, f"{len(found):,} tasks", table=table, json=json)
    return 0 if found else 1


@tasks.command
def export(folder: Path, /, *, out: Path, json: JsonFlag = False) -> int:
    """Write repository tasks as Harbor task folders.

    Parameters
    ----------
    out:
        Folder that is written.
    """
    written = write_harbor_tasks(folder, out)
    body = {"folder": str(out), "tasks": [path.name for path in written]}
    show_result(body, f"{len(written):,} task folders in {out}", json=json)
    return 0 if written else 1


@tasks.command
def check(folder: Path, /, *folders: MorePaths, json: JsonFlag = False) -> int:
    """Read Harbor task folders, and say of each where it can be played."""
    table, rows = Table("task", "played in", ""), []
    for one in [one for place in (folder, *folders) for one in _task_folders(place)]:
        try:
            task = read_harbor_task(one)
        except UsageError as error:
            rows.append({"task": str(one), "where": "malformed", "why": str(error)})
            continue
        try:
            plan = plan_sandbox(task)
            rows.append({"task": task.name, "where": "sandbox", "why": "; ".join(plan.differences)})
        except NeedsContainer as error:
            rows.append({"task": task.name, "where": "container", "why": str(error)})
        except UsageError as error:
            rows.append({"task": task.name, "where": "malformed", "why": str(error)})
    for row in rows:
        table.add_row(row["task"], row["where"], row["why"])
    bad = sum(row["where"] == "malformed" for row in rows)
    show_result({"tasks": rows, "malformed": bad}, f"{len(rows):,} folders, {bad} malformed", table=table, json=json)
    return 0 if rows and not bad else 1


def _task_folders(place: Path) -> list[Path]:
    """The folder itself, or those in it where it is a folder of tasks."""
    holds_tasks = not (place / "task.toml").exists() and any(place.glob("*/task.toml"))
    return sorted(place.iterdir()) if holds_tasks else [place]
