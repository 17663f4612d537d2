"""What the sandbox's tests share: small bounds, one attempt in a fresh sandbox, and a look at the world outside."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from wanderlust.tools.sandbox import LocalSandbox, Result, SandboxBounds
from wanderlust.tools.sandbox.bubblewrap import find_python

SMALL = SandboxBounds(seconds=30, memory=128 << 20, processes=24, files=64, disk=16 << 20, entries=400, output=16 << 10)
"""Bounds that an attempt may exhaust without anybody noticing."""
T = TypeVar("T")


def within(
    body: Callable[[LocalSandbox], Awaitable[T]], *, bounds: SandboxBounds = SMALL, readable: tuple[Path, ...] = ()
) -> T:
    """What `body` makes of a fresh isolated sandbox."""

    async def play() -> T:
        sandbox = await LocalSandbox.open(bounds, readable=readable)
        try:
            return await body(sandbox)
        finally:
            await sandbox.close()

    return asyncio.run(play())


def shell(command: str, **options) -> Result:
    """A line of shell, tried in a fresh sandbox."""
    return within(lambda sandbox: sandbox.run(command), **options)


def code(source: str, *arguments: str, **options) -> Result:
    """Python, tried in a fresh sandbox."""
    argv = [str(find_python()), "-I", "-c", "import ctypes, os, socket, sys, time\n" + source, *arguments]
    return within(lambda sandbox: sandbox.run(argv), **options)


def refused(result: Result) -> bool:
    """Whether every `tried(...)` of the attempt was refused, and there was one."""
    lines = [line for line in result.stdout.decode().splitlines() if line.startswith("tried ")]
    return bool(lines) and all(line.endswith("refused") for line in lines)


TRIED = """
def tried(name, action):
    try:
        got = action()
    except (OSError, MemoryError) as error:
        print("tried", name, error, "refused", flush=True)
    else:
        bad = isinstance(got, int) and got == -1
        print("tried", name, got, "refused" if bad else "DONE", flush=True)
libc = ctypes.CDLL(None, use_errno=True)
"""
"""Put before an attempt: says of each action whether it was refused (an error, or -1 from the C library)."""


def token() -> str:
    """A word that occurs nowhere else."""
    return f"secret-{secrets.token_hex(12)}"


def bearing(word: str) -> list[int]:
    """Processes of this machine with `word` on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if word.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def everybody(folder: Path) -> Path:
    """The folder, reached and written by every user of this machine."""
    for place in (folder, *folder.parents):
        if place.stat().st_uid == os.geteuid() and str(place).startswith("/tmp/"):
            place.chmod(0o777)
    return folder
