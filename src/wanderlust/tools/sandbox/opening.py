"""The sandbox that this machine can give."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wanderlust.core.errors import SandboxFailure, UsageError
from wanderlust.core.text import one_line
from wanderlust.tools.sandbox.contract import Bounds, Sandbox
from wanderlust.tools.sandbox.local import LocalSandbox
from wanderlust.tools.sandbox.plain import PlainSandbox


async def open_sandbox(
    bounds: Bounds | None = None, *, readable: Sequence[Path] = (), isolation: str = "required"
) -> Sandbox:
    """An isolated sandbox, proved by a first command.

    Where there is none, `required` raises SandboxFailure with the reason, and `preferred` gives a plain one, which is
    not isolated and says so: by the warning NotIsolated when it is made, in its `isolated`, and in every `Result`.
    """
    if isolation not in ("required", "preferred"):
        raise UsageError(f"isolation is 'required' or 'preferred', not {isolation!r}")
    try:
        return await _proved(bounds, readable)
    except SandboxFailure as error:
        if isolation == "required":
            raise SandboxFailure(f"no isolation on this machine: {error}") from error
        return PlainSandbox(bounds, why=one_line(str(error)))


async def _proved(bounds: Bounds | None, readable: Sequence[Path]) -> LocalSandbox:
    """An isolated sandbox in which a command has run."""
    sandbox = await LocalSandbox.open(bounds, readable=readable)
    try:
        await sandbox.run(["true"])
    except SandboxFailure:
        await sandbox.close()
        raise
    return sandbox
