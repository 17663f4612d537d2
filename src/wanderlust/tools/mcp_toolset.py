"""MCP servers as toolsets: a process on this machine, or an address.

Of the Model Context Protocol (https://modelcontextprotocol.io) only the tools are used, and of their answers only the
text: pictures, sounds and other data are named, not shown. A server started here is a process with this user's rights
and without a sandbox; it gets the environment variables that the SDK considers harmless, and `env`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from yarl import URL

from wanderlust._lazy import needs_extra
from wanderlust.environment import Episode
from wanderlust.errors import UsageError, one_line
from wanderlust.types import Tool

if TYPE_CHECKING:
    from wanderlust.tools.mcp_client import McpConnection


class McpServer:
    """The tools of a server, which is connected while they are in use.

    `McpServer("uvx", "some-server")` starts a command, `McpServer.python("some_server")` a module of this Python,
    `McpServer("http://127.0.0.1:8000/mcp")` calls an address. All episodes that overlap share one connection;
    with `shared=False` each has one of its own, and so a process of its own.
    """

    def __init__(
        self,
        *command: str,
        token: str = "",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        only: Collection[str] = (),
        prefix: str = "",
        shared: bool = True,
    ):
        """`token` is for an address, `env` and `cwd` for a command.

        `only` names the tools that are used (empty: all); `prefix` goes before their names, for servers that share
        names.
        """
        if not command:
            raise UsageError("an MCP server is a command, or one address that begins with http:// or https://")
        self.command, self.only, self.prefix, self.shared = command, frozenset(only), prefix, shared
        self.token, self.env, self.cwd = token, dict(env or {}), cwd
        self._connection: McpConnection | None = None

    @classmethod
    def python(cls, module: str, *arguments: str, **options: Any) -> Self:
        """A server that is a module of the running Python."""
        return cls(sys.executable, "-m", module, *arguments, **options)

    def __str__(self) -> str:
        """The command's first words, or the address without its query: the rest may be secret."""
        if self.is_address:
            return str(URL(self.command[0]).with_user(None).with_query(None))
        return one_line(" ".join(self.command[:3]), 120)

    @property
    def is_address(self) -> bool:
        """Whether the server is called at an address; otherwise it is started."""
        return self.command[0].startswith(("http://", "https://"))

    @asynccontextmanager
    async def open(self, episode: Episode | None = None) -> AsyncIterator[list[Tool]]:
        """Connect, and yield the server's tools.

        Raises ToolFailure of one line when it does not start or is no MCP server, UsageError without the extra `mcp`.
        """
        with needs_extra("mcp"):
            from wanderlust.tools.mcp_client import McpConnection
        connection = self._connection if self.shared else None
        if connection is None or connection.broken:
            connection = McpConnection(self)
        if self.shared:
            self._connection = connection
            connection.users += 1
        try:
            yield [*await connection.tools()]
        finally:
            connection.users -= 1
            if connection.users <= 0:
                if self._connection is connection:
                    self._connection = None
                await connection.close()
