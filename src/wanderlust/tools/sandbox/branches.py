"""A sandbox with named branches, and the tools by which an agent tries something out, compares it and takes it back."""

from __future__ import annotations

import difflib
import re
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from wanderlust.errors import UsageError, one_line, printable
from wanderlust.tools.process import Child, end_all
from wanderlust.tools.sandbox.base import MEBI, Closing, Result, Sandbox, SandboxCommand

MAIN = "main"
"""Name of the branch that a sandbox begins with."""
MAX_BRANCHES = 8
"""Branches of one sandbox, at most."""
MAX_COMPARED_FILES, MAX_COMPARED_BYTES = 40, 65_536
"""Files that a comparison names, and bytes of a file whose lines it shows."""
MAX_COMPARISON_CHARS = 12_000
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_DIGESTS = "find . -type f -print0 | tr -dc '\\0' | wc -c; find . -type f -print0 | xargs -0 -r sha256sum -z --"


class BranchedSandbox(Closing):
    """A sandbox whose commands, files and programs are those of its current branch; `branch` and `switch` change it.

    `fork` and `undo` are those of the current branch. Branches are forks, so they share what they have in common.
    """

    def __init__(self, sandbox: Sandbox):
        """`sandbox` becomes the branch MAIN, and is closed with this one."""
        self.bounds = sandbox.bounds
        self.branches: dict[str, Sandbox] = {MAIN: sandbox}
        self.current = MAIN
        self.history: list[dict[str, Any]] = []
        """Each branch, switch and undo in order, as plain data: a tree of what was tried."""
        self._started: list[Child] = []

    @property
    def sandbox(self) -> Sandbox:
        """The current branch."""
        return self.branches[self.current]

    @property
    def isolated(self) -> bool:
        """As the sandbox's."""
        return self.sandbox.isolated

    async def branch(self, name: str) -> None:
        """Copy the current branch as it is now, and go on in the copy; programs that were started are ended.

        Raises UsageError for a name that cannot be, or is there already, and beyond MAX_BRANCHES.
        """
        if not _NAME.fullmatch(name):
            raise UsageError("a branch's name has 1 to 32 lower-case letters, digits, - and _")
        if name in self.branches:
            raise UsageError(f"there is a branch {name} already")
        if len(self.branches) >= MAX_BRANCHES:
            raise UsageError(f"there are {MAX_BRANCHES} branches, which is the most")
        await self._leave()
        self.branches[name] = await self.sandbox.fork()
        self._note("branch", name, of=self.current)
        self.current = name

    async def switch(self, name: str) -> None:
        """Go on in another branch; programs that were started are ended. Raises UsageError where there is none."""
        self.of(name)
        await self._leave()
        self._note("switch", name)
        self.current = name

    async def undo(self) -> None:
        """Take the current branch back to the last branch that was made from it, or to when it was made."""
        await self._leave()
        await self.sandbox.undo()
        self._note("undo", self.current)

    def of(self, name: str) -> Sandbox:
        """The branch of that name. Raises UsageError where there is none."""
        if name not in self.branches:
            raise UsageError(f"there is no branch {one_line(name, 40)!r}: {', '.join(self.branches)}")
        return self.branches[name]

    async def fork(self) -> Sandbox:
        """As `Sandbox.fork` says, of the current branch; the fork has no branches."""
        return await self.sandbox.fork()

    async def run(self, command: SandboxCommand, *, stdin: bytes = b"", timeout: float | None = None) -> Result:  # noqa: ASYNC109
        """As `Sandbox.run` says."""
        return await self.sandbox.run(command, stdin=stdin, timeout=timeout)

    async def start(self, command: SandboxCommand, *, env: Mapping[str, str] | None = None) -> Child:
        """As `Sandbox.start` says; leaving the branch ends the program too."""
        child = await self.sandbox.start(command, env=env)
        self._started.append(child)
        return child

    async def listen(self) -> socket.socket:
        """As `Sandbox.listen` says; programs of other branches do not reach it."""
        return await self.sandbox.listen()

    async def read(self, path: str, *, limit: int = MEBI) -> bytes:
        """As `Sandbox.read` says."""
        return await self.sandbox.read(path, limit=limit)

    async def write(self, path: str, data: bytes) -> None:
        """As `Sandbox.write` says."""
        await self.sandbox.write(path, data)

    async def put(self, source: Path, path: str = ".") -> None:
        """As `Sandbox.put` says."""
        await self.sandbox.put(source, path)

    async def get(self, target: Path, path: str = ".", *, limit: int | None = None) -> None:
        """As `Sandbox.get` says."""
        await self.sandbox.get(target, path, limit=limit)

    async def close(self) -> None:
        """Close all branches."""
        async with AsyncExitStack() as closing:
            for branch in self.branches.values():
                closing.push_async_callback(branch.close)
            await self._leave()

    async def _leave(self) -> None:
        await end_all(self._started)
        self._started.clear()

    def _note(self, what: str, name: str, **more: str) -> None:
        self.history.append({"event": what, "name": name, **more})


