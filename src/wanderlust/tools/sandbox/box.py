"""The sandbox of an agent's program: what it may use and read, and the servers that it may reach."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from wanderlust.tools.sandbox import open_sandbox
from wanderlust.tools.sandbox.base import MEBI, Sandbox, SandboxBounds
from wanderlust.tools.sandbox.egress import EgressProxy

AGENT_BOUNDS = SandboxBounds(
    seconds=120.0, memory=4096 * MEBI, processes=256, files=1024, disk=1024 * MEBI, entries=100_000
)
"""Bounds that command-line coding agents of 2026 fit into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """How the sandbox of an agent's program is made, one for each episode.

    Example:
        >>> Box(readable=(Path("/opt/agents/node_modules"),), egress=("pypi.org:443",)).isolation
        'required'
    """

    bounds: SandboxBounds = AGENT_BOUNDS
    """`seconds` is for commands of the environment; the program's own time is that of `Program`."""
    readable: tuple[Path, ...] = ()
    """Files and folders besides /usr that the program may read, each at its own place: an npm prefix, a venv."""
    egress: tuple[str, ...] = ()
    """Servers as `host:port` that the program reaches through a proxy (HTTPS_PROXY); by default none."""
    isolation: str = "required"
    """As of `open_sandbox`: `preferred` goes on without isolation, with a NotIsolatedWarning."""

    def __post_init__(self) -> None:
        EgressProxy(self.egress)  # raises UsageError here, and not in every episode

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Sandbox]:
        """A sandbox for the time of the block. Raises SandboxFailure where there can be none."""
        async with open_sandbox(self.bounds, readable=self.readable, isolation=self.isolation) as sandbox:
            yield sandbox

    @asynccontextmanager
    async def proxied(self, sandbox: Sandbox) -> AsyncIterator[tuple[EgressProxy | None, Mapping[str, str]]]:
        """The proxy for `egress`, and the variables by which programs find it; neither where nothing is allowed."""
        if not self.egress:
            yield None, {}
            return
        proxy = EgressProxy(self.egress)
        async with proxy.serving(await sandbox.listen()) as url:
            names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
            direct = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
            yield proxy, dict.fromkeys(names, url) | direct
