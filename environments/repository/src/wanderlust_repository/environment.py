"""Faults in real packages, to be repaired with a shell, an editor and tests, in a sandbox without a network.

The agent's folder is a fork of the pristine package with one fault. It is judged by `verdict.py`: only the package's
own modules are taken from it, and the true tests run over them elsewhere. Not covered: see `verdict.py` and `guard.py`.
"""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import msgspec

from wanderlust.environment import Episode, Limits
from wanderlust.errors import EnvironmentFailure, UsageError, boundary
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import RewardResult, Rubric
from wanderlust.tools.function import ToolSource, open_toolsets
from wanderlust.tools.sandbox import BranchedSandbox, BranchTools, Sandbox, SandboxTools
from wanderlust.tools.sandbox.box import Box
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Policy, Task, ToolCall, assistant, user
from wanderlust_repository.package import SourcePackage, read_package
from wanderlust_repository.site_folder import load_site
from wanderlust_repository.suite import REPOSITORY_FOLDER, SITE_FOLDER, SuiteBase, open_base
from wanderlust_repository.task_file import (
    SITES_FOLDER,
    SOURCES_FOLDER,
    PackageRecord,
    RepositoryTask,
    load_record,
    load_repository_tasks,
)
from wanderlust_repository.verdict import Verdict, collect_changes, judge_modules, judge_seconds

EXAMPLE = Path(__file__).parent / "example"
"""Tasks of a small package, mined as any."""
EVAL_SHARE = 5
"""Every fifth package, or function where there is one package alone, is of the split `eval`."""
IDLE_BASE_SECONDS = 20.0
"""Wall-clock seconds that a package's pristine folders are kept when no episode uses them."""
MAX_FILE_CHARS = 200_000
PROMPT = """\
The Python package {package} lies in the folder {folder}. Repair it there.

{issue}

Change the package itself; tests that you change are put back before your work is judged, as are all files but the \
package's modules. Changes may not reach for the interpreter, the test runner or files (sys, os, exec, frames, \
comparison methods of new classes, ...) beyond what the file does already. There is no network. \
When you are done, answer without a tool call.
"""


class RepositoryTools:
    """What an agent can do in its folder: run commands and tests, read, write and edit files."""

    def __init__(self, sandbox: Sandbox, package: SourcePackage):
        self.sandbox = sandbox
        self._shell = SandboxTools(sandbox)
        paths = [f"{REPOSITORY_FOLDER}/{root}".rstrip("/") for root in package.roots]
        self._paths = ":".join([*paths, SITE_FOLDER])

    async def bash(self, command: str) -> str:
        """Run a command in bash, in the package's folder; files stay, variables and processes do not.

        Args:
            command: The command line or script.
        """
        return await self._shell.bash(f"cd {REPOSITORY_FOLDER} && export PYTHONPATH={self._paths}\n{command}")

    async def test(self, arguments: str = "") -> str:
        """Run the package's tests with pytest, and return its report.

        Args:
            arguments: Further arguments: files, test ids, -k EXPRESSION. All tests by default.
        """
        words = "-q -p no:cacheprovider -o addopts= -o filterwarnings= -o required_plugins= --tb=short"
        quoted = " ".join(map(shlex.quote, _split(arguments)))
        return await self.bash(f"python3 -m pytest {words} {quoted} 2>&1 | tail -n 80")

    async def read_file(self, path: str, first_line: int = 1, lines: int = 400) -> str:
        """Read lines of a file, with their numbers.

        Args:
            path: Path in the package's folder.
            first_line: First line, counted from 1.
            lines: Most lines that are returned.
        """
        text = await self._read(path)
        rows = text.splitlines()[max(first_line - 1, 0) :][:lines]
        return "\n".join(f"{number}\t{row}" for number, row in enumerate(rows, max(first_line, 1)))

    async def write_file(self, path: str, text: str) -> str:
        """Write a whole file.

        Args:
            path: Path in the package's folder.
            text: The new content.
        """
        await self.sandbox.write(f"repo/{path}", text.encode())
        return f"{path} has {len(text.splitlines())} lines"

    async def edit_file(self, path: str, old: str, new: str) -> str:
        """Replace a text that occurs exactly once in a file.

        Args:
            path: Path in the package's folder.
            old: The text that is there.
            new: The text that takes its place.
        """
        text = await self._read(path)
        if (count := text.count(old)) != 1 or not old:
            return f"error: the text occurs {count} times in {path}, not once; nothing was changed"
        await self.sandbox.write(f"repo/{path}", text.replace(old, new).encode())
        return f"{path} is changed"

    async def _read(self, path: str) -> str:
        data = await self.sandbox.read(f"repo/{path}", limit=MAX_FILE_CHARS)
        return data.decode("utf-8", "replace")


