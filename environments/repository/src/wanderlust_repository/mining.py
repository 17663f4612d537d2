"""Make repository tasks from real packages: one fault each, whose failing and passing tests are known and checked."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from wanderlust.errors import UsageError, one_line
from wanderlust.store.whole_files import write_whole
from wanderlust.tools.sandbox import Sandbox
from wanderlust_repository.guard import guard_changes, runs_text
from wanderlust_repository.issues import IssueWriter, template_issue
from wanderlust_repository.mutants import Edit, find_edits, still_parses
from wanderlust_repository.package import NotMineable, SourcePackage, as_archive, licence_text, read_package
from wanderlust_repository.site_folder import load_site, requirements_of
from wanderlust_repository.suite import SuiteBase, ask, files_of, open_base, run_mutants, run_tests
from wanderlust_repository.task_file import (
    PACKAGES_FOLDER,
    SITES_FOLDER,
    SOURCES_FOLDER,
    PackageRecord,
    RepositoryTask,
    decode_task,
    encode,
    load_record,
    read_lines,
    write_tasks,
)
from wanderlust_repository.verdict import Verdict, digest, judge_modules, report_original, weigh

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
BATCH = 24
"""Mutants per request to the runner."""
NETWORK_WORDS = ("name resolution", "Network is unreachable", "Name or service not known", "ConnectionRefused")


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningOptions:
    """What is kept, and how long anything may take."""

    per_package: int = 60
    """Most tasks of one package."""
    per_function: int = 3
    """Most tasks of one function."""
    tries_per_task: int = 8
    """Changes that are tried for each task that is wanted, at most."""
    share: float = 0.1
    """A fault breaks at most this share of the known tests, and never more than `max_fails`."""
    max_fails: int = 30
    suite_seconds: float = 30.0
    """A suite that takes longer is `slow`."""
    test_seconds: float = 2.0
    """A test that takes longer is left out."""
    requirements: tuple[str, ...] = ()
    """Installed beside what the packages ask for themselves."""
    installed: bool = False
    """Whether libraries are copied from this Python's own packages, instead of installed by pip."""
    seed: int = 0


@dataclass(slots=True, kw_only=True)
class Mined:
    """What mining has made."""

    folder: Path
    tasks: list[RepositoryTask] = field(default_factory=list)
    packages: list[PackageRecord] = field(default_factory=list)
    """One record for each source, in the order given; `state` names the case where there are no tasks."""


ShowProgress = Callable[[str], None]


def mine(
    sources: Sequence[Path | str],
    out: Path | str,
    *,
    options: MiningOptions | None = None,
    workers: int = 1,
    write_issue: IssueWriter | None = None,
    progress: ShowProgress = lambda line: None,
) -> Mined:
    """Make tasks of the packages in `sources` (source distributions or folders), and write them to the folder `out`.

    Args:
        sources: Files `.tar.gz` or `.zip`, or folders with a package and its tests.
        out: Folder of the tasks. The same call again goes on where it stopped.
        options: Limits, further requirements, and the seed.
        workers: Packages that are mined at once. The tasks are the same with any number.
        write_issue: Writes each task's text; by default a template does.
        progress: Called with one line now and then.

    Returns:
        All tasks, each checked (the original put back earns 1, no change earns 0), and a record for each source.

    Raises:
        UsageError: when a source is missing, or `out` was made from other sources of the same name or other options.
        SandboxFailure: where this machine has no isolated sandbox.
    """
    return asyncio.run(
        mine_packages(sources, out, options=options, workers=workers, write_issue=write_issue, progress=progress)
    )


