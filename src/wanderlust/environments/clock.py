"""Time zones, asked of an MCP server in a process of its own (without daylight saving, so answers hold all year)."""

from wanderlust.core.messages import user
from wanderlust.core.types import Task
from wanderlust.environments.calculator import right
from wanderlust.environments.shapes import ToolEnvironment
from wanderlust.rubrics.rubric import Rubric
from wanderlust.tools.mcp import McpServer


class Clock(ToolEnvironment):
    """What time it is elsewhere, asked of an MCP server: 24 questions."""

    tools = (McpServer.python("mcp_server_time"),)
    rubric = Rubric(right)

    def tasks(self, split: str = "train") -> list[Task]:
        """One for every hour."""
        ask = "It is {:02}:00 in Tokyo. What time is it in Kolkata? End with HH:MM alone."
        return [Task(id=f"{h}", prompt=(user(ask.format(h)),), answer=f"{(h - 4) % 24:02}:30") for h in range(24)]
