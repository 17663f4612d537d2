"""`wander tasks`: make repository tasks from packages, look at them, and exchange them as Harbor task folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import AnswerOptions, JsonFlag, PositiveInt
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.errors import UsageError, nearest_names
from wanderlust.policies.resolve import resolve_judge_policy
from wanderlust.runner.terminal import Table
from wanderlust.tasks.harbor import NeedsContainer, plan_sandbox, read_harbor_task, write_harbor_tasks
from wanderlust.tasks.repository.issues import issue_by
from wanderlust.tasks.repository.mining import Mined, MiningOptions, mine
from wanderlust.tasks.repository.task_file import load_repository_tasks

DEFAULT_ANSWER_OPTIONS = AnswerOptions()


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TasksOptions:
    """Options of the verbs."""

    out: Path | None = None
    """Folder that is written; `mine` goes on in it where it stopped."""
    per_package: PositiveInt = 60
    """Most tasks of one package (mine)."""
    with_: Annotated[tuple[str, ...], Parameter(name="--with", negative=())] = ()
    """A requirement that is installed beside what the packages ask for themselves; may be repeated (mine)."""
    installed: bool = False
    """Take libraries from this Python's own packages instead of from an index (mine)."""
    workers: PositiveInt = 1
    """Packages that are mined at once; the tasks are the same with any number."""
    issue_by: str | None = None
    """A policy that writes the tasks' texts; by default a template does (mine)."""


DEFAULT_TASKS_OPTIONS = TasksOptions()


def tasks_command(
    verb: str,
    /,
    *places: Path,
    options: TasksOptions = DEFAULT_TASKS_OPTIONS,
    answer_options: AnswerOptions = DEFAULT_ANSWER_OPTIONS,
    json: JsonFlag = False,
) -> int:
    """Make repository tasks from packages' own tests; check and write Harbor task folders.

    `tasks mine SDIST|FOLDER... --out TASKS` puts one fault into a package at a time, keeps those that break a few of
    its tests, and checks each: the original earns 1, no change earns 0. `tasks list TASKS` shows what there is.
    `wander eval repository,folder=TASKS --policy NAME` plays them. `tasks export TASKS --out FOLDER` writes them as
    Harbor task folders. `tasks check FOLDER...` reads Harbor task folders, and says of each where it can be played;
    `wander eval harbor,folder=FOLDER --policy NAME` plays them.

    The exit code is 1 when no task was made or found, or a folder is malformed.
    """
    verbs = {"mine": _mine, "list": _list, "check": _check, "export": _export}
    if verb not in verbs:
        raise UsageError(f"no verb {verb!r} of wander tasks; {nearest_names(verb, [*verbs], kind='verbs')}")
    if not places:
        raise UsageError(f"wander tasks {verb} needs a file or a folder")
    body, table, lines = verbs[verb](places, options, answer_options)
    if json:
        print_json(body)
    else:
        print_result(table, *lines)
    return 0 if body["tasks"] and not body.get("malformed") else 1


_Shown = tuple[dict[str, Any], Table, list[str]]


def _mine(places: tuple[Path, ...], options: TasksOptions, answer_options: AnswerOptions) -> _Shown:
    if options.out is None:
        raise UsageError("wander tasks mine needs --out FOLDER")
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
            places,
            options.out,
            options=mining,
            workers=options.workers,
            write_issue=None if policy is None else issue_by(policy),
            progress=print_note,
        )
    return _show_mined(mined)


def _show_mined(mined: Mined) -> _Shown:
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
    lines = [f"{total:,} tasks of {len(counts)} packages; play them: wander eval repository,folder={mined.folder}"]
    return {"folder": str(mined.folder), "tasks": total, "packages": packages}, table, lines


def _list(places: tuple[Path, ...], options: TasksOptions, answer_options: AnswerOptions) -> _Shown:
    tasks = [task for place in places for task in load_repository_tasks(place)]
    table = Table("task", "file", "function", "failing tests", "licence")
    for task in tasks:
        edit = task.edit
        table.add_row(task.id, f"{edit.path}:{edit.line}", edit.function, str(len(task.fails)), task.licence)
    rows: list[Mapping[str, Any]] = [
        {"id": t.id, "issue": t.issue, "fails": t.fails, "kind": t.edit.kind} for t in tasks
    ]
    return {"tasks": rows}, table, [f"{len(tasks):,} tasks"]


def _export(places: tuple[Path, ...], options: TasksOptions, answer_options: AnswerOptions) -> _Shown:
    if options.out is None or len(places) != 1:
        raise UsageError("wander tasks export takes one folder of tasks, and --out FOLDER")
    written = write_harbor_tasks(places[0], options.out)
    line = f"{len(written):,} task folders in {options.out}"
    return {"folder": str(options.out), "tasks": [path.name for path in written]}, Table(), [line]


def _check(places: tuple[Path, ...], options: TasksOptions, answer_options: AnswerOptions) -> _Shown:
    """Harbor task folders, or folders of such."""
    table, rows = Table("task", "played in", ""), []
    folders = [one for place in places for one in ([place] if not _holds_tasks(place) else sorted(place.iterdir()))]
    for folder in folders:
        try:
            task = read_harbor_task(folder)
        except UsageError as error:
            rows.append({"task": str(folder), "where": "malformed", "why": str(error)})
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
    return {"tasks": rows, "malformed": bad}, table, [f"{len(rows):,} folders, {bad} malformed"]


def _holds_tasks(place: Path) -> bool:
    return not (place / "task.toml").exists() and any(place.glob("*/task.toml"))