async def mine_packages(
    sources: Sequence[Path | str],
    out: Path | str,
    *,
    options: MiningOptions | None = None,
    workers: int = 1,
    write_issue: IssueWriter | None = None,
    progress: ShowProgress = lambda line: None,
) -> Mined:
    """As `mine`, for callers that have an event loop."""
    options, folder, paths = options or MiningOptions(), Path(out), [Path(one) for one in sources]
    if missing := [path for path in paths if not path.exists()]:
        raise UsageError(f"there is no file or folder {missing[0]}")
    _check_options(folder, options)
    slots = asyncio.Semaphore(workers)

    async def one(path: Path) -> tuple[PackageRecord, list[RepositoryTask]]:
        async with slots:
            return await _mine_one(path, folder, options=options, write_issue=write_issue, progress=progress)

    results = await asyncio.gather(*(one(path) for path in paths))
    mined = Mined(folder=folder, packages=[record for record, _ in results])
    names = Counter(record.package for record in mined.packages)
    if twice := [name for name, count in names.items() if count > 1]:
        raise UsageError(f"{twice[0]} was given twice")
    mined.tasks = [task for _, tasks in results for task in tasks]
    write_tasks(folder, mined.tasks)
    return mined


def _check_options(folder: Path, options: MiningOptions) -> None:
    """Refuse to mix tasks that were made with other options."""
    path, body = folder / "options.json", encode(asdict(options))
    if path.is_file() and path.read_bytes() != body:
        raise UsageError(f"{folder} was made with other options ({path}): name another folder")
    write_whole(path, body)


async def _mine_one(
    path: Path,
    folder: Path,
    *,
    options: MiningOptions,
    write_issue: IssueWriter | None,
    progress: ShowProgress,
) -> tuple[PackageRecord, list[RepositoryTask]]:
    """The record and the tasks of one source; what has been found before is read."""
    try:
        package = read_package(path)
    except NotMineable as case:
        progress(f"{path.name}: {case}")
        return _record_case(path.name, case), []
    partial = folder / PACKAGES_FOLDER / f"{package.label}.jsonl"
    finished = folder / PACKAGES_FOLDER / f"{package.label}.json"
    if finished.is_file():
        record = load_record(folder, package.label)
        if record.digest != package.digest:
            raise UsageError(f"{finished} is of another {package.label} than {path}: name another folder")
        return record, [decode_task(encode(line["task"])) for line in read_lines(partial) if line.get("task")]
    lines = _whole_batches([*read_lines(partial)])
    write_whole(partial, b"".join(encode(line) + b"\n" for line in lines))
    mine_ = _PackageMining(package=package, folder=folder, options=options, write_issue=write_issue, progress=progress)
    try:
        record, tasks = await mine_.run({str(line["edit"]): line for line in lines if "edit" in line})
    except NotMineable as case:
        progress(f"{package.label}: {case}")
        record, tasks = _record_case(package.label, case, package), []
    if tasks:
        _keep_source(path, package, folder / SOURCES_FOLDER)
    write_whole(finished, encode(asdict(record)))
    return record, tasks


