"""Sandboxes: places where a model's commands and code run, and what they can reach.

`open_sandbox` gives the isolated one of this machine (`LocalSandbox`). Each command runs in namespaces of its own
(users, processes, mounts, network, System V objects, host name, control groups) set up by bubblewrap: it has no
network at all, not even to this machine; it sees /usr read-only, an /etc of four small files, a /proc of its own
processes, harmless devices, and a private folder `/work` (with /tmp and /dev/shm beside it) in memory; it has no
capability, can gain none, and cannot make namespaces. Memory, processes, open files, file size, disk, entries, output
and time are bounded by the kernel or by killing; whatever a command has started is dead when its result is there. A
system call filter refuses what namespaces leave open (`calls.py`). Root's commands run as a stranger outside too. A
path given to `read` or `write` ends in the folder.

What this does NOT cover:

- Faults of the kernel: one kernel serves both sides. For code that attacks kernels, use a virtual machine.
- Side channels: timing, caches, load; also what /proc tells of the machine (processor, memory, uptime, kernel
  version).
- Reading what everybody may read under /usr, and under every path given as `wait_readable`.
- Fairness: commands compete for processor, memory bandwidth and, through memory, for swap. Nothing bounds the
  processor share; a command has `processes` threads until its time is up.
- Memory as a whole where no control group can be made: then each process has its bound, and kernel buffers have none
  but the kernel's own. `LocalSandbox.bounded_as_a_whole` tells.
- What a command says: output, files and exit status are the model's word. Terminal codes are escaped only by
  `SandboxTools`.
- One cell of a Python session against the next: they share an interpreter.
- Debuggers, io_uring, memory-mapped files without a name and System V memory inside: refused, so programs that need
  them fail.
- Programs that reserve more address space than `SandboxBounds.memory` (Node, Java, Go's race detector): raise that bound.

`UnisolatedSandbox` isolates nothing and says so loudly; `ContainerSandbox` leaves the wall to Docker or Podman.

The sandbox that this machine can give.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wanderlust.errors import SandboxFailure, UsageError, one_line
from wanderlust.tools.sandbox.base import NotIsolatedWarning, Result, Sandbox, SandboxBounds
from wanderlust.tools.sandbox.bubblewrap import LocalSandbox
from wanderlust.tools.sandbox.docker import ContainerSandbox
from wanderlust.tools.sandbox.python_session import Cell, PythonSession
from wanderlust.tools.sandbox.sandbox_tools import SandboxTools
from wanderlust.tools.sandbox.unsandboxed import UnisolatedSandbox


async def open_sandbox(
    bounds: SandboxBounds | None = None, *, readable: Sequence[Path] = (), isolation: str = "required"
) -> Sandbox:
    """An isolated sandbox, proved by a first command.

    Where there is none, `required` raises SandboxFailure with the reason, and `preferred` gives a plain one, which is
    not isolated and says so: by the warning NotIsolated when it is made, in its `isolated`, and in every `Result`.
    """
    if isolation not in ("required", "preferred"):
        raise UsageError(f"isolation is 'required' or 'preferred', not {isolation!r}")
    try:
        return await _open_tested(bounds, readable)
    except SandboxFailure as error:
        if isolation == "required":
            raise SandboxFailure(f"no isolation on this machine: {error}") from error
        return UnisolatedSandbox(bounds, why=one_line(str(error)))


async def _open_tested(bounds: SandboxBounds | None, readable: Sequence[Path]) -> LocalSandbox:
    """An isolated sandbox in which a command has run."""
    sandbox = await LocalSandbox.open(bounds, readable=readable)
    try:
        await sandbox.run(["true"])
    except SandboxFailure:
        await sandbox.close()
        raise
    return sandbox


__all__ = [
    "Cell",
    "ContainerSandbox",
    "LocalSandbox",
    "NotIsolatedWarning",
    "PythonSession",
    "Result",
    "Sandbox",
    "SandboxBounds",
    "SandboxTools",
    "UnisolatedSandbox",
    "open_sandbox",
]
