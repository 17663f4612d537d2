"""A sandbox in a container of Docker or Podman.

The image needs `sh`, GNU coreutils and `tar`. The container has no network, a read-only system, no capabilities, no
new privileges, and folders in memory of bounded size. A command that is ended early ends all processes in the
container, sessions included. Tried with Podman 4.3, rootless, with runc.

Not covered: faults of the engine, which isolates; with Podman the number of files; with rootless Podman over control
groups of version 1 (it says so on its standard error) the bounds of memory and of each container's processes; in a
`WritableContainer` the sum of what is written.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from secrets import token_hex
from types import MappingProxyType
from typing import ClassVar, Self

from wanderlust.errors import SandboxFailure, UsageError, one_line
from wanderlust.tools.process import Child, end_all
from wanderlust.tools.sandbox import bubblewrap
from wanderlust.tools.sandbox.base import (
    MEBI,
    Result,
    SandboxBounds,
    opens,
    run_bounded,
)
from wanderlust.tools.sandbox.overlay import AGENT_UID

_WAIT = "while :; do sleep 2147483647 & wait $!; [ $? = 137 ] || exit; done"
"""The first process of a container in which commands are root: what ends all processes does not end this one."""
ENGINE_TIMEOUT_SECONDS = 120.0
"""Seconds for one request to the engine."""
MAX_SANDBOXES = 64
"""So many containers are one user's; their processes are bounded in common, where an engine bounds no container's."""
_AGENT = f"{AGENT_UID}:{AGENT_UID}"
"""Commands run as the agent; the container's first process is root without capabilities, so they cannot end it."""
_ROOT_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
"""What root may in a writable container: to install and to change owners, inside."""
_ARCHIVE = (  # without the folder itself, whose mode the agent must not set
    f"cd {bubblewrap.SANDBOX_FOLDER} && find . -mindepth 1 -print0 | tar --null --no-recursion -T - -cf -"
)
_ENGINE_VARIABLES = (
    *("HOME", "PATH", "DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"),
    *("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"),
)
"""Environment variables of the engine's client; none of them goes inside."""


def build_run_arguments(
    image: str, bounds: SandboxBounds, *, engine: str = "docker", writable: bool = False
) -> list[str]:
    """The engine's arguments that start a container which waits for commands.

    Podman knows no bound of a folder's entries, so there `bounds.entries` does not hold. `writable` containers have the
    image's own file system and folder in place of /work in memory, and root has the usual rights inside.
    """
    entries = "" if os.path.basename(engine) == "podman" else f",nr_inodes={bounds.entries}"
    folder = f"rw,exec,nosuid,nodev,size={bounds.disk}{entries},mode=1777"
    in_memory = [
        "--init",
        *("--read-only", f"--workdir={bubblewrap.SANDBOX_FOLDER}", f"--env=HOME={bubblewrap.SANDBOX_FOLDER}"),
        *("--tmpfs", f"{bubblewrap.SANDBOX_FOLDER}:{folder}", "--tmpfs", f"/tmp:{folder}"),
    ]
    return [
        *("run", "--detach", "--rm", "--pull=never", "--stop-signal=SIGKILL", "--network=none", "--cap-drop=ALL"),
        *("--security-opt=no-new-privileges", "--user=0:0", "--hostname=sandbox", "--ipc=private"),
        *(f"--memory={bounds.memory + bounds.disk}", f"--memory-swap={bounds.memory + bounds.disk}"),
        *(f"--pids-limit={bounds.processes}", f"--ulimit=nofile={bounds.files}", "--ulimit=core=0"),
        *(
            f"--ulimit=nproc={MAX_SANDBOXES * bounds.processes}",
            f"--ulimit=fsize={bounds.disk}",
            f"--shm-size={bounds.disk}",
        ),
        *((f"--cap-add={name}" for name in _ROOT_CAPABILITIES) if writable else in_memory),
        *(("--entrypoint=sh", image, "-c", _WAIT) if writable else ("--entrypoint=sleep", image, "2147483647")),
    ]


