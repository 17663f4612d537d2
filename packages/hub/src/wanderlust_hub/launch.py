"""Start the process of an isolated environment: an interpreter in a sandbox that sees the package and what it needs.

Shown inside are the unpacked package, wanderlust, the installed distributions that the package requires, and what its
permissions name. Python runs without its site module, so that no `.pth` file and no `sitecustomize` is read.

Not covered is what the package of sandboxes does not cover, and what a listed server does with what it is sent.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from socket import socket
from threading import Thread
from typing import Literal

from wanderlust.errors import SandboxFailure, UsageError, one_line
from wanderlust.tools.process import Child
from wanderlust.tools.sandbox import open_sandbox
from wanderlust.tools.sandbox.base import MEBI, Sandbox, SandboxBounds
from wanderlust.tools.sandbox.egress import EgressProxy
from wanderlust_hub.permissions import Permissions
from wanderlust_hub.requirements import library_paths

ISOLATED_BOUNDS = SandboxBounds(memory=2048 * MEBI, processes=64, files=256, disk=512 * MEBI, entries=50_000)
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
_BOOT = (
    "import json, os, sys; sys.path += map(os.path.abspath, json.loads(sys.argv[1]));"
    " from wanderlust_hub.inside import main; sys.exit(main(sys.argv[2]))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A package that was unpacked, and what it is given."""

    name: str
    code: Path
    """Folder of the unpacked wheel."""
    libraries: Path
    """Folder of what was fetched for it; there need not be one."""
    target: str
    """`module:Class` of the environment."""
    requires: tuple[str, ...]
    permissions: Permissions
    digest: str
    """SHA-256 of the wheel."""
    isolation: Literal["required", "preferred"] = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A started process, its sandbox, and the thread of its proxy where it may reach a server."""

    sandbox: Sandbox
    child: Child
    proxy: ProxyThread | None

    async def close(self) -> None:
        """End the process and all that it started."""
        if self.proxy is not None:
            self.proxy.stop()
        await self.sandbox.close()


class ProxyThread(Thread):
    """Serves a proxy on a socket, in a loop of its own, until it is stopped."""

    def __init__(self, allowed: Sequence[str], listener: socket):
        super().__init__(name="wanderlust-egress", daemon=True)
        self._proxy, self._listener = EgressProxy(allowed), listener
        self._ready: SimpleQueue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = SimpleQueue()

    def begin(self) -> str:
        """Start, and return the address inside the sandbox."""
        self.start()
        url, self._loop, self._over = self._ready.get(timeout=30)
        return url

    def run(self) -> None:
        """Serve."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        over = asyncio.Event()
        async with self._proxy.serving(self._listener) as url:
            self._ready.put((url, asyncio.get_running_loop(), over))
            await over.wait()

    def stop(self) -> None:
        """End it, and wait for it."""
        self._loop.call_soon_threadsafe(self._over.set)
        self.join(timeout=10)


async def launch(source: Source, target: str) -> Launched:
    """Start the process. Raises SandboxFailure where it cannot be isolated, and UsageError for what is missing."""
    variables = {name: os.environ[name] for name in source.permissions.secrets if name in os.environ}
    if missing := [name for name in source.permissions.secrets if name not in variables]:
        raise UsageError(f"{source.name} needs the variable {missing[0]}: set it, as was approved when it was added")
    python, shown = _interpreter()
    bound, copied = _libraries(source)
    files = [Path(one) for one in source.permissions.files]
    if closed := [one for one in files if not one.exists() or not _everybody_reads(one)]:
        raise UsageError(f"{source.name} reads {closed[0]}, which is missing, or closed to the user of sandboxes")
    async with AsyncExitStack() as failing:
        try:
            sandbox = await open_sandbox(ISOLATED_BOUNDS, readable=[*shown, *bound, *files], isolation=source.isolation)
        except SandboxFailure as error:
            raise SandboxFailure(
                f"{source.name} was not started: {error}; `wander hub add --unsandboxed` lets it run all the same"
            ) from error
        failing.push_async_callback(sandbox.close)
        for number, path in enumerate(copied):
            await sandbox.put(path, f"lib/{number}/{path.name}")
        places = [str(path.parent) for path in bound] + [f"lib/{number}" for number in range(len(copied))]
        for name, folder in (("libraries", source.libraries), ("code", source.code)):
            if folder.is_dir():
                await sandbox.put(folder, name)
                places.append(name)
        proxy = None
        if source.permissions.network:
            proxy = ProxyThread(source.permissions.network, await sandbox.listen())
            variables |= dict.fromkeys(PROXY_VARIABLES, proxy.begin())
            failing.callback(proxy.stop)
        words = [str(python), "-I", "-S", "-B", "-c", _BOOT, json.dumps([*dict.fromkeys(places)]), target]
        child = await sandbox.start(words, env=variables)
        failing.pop_all()
    return Launched(sandbox=sandbox, child=child, proxy=proxy)


def _interpreter() -> tuple[Path, list[Path]]:
    """A Python of this version that the user of sandboxes may run, and what has to be shown for it."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    for python in (own, *(Path(folder) / version for folder in ("/usr/local/bin", "/usr/bin"))):
        if python.exists() and _everybody_reads(python):
            prefix = Path(sys.base_prefix).resolve()
            return python, [] if python.is_relative_to("/usr") else [prefix]
    raise SandboxFailure(f"no {version} that every user of this machine may run: install one under /usr")


def _libraries(source: Source) -> tuple[list[Path], list[Path]]:
    """Where the package's requirements are: paths that are shown, and such as have to be copied."""
    paths = library_paths(source.requires)
    return [one for one in paths if _everybody_reads(one)], [one for one in paths if not _everybody_reads(one)]


def _everybody_reads(path: Path) -> bool:
    """Whether the user of sandboxes comes to a path: that of this process, but another one where this is root."""
    if os.geteuid() != 0:
        return os.access(path, os.R_OK)
    folders_open = all(place.stat().st_mode & stat.S_IXOTH for place in path.resolve().parents)
    return folders_open and bool(path.stat().st_mode & stat.S_IROTH)


def describe(target: str, settings: Iterator[tuple[str, object]]) -> str:
    """The target with settings after it, as the registry reads them. Raises UsageError for a comma in a value."""
    words = [target]
    for name, value in settings:
        text = value if isinstance(value, str) else json.dumps(value)
        if "," in text:
            raise UsageError(f"the setting {name} is {one_line(text, 60)!r}: a comma cannot be handed on")
        words.append(f"{name}={text}")
    return ",".join(words)
