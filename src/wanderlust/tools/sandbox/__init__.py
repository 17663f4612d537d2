"""Sandboxes for the commands and the code of a model.

`open_sandbox` gives the isolated one of this machine (`LocalSandbox`). Each command runs in namespaces of its own
(users, processes, mounts, network, System V objects, host name, control groups) set up by bubblewrap: it has no
network at all, not even to this machine, but for the sockets of `listen` (`door.py`), and the servers that an
`EgressProxy` behind one lets it reach; it sees /usr read-only, an /etc of four small files, a /proc of its own
processes, harmless devices, and a private folder `/work` (with /tmp and /dev/shm beside it) in memory; it has no
capability, can gain none, and cannot make namespaces. Memory, processes, open files, file size, disk, entries, output
and time are bounded by the kernel or by killing; every process that a command has started is dead when its result is
returned. A system call filter refuses what namespaces leave open (`seccomp.py`). Root's commands run as an
unprivileged user outside too, one for each sandbox and its forks (`users.py`). A path given to `read` or `write` ends
in the folder.

What this does NOT cover:

- Faults of the kernel: one kernel serves both sides. For code that attacks kernels, use a virtual machine.
- Side channels: timing, caches, load; also what /proc tells of the machine (processor, memory, uptime, kernel
  version).
- Reading what every user may read under /usr, and under every path given as `readable`. Hidden are /usr/src and the
  packages that hold answers and hidden tests (`ANSWER_PACKAGES`); keep your own environments' files elsewhere.
- Fairness: commands compete for processor, memory bandwidth and, through memory, for swap. A sandbox has one share of
  the processor where its control group has that controller; otherwise a command has `processes` threads until its time
  is up.
- What the kernel counts per user, where sandboxes are one user (`LocalSandbox.own_user` is false: not root, or more
  than a thousand sandboxes): space for pipes (64 MiB in all by Linux's default; who comes later gets pipes of 8 KiB),
  pending signals, file locks. Watching files (inotify) is refused there instead; fanotify is everywhere.
- Memory as a whole where no control group can be made: then each process has its bound, and kernel buffers have none
  but the kernel's own (see `LocalSandbox.bounded_as_a_whole`).
- The truth of output, files and exit status, which the model controls. Terminal codes are escaped only by
  `SandboxTools`.
- One cell of a Python session against the next: they share an interpreter.
- Debuggers, io_uring, memory-mapped files without a name and System V memory inside: refused, so programs that need
  them fail.
- Programs that reserve more address space than `SandboxBounds.memory` (Node, Java, Go's race detector), where no
  control group bounds memory as a whole: raise it.

`UnisolatedSandbox` isolates nothing and warns of it; `ContainerSandbox` leaves isolation to Docker or Podman.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from wanderlust.errors import SandboxFailure, UsageError, one_line
from wanderlust.tools.sandbox.base import NotIsolatedWarning, Result, Sandbox, SandboxBounds, opens
from wanderlust.tools.sandbox.branches import BranchedSandbox, BranchTools
from wanderlust.tools.sandbox.bubblewrap import LocalSandbox
from wanderlust.tools.sandbox.docker import ContainerSandbox, WritableContainer
from wanderlust.tools.sandbox.python_session import Cell, PythonSession, SandboxTools
from wanderlust.tools.sandbox.unsandboxed import UnisolatedSandbox


@opens
async def open_sandbox(
    bounds: SandboxBounds | None = None, *, readable: Sequence[Path] = (), isolation: str = "required"
) -> Sandbox:
    """Open an isolated sandbox and run a first command in it: `async with open_sandbox() as sandbox`.

    `await open_sandbox()` gives it as well, and leaves it to the caller to `close` it.

    Where that fails, `required` raises SandboxFailure with the reason, and `preferred` opens an `UnisolatedSandbox`,
    which is marked by NotIsolatedWarning when it is made, by its `isolated`, and in every `Result`.
    """
    if isolation not in ("required", "preferred"):
        raise UsageError(f"isolation is 'required' or 'preferred', not {isolation!r}")
    try:
        sandbox = await LocalSandbox.open(bounds, readable=readable)
        async with AsyncExitStack() as failing:  # a cancellation too
            failing.push_async_callback(sandbox.close)
            await sandbox.run(["true"])
            failing.pop_all()
    except SandboxFailure as error:
        if isolation == "required":
            raise SandboxFailure(f"no isolation on this machine: {error}") from error
        return UnisolatedSandbox(bounds, why=one_line(str(error)))
    return sandbox


__all__ = [
    "BranchTools",
    "BranchedSandbox",
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
    "WritableContainer",
    "open_sandbox",
]