def _whole_batches(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines up to the last batch that was written to its end."""
    ends = [number for number, line in enumerate(lines, 1) if "batch" in line]
    return lines[: ends[-1]] if ends else []


def _keep_source(path: Path, package: SourcePackage, folder: Path) -> None:
    """Copy the archive, or pack the folder, so that the tasks need nothing else."""
    if path.is_dir():
        write_whole(folder / f"{package.label}.tar", as_archive(package.files, package.label))
    else:
        write_whole(folder / f"{package.label}{_suffix(path)}", path.read_bytes())


def _suffix(path: Path) -> str:
    return "".join(path.suffixes[-2:]) if path.name.endswith((".tar.gz", ".tar.bz2", ".tar.xz")) else path.suffix


def _record_case(label: str, case: NotMineable, package: SourcePackage | None = None) -> PackageRecord:
    return PackageRecord(
        package=label,
        digest=package.digest if package else "",
        licence=package.licence if package else "",
        licence_text="",
        requirements=(),
        state=case.name,
        why=one_line(case.why),
    )


@dataclass(slots=True, kw_only=True)
class _Suite:
    """What the runs on the unchanged package have shown."""

    known: tuple[str, ...]
    calls: Mapping[str, Sequence[str]]
    """Tests by `file:line` of the functions that they call."""
    modules: Sequence[str]
    seconds: float
    notes: tuple[str, ...]
    copies: frozenset[str]


@dataclass(slots=True, kw_only=True)
class _PackageMining:
    """The mining of one package."""

    package: SourcePackage
    folder: Path
    options: MiningOptions
    write_issue: IssueWriter | None
    progress: ShowProgress

    async def run(self, before: Mapping[str, Mapping[str, Any]]) -> tuple[PackageRecord, list[RepositoryTask]]:
        """All tasks of the package; `before` has the lines of changes that were tried already."""
        package, options = self.package, self.options
        requirements = requirements_of(package, options.requirements)
        sites = self.folder / SITES_FOLDER
        site = await asyncio.to_thread(load_site, package, requirements, sites, installed=options.installed)
        base = await open_base(package, site, seconds=4 * options.suite_seconds)
        try:
            suite = await observe_suite(base, options)
            tasks, tried = await self._find_tasks(base, suite, before)
        finally:
            await base.close()
        why = f"none of {tried} changes breaks between 1 and {_most(suite, options)} tests"
        if not tried:
            why = f"no module can be changed; {len(suite.copies)} are readable elsewhere in the sandbox"
        record = PackageRecord(
            package=package.label,
            digest=package.digest,
            licence=package.licence,
            licence_text=licence_text(package.files),
            requirements=tuple(requirements),
            known=suite.known,
            state="mined" if tasks else "no tasks",
            why="" if tasks else why,
            notes=suite.notes,
            suite_seconds=round(suite.seconds, 2),
            tried=tried,
        )
        said = f"{len(tasks)} tasks of {tried} changes tried" if tasks else f"no tasks: {why}"
        self.progress(f"{package.label}: {said}")
        return record, tasks

    def _candidates(self, suite: _Suite) -> Iterator[Edit]:
        """Changes whose function some known test calls, in the seed's order."""
        edits: list[Edit] = []
        for path in self.package.sources:
            if path not in suite.copies and not runs_text(self.package.files[path]):
                edits += find_edits(path, self.package.files[path])
        Random(f"{self.options.seed}/{self.package.label}").shuffle(edits)
        for edit in edits:
            if suite.calls.get(f"{edit.path}:{edit.first_line}") and still_parses(edit, self.package.files[edit.path]):
                yield edit

    async def _find_tasks(
        self, base: SuiteBase, suite: _Suite, before: Mapping[str, Mapping[str, Any]]
    ) -> tuple[list[RepositoryTask], int]:
        options, tasks, tried = self.options, list[RepositoryTask](), 0
        candidates, most = self._candidates(suite), options.per_package * options.tries_per_task
        mutating = await base.fork()
        file = (self.folder / PACKAGES_FOLDER / f"{self.package.label}.jsonl").open("ab")
        try:
            while len(tasks) < options.per_package and tried < most:
                counts = Counter(_function(task.edit) for task in tasks)
                batch = _take(candidates, BATCH, {name for name, n in counts.items() if n >= options.per_function})
                if not batch:
                    break
                lines: list[Mapping[str, Any]] = [line for edit in batch if (line := before.get(_key(edit)))]
                if not lines:
                    broken = await self._break(mutating, base, suite=suite, edits=batch)
                    lines += await self._try_batch(
                        base, suite, broken, counts=counts, room=options.per_package - len(tasks)
                    )
                    file.write(b"".join(encode(line) + b"\n" for line in [*lines, {"batch": _key(batch[0])}]))
                    file.flush()
                tasks += [decode_task(encode(line["task"])) for line in lines if line.get("task")]
                tried += len(batch)
                self.progress(f"{self.package.label}: {len(tasks)} of {options.per_package} tasks, {tried} changes")
        finally:
            file.close()
            await mutating.close()
        return tasks, tried

    async def _try_batch(
        self,
        base: SuiteBase,
        suite: _Suite,
        broken: Sequence[tuple[Edit, set[str] | str]],
        *,
        counts: Counter[str],
        room: int,
    ) -> list[dict[str, Any]]:
        """A line for each change that was looked at: the task, or why there is none."""
        lines: list[dict[str, Any]] = []
        drafts: dict[str, tuple[RepositoryTask, Verdict]] = {}
        for edit, tests in broken:
            name = _function(edit)
            if counts[name] >= self.options.per_function or len(drafts) >= room:
                continue
            draft = await self._draft(base, suite, edit=edit, broken=tests)
            lines.append({"edit": _key(edit), "result": draft if isinstance(draft, str) else ""})
            if not isinstance(draft, str):
                drafts[_key(edit)], counts[name] = draft, counts[name] + 1
        report = None
        if drafts:
            named = {test for task, _ in drafts.values() for test in task.fails}
            report = await report_original(base, known=suite.known, sentinels=named, suite_seconds=suite.seconds)
        for line in lines:
            if line["edit"] in drafts:
                task, why = await self._validate(*drafts[line["edit"]], base=base, suite=suite, report=report)
                line.update({"result": why} if task is None else {"result": "kept", "task": asdict(task)})
        return lines

    async def _break(
        self, sandbox: Sandbox, base: SuiteBase, *, suite: _Suite, edits: Sequence[Edit]
    ) -> list[tuple[Edit, set[str] | str]]:
        """With each change the covering tests that it breaks, or why it is of no use."""
        mutants, known = [], set(suite.known)
        for edit in edits:
            ids = sorted(known.intersection(suite.calls[f"{edit.path}:{edit.first_line}"]))
            text = edit.apply(self.package.files[edit.path]).decode()
            files = files_of(ids, self.package.tests)
            mutants.append({"path": edit.path, "text": text, "ids": ids, "files": files})
        seconds = 5.0 + 3.0 * suite.seconds
        results = await run_mutants(
            sandbox, base, mutants, modules=suite.modules, most=_most(suite, self.options), seconds=seconds
        )
        outcomes = [_outcome(result, mutant["ids"]) for result, mutant in zip(results, mutants, strict=True)]
        return [*zip(edits, outcomes, strict=True)]

    async def _draft(
        self, base: SuiteBase, suite: _Suite, *, edit: Edit, broken: set[str] | str
    ) -> tuple[RepositoryTask, Verdict] | str:
        """A task and the verdict on its folder as it is, or why it cannot be one."""
        if isinstance(broken, str):
            return broken
        if not 1 <= len(broken) <= _most(suite, self.options):
            return "no test fails" if not broken else "too many tests fail"
        original, fails = self.package.files[edit.path], tuple(sorted(broken))
        draft = RepositoryTask(
            id=f"{self.package.label}/{_key(edit)}",
            package=self.package.label,
            digest=self.package.digest,
            licence=self.package.licence,
            edit=edit,
            original_digest=digest(original),
            start_digest=digest(edit.apply(original)),
            fails=fails,
            sentinels=(),
            passing=len(suite.known) - len(fails),
            issue="",
        )
        nothing = await judge_modules(base, draft, {}, known=suite.known, suite_seconds=suite.seconds)
        if nothing.results is None or not nothing.results.keys() >= set(suite.known):
            return "the tests do not end"
        again = {name for name in suite.known if nothing.results[name][0] != "passed"}
        return (draft, nothing) if again == set(fails) else "flaky"

    async def _validate(
        self,
        draft: RepositoryTask,
        nothing: Verdict,
        *,
        base: SuiteBase,
        suite: _Suite,
        report: Mapping[str, Any] | None,
    ) -> tuple[RepositoryTask | None, str]:
        """The whole task when the original put back earns 1; otherwise why not.

        The original is one folder for all tasks, so `report`, of one run on it, serves those of a batch.
        """
        path, original = draft.edit.path, self.package.files[draft.edit.path]
        if report is None or report["sentinels"] is None:
            return None, "flaky"
        if guard_changes({path: original}, {path: [original, draft.edit.apply(original)]}, base.facts):
            return None, "refused"
        spoilt = report["sentinels"]["tests"]
        sentinels = tuple(name for name in draft.fails if spoilt.get(name, ("",))[0] == "failed")
        if not sentinels:
            return None, "no sentinel"
        oracle = weigh(report, fails=draft.fails, known=suite.known, sentinels=sentinels)
        if oracle.reward != 1.0:
            return None, "flaky"
        results = nothing.results or {}
        messages = {name: _ADDRESS.sub("0x...", results[name][1]) for name in draft.fails}
        task = replace(draft, sentinels=sentinels, validated=(oracle.reward, nothing.reward))
        issue = await self.write_issue(task, messages) if self.write_issue else template_issue(task, messages)
        return replace(task, issue=issue), ""


def _take(candidates: Iterator[Edit], count: int, full: set[str]) -> list[Edit]:
    batch: list[Edit] = []
    for edit in candidates:
        if _function(edit) not in full:
            batch.append(edit)
        if len(batch) == count:
            break
    return batch


def _key(edit: Edit) -> str:
    body = f"{edit.path}\0{edit.start}\0{edit.end}\0{edit.new}"
    return f"{edit.kind}-{sha256(body.encode()).hexdigest()[:10]}"


def _function(edit: Edit) -> str:
    return f"{edit.path}:{edit.function}"


def _most(suite: _Suite, options: MiningOptions) -> int:
    return max(1, min(options.max_fails, int(options.share * len(suite.known))))


def _outcome(result: Mapping[str, Any] | None, ids: Sequence[str]) -> set[str] | str:
    """The tests that a mutant breaks, from the line of its process."""
    if result is None:
        return "it ends the runner"
    if result["timed_out"]:
        return "the tests do not end"
    stopped_early = result["ended"] != "0" and result["count"] < len(ids)
    if result["ended"] is None or (stopped_early and len(result["failed"]) == 0):
        return "too many tests fail"  # the module cannot be imported, or the process is gone
    return set(result["failed"])


async def observe_suite(base: SuiteBase, options: MiningOptions) -> _Suite:
    """Run the unchanged suite twice, the second time with a trace of the functions that each test calls.

    Raises NotMineable for suites that are slow, or have no test that passes.
    """
    first = await run_tests(base, None, seconds=options.suite_seconds)
    if first["timed_out"]:
        raise NotMineable("slow", f"the suite takes more than {options.suite_seconds:g} s")
    second = await run_tests(base, None, seconds=20 + 8 * options.suite_seconds, trace=True, modules=True)
    results = [first["tests"], second["tests"]]
    passed = [{name for name, one in tests.items() if one[0] == "passed"} for tests in results]
    failed = [{name for name, one in tests.items() if one[0] == "failed"} for tests in results]
    slow = {name for name, one in first["tests"].items() if one[1] > options.test_seconds}
    flaky = (passed[0] ^ passed[1]) - slow
    known = (passed[0] & passed[1]) - slow
    messages = " ".join([*(one[2] for one in first["tests"].values()), *first["collect"].values()])
    network = sum(any(word in one[2] for word in NETWORK_WORDS) for one in first["tests"].values())
    if not known:
        if network or any(word in messages for word in NETWORK_WORDS):
            raise NotMineable("network", "the tests need a network")
        if flaky:
            raise NotMineable("flaky", f"{len(flaky)} tests pass only once in two runs")
        reason = next((one for one in [*first["collect"].values(), messages.strip()] if one), "pytest collects no test")
        raise NotMineable("tests fail before any change", one_line(reason, 160))
    notes = {
        f"{len(flaky)} flaky tests are left out": flaky,
        f"{len(slow)} slow tests are left out": slow,
        f"{len(failed[0] & failed[1])} tests fail before any change": failed[0] & failed[1],
        f"{network} of them need a network": network,
        f"{len(first['collect'])} test files cannot be imported": first["collect"],
    }
    copies = frozenset(await ask(base.judging, "copies", seconds=60.0, sources=list(base.package.sources)))
    left_out = [f"{len(copies)} modules are readable elsewhere in the sandbox"] if copies else []
    return _Suite(
        known=tuple(sorted(known)),
        calls=second["calls"],
        modules=second["modules"],
        seconds=first["seconds"],
        notes=(*(line for line, found in notes.items() if found), *left_out),
        copies=copies,
    )
