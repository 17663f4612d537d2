"""Time zones, asked of an MCP server in a process of its own (without daylight saving, so answers hold all year)."""

from wanderlust.core.messages import user
from wanderlust.core.types import Rollout, Task, Trajectory
from wanderlust.environments.shapes import ToolEnvironment
from wanderlust.rubrics.rubric import WeightedRubric
from wanderlust.tools.mcp import McpServer


def right(rollout: Rollout, trajectory: Trajectory) -> float:
    """1 when the last message names the time."""
    return float(rollout.task.answer in trajectory.messages[-1].content)


ASKED = {f"It is {h:02}:00 in Tokyo. What time is it in Kolkata (HH:MM)?": f"{(h - 4) % 24:02}:30" for h in range(24)}
TASKS = [Task(id=f"clock-{n}", prompt=(user(ask),), answer=at) for n, (ask, at) in enumerate(ASKED.items())]
clock = ToolEnvironment(TASKS, tools=[McpServer.python("mcp_server_time")], rubric=WeightedRubric(right))