class ContainerSandbox(bubblewrap.CommandSandbox):
    """A waiting container in which commands run. `fork` and `undo` copy the folder as an archive."""

    isolated: ClassVar[bool] = True
    writable: ClassVar[bool] = False

    def __init__(self, image: str, bounds: SandboxBounds, *, engine: str, name: str):
        self.image, self.bounds, self.engine, self.name = image, bounds, engine, name
        self.user = _AGENT
        """As whom commands run: a user of the image, or numbers."""
        self._pristine = b""
        self._started: list[Child] = []
        self._closed = False

    @classmethod
    @opens
    async def open(cls, image: str, bounds: SandboxBounds | None = None, *, engine: str = "docker") -> Self:
        """Start a container of `image`, which must exist already: nothing is downloaded.

        Raises SandboxFailure in one line where the engine, its daemon or the image is missing.
        """
        if shutil.which(engine) is None:
            raise SandboxFailure(f"{engine!r} is not installed")
        bounds = bounds or SandboxBounds()
        name = f"wanderlust-{token_hex(8)}"
        command, *words = build_run_arguments(image, bounds, engine=engine, writable=cls.writable)
        async with AsyncExitStack() as failing:  # after a cancellation too the container may be there already
            failing.push_async_callback(_remove_container, engine, name)
            await run_engine_command(engine, [command, f"--name={name}", *words])
            failing.pop_all()
        return cls(image, bounds, engine=engine, name=name)

    async def _run(self, argv: list[str], stdin: bytes, output: int, *, seconds: float | None = None) -> Result:
        try:
            return await super()._run(argv, stdin, output, seconds=seconds)
        finally:
            if not self._closed and not any(started.alive for started in self._started if not started.closed):
                await self._sweep()

    async def _sweep(self) -> None:
        """End all processes in the container besides its own first one."""
        kill = ["sh", "-c", "kill -KILL -1 2>/dev/null; true"]
        await run_engine_command(self.engine, ["exec", f"--user={self.user}", self.name, *kill])

    def _spawn(self, argv: list[str], variables: Mapping[str, str] = MappingProxyType({})) -> Child:
        if self._closed:
            raise UsageError("this sandbox is closed")
        named = [f"--env={name}={value}" for name, value in variables.items()]
        words = [self.engine, "exec", "--interactive", f"--user={self.user}", *named, self.name, *argv]
        return Child(words, env=engine_environment())

    async def listen(self) -> socket.socket:
        """Raises SandboxFailure: the engine holds the container's network."""
        raise SandboxFailure(f"a container of {self.engine} has no door: use open_sandbox for agents")

    async def fork(self) -> Self:
        """As `Sandbox.fork` says; ends what was started."""
        await self._rest()
        archive = await self._in(["sh", "-c", _ARCHIVE])
        other = await type(self).open(self.image, self.bounds, engine=self.engine)
        self._pristine = other._pristine = archive
        await other._unpack()
        return other

    async def undo(self) -> None:
        """As `Sandbox.undo` says; ends what was started."""
        await self._rest()
        await self._in(["find", bubblewrap.SANDBOX_FOLDER, "-mindepth", "1", "-delete"])
        if self._pristine:
            await self._unpack()

    async def _unpack(self) -> None:
        await self._in(["tar", "-C", bubblewrap.SANDBOX_FOLDER, "-xf", "-", "--no-overwrite-dir"], self._pristine)

    async def _in(self, argv: Sequence[str], stdin: bytes = b"") -> bytes:
        return await run_engine_command(
            self.engine,
            ["exec", "--interactive", f"--user={self.user}", self.name, *argv],
            stdin,
            most=2 * self.bounds.disk,
        )

    async def _rest(self) -> None:
        await end_all(self._started)
        await self._sweep()

    async def close(self) -> None:
        """As `Sandbox.close` says."""
        if not self._closed:
            self._closed = True
            await end_all(self._started)
            await run_engine_command(self.engine, ["rm", "--force", self.name])


class WritableContainer(ContainerSandbox):
    """A container whose whole file system can be written, by root or by `user`; forks are images of the engine.

    Paths of `read`, `write`, `put` and `get` lie in the image's own folder. What is written is bounded by file, not in
    its sum.
    """

    writable: ClassVar[bool] = True

    def __init__(self, image: str, bounds: SandboxBounds, *, engine: str, name: str):
        super().__init__(image, bounds, engine=engine, name=name)
        self.user = "0:0"
        self._kept: list[str] = []
        """Images to come back to, the newest last; the engine deletes one when nobody has a name for it."""

    async def fork(self) -> Self:
        """As `Sandbox.fork` says; ends what was started."""
        await self._rest()
        mine, others = (f"wanderlust-fork-{token_hex(8)}" for _ in range(2))
        await run_engine_command(self.engine, ["commit", self.name, mine])
        self._kept.append(mine)
        await run_engine_command(self.engine, ["tag", mine, others])
        other = await type(self).open(others, self.bounds, engine=self.engine)
        other._kept, other.user = [others], self.user
        return other

    async def undo(self) -> None:
        """As `Sandbox.undo` says; ends what was started."""
        await end_all(self._started)
        fresh = await type(self).open(self._kept[-1] if self._kept else self.image, self.bounds, engine=self.engine)
        await run_engine_command(self.engine, ["rm", "--force", self.name])
        self.name = fresh.name

    async def close(self) -> None:
        """As `Sandbox.close` says."""
        if not self._closed:
            await super().close()
            if self._kept:
                await run_engine_command(self.engine, ["rmi", *self._kept])


async def _remove_container(engine: str, name: str) -> None:
    with suppress(SandboxFailure):  # there was none
        await run_engine_command(engine, ["rm", "--force", name])


def engine_environment() -> dict[str, str]:
    """The environment of the engine's client."""
    return {name: os.environ[name] for name in _ENGINE_VARIABLES if name in os.environ}


async def run_engine_command(engine: str, arguments: Sequence[str], stdin: bytes = b"", *, most: int = MEBI) -> bytes:
    """Run the engine; returns its output, and raises SandboxFailure of one line when it refuses."""
    child = Child([engine, *arguments], env=engine_environment())
    try:
        result = await run_bounded(child, stdin=stdin, seconds=ENGINE_TIMEOUT_SECONDS, output=2 * most)
    finally:
        child.close()
    if result.code or result.reached_limit:
        why = one_line(result.stderr.decode("utf-8", "replace")) or result.reached_limit or f"exit status {result.code}"
        raise SandboxFailure(f"{engine} {arguments[0]}: {why}")
    return result.stdout
