"""Commands without isolation: they run on this machine, in a folder of their own, with resource limits alone.

For machines whose kernel gives no namespaces. Not covered: a command can read what its user can read, use the network,
write outside, and fill the disk; where this process is not root, it can also signal this process, and its processes
are not counted. When root starts it, every sandbox has a user of its own, by which its processes are found and ended;
otherwise its session and the processes that still carry its mark in their environment are.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, ClassVar, cast

from wanderlust.errors import SandboxFailure, UsageError, one_line
from wanderlust.tools.process import Child, end_all
from wanderlust.tools.sandbox.base import MEBI, NotIsolatedWarning, Result, SandboxBounds
from wanderlust.tools.sandbox.bubblewrap import SANDBOX_PATH, CommandSandbox, rlimits
from wanderlust.tools.sandbox.users import reserve_user

MARK_VARIABLE = "WANDERLUST_SANDBOX"


class UnisolatedSandbox(CommandSandbox):
    """A sandbox without isolation; warns with NotIsolatedWarning when it is made, and marks every `Result`.

    `run` ends what `start` has started, too, where this process is root: it is of the same user.
    """

    isolated: ClassVar[bool] = False

    def __init__(self, bounds: SandboxBounds | None = None, *, why: str = "asked for"):
        if missing := [tool for tool in ("prlimit", "setpriv") if shutil.which(tool) is None]:
            raise SandboxFailure(f"not installed: {', '.join(missing)} (Debian package util-linux)")
        warnings.warn(
            f"NOT ISOLATED: commands run on this machine with limits alone ({why})", NotIsolatedWarning, stacklevel=2
        )
        self.bounds, self._mark = bounds or SandboxBounds(), secrets.token_hex(8)
        self._reserved = reserve_user()
        if self._reserved.uid >= 0 and not self._reserved.own:
            raise SandboxFailure("too many sandboxes without isolation are open already: close some")
        self._user = self._reserved.uid  # its processes are ended by their user, so no other sandbox may share it
        self._place = Path(tempfile.mkdtemp(prefix="wanderlust-plain-"))
        self._place.chmod(0o711)
        self._folder, self._pristine = self._place / "work", self._place / "pristine"
        self._started: list[Child] = []
        self._closed = False
        self._take(None)

    def _take(self, source: Path | None) -> None:
        """Begin with a copy of `source`, or with nothing; what `undo` returns to."""
        for folder in (self._folder, self._pristine):
            shutil.rmtree(folder, ignore_errors=True)
        self._copy(source, self._pristine)
        self._copy(self._pristine, self._folder)

    def _copy(self, source: Path | None, folder: Path) -> None:
        if source is None:
            folder.mkdir(mode=0o700)
        else:
            subprocess.run(["cp", "-a", "--", source, folder], check=True)
        if self._user >= 0:
            subprocess.run(["chown", "-RhP", f"{self._user}:{self._user}", "--", folder], check=True)

    async def _run(self, argv: list[str], stdin: bytes, output: int, *, seconds: float | None = None) -> Result:
        return replace(await super()._run(argv, stdin, output, seconds=seconds), isolated=False)

    async def listen(self) -> socket.socket:
        """A socket on the loopback of this machine: without isolation, every program here reaches it."""
        return socket.create_server(("127.0.0.1", 0))

    def _spawn(self, argv: list[str], variables: Mapping[str, str] = MappingProxyType({})) -> Child:
        if self._closed:
            raise UsageError("this sandbox is closed")
        become = [*self._reserved.become_command()[:-1], "--no-new-privs", "--"]
        env = {
            "PATH": SANDBOX_PATH,
            "HOME": str(self._folder),
            "LANG": "C.UTF-8",
            **variables,
            MARK_VARIABLE: self._mark,
        }
        limits = rlimits(self.bounds, processes=self._user >= 0)
        whole = [*(become if self._user >= 0 else []), *limits, *argv]
        child = Child(whole, env=env, cwd=str(self._folder))
        child.sweep = lambda: self._sweep(child.pid)
        return child

    def _sweep(self, session: int) -> None:
        """Kill the rest of a command: its session, and every process with its mark or its user."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid() and self._bears(entry):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(int(entry.name), signal.SIGKILL)

    def _bears(self, entry: Path) -> bool:
        try:
            if self._user >= 0:
                return entry.stat().st_uid == self._user
            return f"{MARK_VARIABLE}={self._mark}".encode() in (entry / "environ").read_bytes()
        except OSError:
            return False

    async def read(self, path: str, *, limit: int = MEBI) -> bytes:
        """As `Sandbox.read` says; no symbolic link is followed."""
        with self._regular(self._reach(path, os.O_RDONLY | os.O_NONBLOCK), path, "rb") as file:
            return file.read(limit)

    async def write(self, path: str, data: bytes) -> None:
        """As `Sandbox.write` says; no symbolic link is followed."""
        fd = self._reach(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, make=True)
        with self._regular(fd, path, "wb") as file:
            file.truncate()
            file.write(data)
            if self._user >= 0:
                os.fchown(fd, self._user, self._user)

    def _regular(self, fd: int, path: str, mode: str) -> BinaryIO:
        """The open file, when it is one and has no second name elsewhere."""
        if stat.S_ISREG(os.fstat(fd).st_mode) and os.fstat(fd).st_nlink == 1:
            return cast(BinaryIO, os.fdopen(fd, mode))
        os.close(fd)
        raise PermissionError(errno.EACCES, "not a regular file with one name", one_line(path))

    def _reach(self, path: str, flags: int, *, make: bool = False) -> int:
        """Open a file of the folder, step by step from the folder itself, through no link."""
        relative = path.removeprefix(f"{self._folder}/")
        parts = [part for part in relative.split("/") if part not in ("", ".")]
        if relative.startswith("/") or ".." in parts:
            raise PermissionError(errno.EACCES, "the path leaves the folder", one_line(path))
        if not parts or "\0" in path:
            raise FileNotFoundError(errno.ENOENT, "no such file in the folder", one_line(path))
        here = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in parts[:-1]:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=here)
                        if self._user >= 0:
                            os.chown(part, self._user, self._user, dir_fd=here, follow_symlinks=False)
                above, here = here, os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
                os.close(above)
            return os.open(parts[-1], flags | os.O_NOFOLLOW, 0o644, dir_fd=here)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "no such file in the folder", one_line(path)) from None
        except (OSError, UnicodeError) as error:
            raise PermissionError(errno.EACCES, f"not to be opened ({error})", one_line(path)) from None
        finally:
            os.close(here)

    async def fork(self) -> UnisolatedSandbox:
        """As `Sandbox.fork` says, by copying; ends what was started."""
        await end_all(self._started)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotIsolatedWarning)  # the first sandbox has warned
            other = UnisolatedSandbox(self.bounds)
        await asyncio.to_thread(other._take, self._folder)
        shutil.rmtree(self._pristine)
        await asyncio.to_thread(self._copy, self._folder, self._pristine)
        return other

    async def undo(self) -> None:
        """As `Sandbox.undo` says, by copying; ends what was started."""
        await end_all(self._started)
        shutil.rmtree(self._folder)
        await asyncio.to_thread(self._copy, self._pristine, self._folder)

    async def close(self) -> None:
        """As `Sandbox.close` says."""
        if not self._closed:
            self._closed = True
            try:
                await end_all(self._started)
            finally:
                shutil.rmtree(self._place, ignore_errors=True)
                self._reserved.release()
