"""Two small environments with tools: arithmetic with a calculator, and time zones with an MCP server in a process of
its own (without daylight saving, so that answers hold all year).
"""

from random import Random

from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.tools.mcp_toolset import McpServer
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Policy, Task, user


def add(numbers: list[int]) -> int:
    """The sum of whole numbers.

    Args:
        numbers: What to add up.
    """
    return sum(numbers)


def right(completion: str, answer: str) -> float:
    """1 when the last word of the last message is the answer."""
    return float(completion.split()[-1:] == [answer])


class Calculator(ToolEnvironment):
    """Sums of seven numbers, with a tool that adds."""

    tools = (add,)
    rubric = Rubric(right)

    def oracle(self, task: Task) -> Policy:
        """Knows the sum."""
        return Scripted([task.answer])

    def tasks(self, split: str = "train") -> list[Task]:
        """A hundred sums of each split."""
        sums = [Random(f"calculator/{split}/{n}").sample(range(1000), 7) for n in range(100)]
        texts = [f"What is {' + '.join(map(str, one))}? Use the tool, and end with the number alone." for one in sums]
        return [
            Task(id=f"{split}-{n}", prompt=(user(text),), answer=str(sum(one)))
            for n, (text, one) in enumerate(zip(texts, sums, strict=True))
        ]


class Clock(ToolEnvironment):
    """24 questions for the time in another zone, answered with an MCP server."""

    tools = (McpServer.python("mcp_server_time"),)
    rubric = Rubric(right)

    def tasks(self, split: str = "train") -> list[Task]:
        """One for every hour, every third of them for `eval`."""
        hours = [hour for hour in range(24) if (hour % 3 == 2) == (split == "eval")]
        ask = "It is {:02}:00 in Tokyo. What time is it in Kolkata? End with HH:MM alone."
        return [Task(id=f"{h}", prompt=(user(ask.format(h)),), answer=f"{(h - 4) % 24:02}:30") for h in hours]
