"""What a model is told of the tools that it may call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from wanderlust.errors import ToolFailure


class Tool(Protocol):
    """Something an agent can call."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        ...

    async def __call__(self, **arguments: Any) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTool:
    """What a model is told of a tool. Another program, or another process, may run it.

    Example:
        >>> DeclaredTool(name="look", description="Look around.").name
        'look'
    """

    name: str
    description: str = ""
    schema: dict[str, Any] = field(default_factory=dict)
    """JSON schema of the arguments."""

    async def __call__(self, **arguments: Any) -> str:
        """Raise ToolFailure: the tool does not run here."""
        raise ToolFailure(f"the tool {self.name!r} is run by the program that declared it, not here")


def declare_tools(tools: Sequence[Tool]) -> tuple[DeclaredTool, ...]:
    """What a model is told of the tools."""
    return tuple(
        tool
        if isinstance(tool, DeclaredTool)
        else DeclaredTool(name=tool.name, description=tool.description or "", schema=tool.schema)
        for tool in tools
    )