class BranchTools:
    """Tools of a model over a `BranchedSandbox`; what they return is text, also where something is refused."""

    def __init__(self, sandbox: BranchedSandbox):
        self.sandbox = sandbox

    async def branch(self, name: str) -> str:
        """Copy all files as they are now to a new branch and go on there; the branch you leave stays as it is.

        Args:
            name: Name of the new branch.
        """
        try:
            await self.sandbox.branch(name)
        except UsageError as error:
            return f"error: {error}"
        return f"you are in branch {name}; there are {', '.join(self.sandbox.branches)}"

    async def switch(self, name: str) -> str:
        """Go on in another branch, with its files. The branch you are in at the end is your result.

        Args:
            name: Name of a branch; the first one is called main.
        """
        try:
            await self.sandbox.switch(name)
        except UsageError as error:
            return f"error: {error}"
        return f"you are in branch {name}"

    async def undo(self) -> str:
        """Take the files of this branch back to the last branch made from it, or to when it was made."""
        await self.sandbox.undo()
        return f"branch {self.sandbox.current} is as before"

    async def compare(self, name: str) -> str:
        """Show how the files of this branch differ from those of another one.

        Args:
            name: Name of the other branch.
        """
        try:
            return await compare_folders(
                self.sandbox.of(name), self.sandbox.sandbox, names=(name, self.sandbox.current)
            )
        except UsageError as error:
            return f"error: {error}"


async def compare_folders(old: Sandbox, new: Sandbox, *, names: tuple[str, str]) -> str:
    """The files that two sandboxes do not share, with the lines of those that are texts of bounded size."""
    before, after = await _digests(old), await _digests(new)
    differing = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    shown, more = differing[:MAX_COMPARED_FILES], len(differing) - MAX_COMPARED_FILES
    parts = [await _difference((old, new), path, names=names) for path in shown]
    text = "\n".join([*parts, *([f"and {more} further files"] if more > 0 else [])]) or "all files are equal"
    if len(text) <= MAX_COMPARISON_CHARS:
        return text
    cut = [text[:MAX_COMPARISON_CHARS], "[cut: compare smaller changes]", "differing files:"]
    return "\n".join([*cut, *map(one_line, shown)])


async def _digests(sandbox: Sandbox) -> dict[str, str]:
    """The digest of every file, by its path. Raises UsageError where there are more than a reply may list."""
    result = await sandbox.run(_DIGESTS)
    count, _, listed = result.stdout.decode("utf-8", "surrogateescape").partition("\n")
    rows = [row.partition("  ") for row in listed.split("\0") if row]
    if result.reached_limit or count.strip() != str(len(rows)):
        raise UsageError("there are too many files to compare, or some that cannot be read")
    return {path.removeprefix("./"): digest for digest, _, path in rows}


async def _difference(folders: tuple[Sandbox, Sandbox], path: str, *, names: tuple[str, str]) -> str:
    before, after = [await _lines(one, path) for one in folders]
    label = one_line(path)
    if before is None or after is None:
        return f"{label}: the two differ, and are no short texts"
    rows = difflib.unified_diff(before, after, f"{names[0]}/{label}", f"{names[1]}/{label}", lineterm="")
    return "\n".join(map(printable, rows))


async def _lines(sandbox: Sandbox, path: str) -> list[str] | None:
    """The lines of a file; none where there is no such file, and None where it is long or no text."""
    try:
        data = await sandbox.read(path, limit=MAX_COMPARED_BYTES + 1)
        return data.decode().splitlines() if len(data) <= MAX_COMPARED_BYTES else None
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        return None