def _split(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


def repaired(state: Mapping[str, Any]) -> RewardResult:
    """1 when every failing test passes, every passing one still does, and nothing speaks against the result."""
    verdict = state["verdict"]
    names = ("fixed", "kept", "tests_edited", "others_edited", "refused", "forged")
    return RewardResult(
        value=verdict["reward"], metrics={name: float(verdict[name]) for name in names}, note=verdict["why"]
    )


class BoxedAgent(Protocol):
    """An agent that works in a sandbox somebody else has opened, as `Program` does."""

    @property
    def sandbox(self) -> Box | None:
        """Bounds of the sandbox, and what is readable in it."""
        ...

    async def run_in(self, episode: Episode, sandbox: Sandbox) -> object:
        """Play the episode in the sandbox."""
        ...


class PristinePackages:
    """The pristine folders of packages, opened once and shared by all episodes that run at the same time."""

    def __init__(self, folder: Path, box: Box | None = None):
        """`box` has the bounds of the sandboxes, and what is readable in them."""
        self.folder = folder
        self._options: Mapping[str, Any] = {} if box is None else {"bounds": box.bounds, "readable": box.readable}
        self._bases: dict[str, asyncio.Task[SuiteBase]] = {}
        self._users: Counter[str] = Counter()
        self._closing: dict[str, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def using(self, package: SourcePackage, record: PackageRecord) -> AsyncIterator[SuiteBase]:
        """The base of a package, kept open for the time of the block and a little longer."""
        label = package.label
        self._users[label] += 1
        if (closing := self._closing.pop(label, None)) is not None:
            closing.cancel()
        opened = self._bases.get(label)
        if opened is None or opened.get_loop() is not asyncio.get_running_loop():
            opened = self._bases[label] = asyncio.create_task(self._open(package, record))
        try:
            yield await asyncio.shield(opened)
        finally:
            self._users[label] -= 1
            if not self._users[label]:
                self._closing[label] = asyncio.create_task(self._close_later(label))

    async def _open(self, package: SourcePackage, record: PackageRecord) -> SuiteBase:
        sites = None if self.folder == EXAMPLE else self.folder / SITES_FOLDER
        site = await asyncio.to_thread(load_site, package, record.requirements, sites)
        return await open_base(package, site, **self._options)

    async def _close_later(self, label: str) -> None:
        """Close a base when it has been idle, or at once when the event loop ends; an episode that comes cancels it."""
        try:
            await asyncio.sleep(IDLE_BASE_SECONDS)
        except asyncio.CancelledError:
            if self._users[label]:
                return
        opened = self._bases.pop(label)
        if not opened.cancelled() and opened.done() and opened.exception() is None:
            await opened.result().close()


class Repository(ToolEnvironment):
    """Repair one fault in a real package so that its own tests pass; tasks are made by `wander tasks mine`."""

    limits = Limits(max_turns=30)
    group_by = "package"
    rubric = Rubric(repaired)
    prefixes = False

    def __init__(
        self, folder: str = "", *, show_tests: bool = True, branches: bool = False, agent: BoxedAgent | None = None
    ):
        """`folder` is what `wander tasks mine --out` has made; by default 49 tasks of a small package, `timespan`.

        Without `show_tests` the test files that the task's failing tests are in are not in the agent's folder. With
        `branches` there are the tools of `BranchTools` as well, and what was tried stands in the state as `branches`;
        the branch of the end is judged. `agent` works instead of the tools: a `Program`, which finds the package in
        `/work/repo`, and the model as in any box.
        """
        if branches and agent is not None:
            raise UsageError("branches are tools, and an agent of its own has none of them: give one of the two")
        super().__init__()
        self.folder, self.show_tests, self.branches, self.agent = folder, show_tests, branches, agent
        self._place = Path(folder) if folder else EXAMPLE
        self._by_id = {task.id: task for task in load_repository_tasks(self._place)}
        self._records: dict[str, PackageRecord] = {}
        self._packages: dict[str, SourcePackage] = {}
        self.pristine = PristinePackages(self._place, agent.sandbox if agent is not None else None)

    def tasks(self, split: str = "train") -> list[Task]:
        """The tasks of a split; `eval` has every fifth package, or every fifth function of a single one."""
        if split not in ("train", "eval"):
            raise UsageError(f"there is no split {split!r}: one of train, eval")
        return [self._task(one) for one in self._by_id.values() if (one.id in self._held_out) == (split == "eval")]

    @cached_property
    def _held_out(self) -> frozenset[str]:
        tasks = [*self._by_id.values()]
        alone = len({task.package for task in tasks}) == 1
        names = {task.id: f"{task.edit.path}:{task.edit.function}" if alone else task.package for task in tasks}
        order = sorted({*names.values()}, key=lambda name: sha256(name.encode()).hexdigest())
        held = {*order[: max(1, len(order) // EVAL_SHARE)]}
        return frozenset(one for one, name in names.items() if name in held)

    def _task(self, task: RepositoryTask) -> Task:
        prompt = PROMPT.format(package=task.package, folder=REPOSITORY_FOLDER, issue=task.issue)
        info = {"package": task.package, "licence": task.licence, "fails": len(task.fails)}
        return Task(id=task.id, prompt=(user(prompt),), answer=asdict(task), info=info)

    def oracle(self, task: Task) -> Policy:
        """A policy that puts the original file back."""
        mined = repository_task(task)
        text = self.package(mined.package).files[mined.edit.path].decode()
        arguments = msgspec.json.encode({"path": mined.edit.path, "text": text}).decode()
        return Scripted([assistant("", ToolCall(id="restore", name="write_file", arguments=arguments)), "Done."])

    def record(self, label: str) -> PackageRecord:
        """What mining knows of a package."""
        if label not in self._records:
            self._records[label] = load_record(self._place, label)
        return self._records[label]

    def package(self, label: str) -> SourcePackage:
        """A package as it was distributed. Raises UsageError where its archive is missing or another one."""
        if label not in self._packages:
            found = [p for p in (self._place / SOURCES_FOLDER).glob(f"{label}.*") if p.name[len(label) :] in _ENDINGS]
            if not found:
                raise UsageError(f"{self._place / SOURCES_FOLDER} has no archive of {label}")
            package = read_package(found[0])
            self._packages[label] = package
        return self._packages[label]

    async def run(self, episode: Episode) -> None:
        """Lay out the folder, let the agent work in it, and judge what it leaves."""
        agent = self.agent
        episode.state["tool_calls"] = {}

        async def work(sandbox: Sandbox, package: SourcePackage) -> None:
            if agent is not None:
                await agent.run_in(episode, sandbox)
                return
            own = RepositoryTools(sandbox, package)
            sources: list[ToolSource] = [own.bash, own.test, own.read_file, own.write_file, own.edit_file]
            if isinstance(sandbox, BranchedSandbox):
                trying = BranchTools(sandbox)
                episode.state["branches"] = sandbox.history
                sources += [trying.branch, trying.switch, trying.undo, trying.compare]
            async with open_toolsets(sources, episode) as tools:
                await self.converse(episode, tools)

        await self.play(episode, work)

    async def play(self, episode: Episode, work: Callable[[Sandbox, SourcePackage], Awaitable[None]]) -> None:
        """Give `work` the task's folder in a sandbox, then judge it; for environments whose agents work otherwise.

        `work` gets the sandbox, with the package in `/work/repo`, and the package. A limit ends it, and what there is
        then is judged. The verdict stands in `episode.state["verdict"]`.
        """
        task = repository_task(episode.task)
        package, record = self.package(task.package), self.record(task.package)
        episode.play.closing_seconds += 2 * judge_seconds(record.suite_seconds)
        async with self.pristine.using(package, record) as base, AsyncExitStack() as closing:
            sandbox = await base.fork("working")
            closing.push_async_callback(sandbox.close)
            await self._lay_out(sandbox, package, task)
            if self.branches:  # of a fork, so that `undo` never goes back to before the fault
                sandbox = BranchedSandbox(await sandbox.fork())
                closing.push_async_callback(sandbox.close)
            with episode.playing():
                await work(sandbox, package)
            episode.state["verdict"] = await self.judge(base, task, sandbox)

    async def _lay_out(self, sandbox: Sandbox, package: SourcePackage, task: RepositoryTask) -> None:
        with boundary(EnvironmentFailure):
            await sandbox.write(f"repo/{task.edit.path}", task.edit.apply(package.files[task.edit.path]))
            if not self.show_tests:
                names = sorted({f"{REPOSITORY_FOLDER}/{one.partition('::')[0]}" for one in task.fails})
                await sandbox.run(["rm", "-f", "--", *names])

    async def judge(self, base: SuiteBase, task: RepositoryTask, sandbox: Sandbox) -> dict[str, Any]:
        """The verdict on an agent's folder as plain data. Raises SandboxFailure where the sandbox fails."""
        record = self.record(task.package)
        changes = await collect_changes(sandbox, base.package, task)
        if changes.refused:
            verdict = Verdict(reward=0.0, refused=changes.refused, why=f"refused: {changes.refused[0]}")
        else:
            verdict = await judge_modules(
                base, task, changes.modules, known=record.known, suite_seconds=record.suite_seconds
            )
        hidden = set() if self.show_tests else {one.partition("::")[0] for one in task.fails}
        return {
            "reward": verdict.reward,
            "fixed": verdict.fixed,
            "kept": verdict.kept,
            "why": verdict.why,
            "forged": verdict.forged,
            "refused": len(verdict.refused),
            "tests_edited": len([path for path in changes.tests_edited if path not in hidden]),
            "others_edited": len(changes.others_edited),
            "modules": sorted(changes.modules),
            "edited": sorted([*changes.tests_edited, *changes.others_edited]),
        }


_ENDINGS = (".tar.gz", ".tar", ".zip", ".tgz", ".tar.bz2", ".tar.xz")


def repository_task(task: Task) -> RepositoryTask:
    """The mined task behind a task of this environment."""
    return msgspec.convert(task.answer, RepositoryTask)
