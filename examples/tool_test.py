"""Call the tools that are named, all in one message: `tool-test` of classic `verifiers`, written anew."""

from collections.abc import Sequence
from random import Random

from wanderlust.environment import Limits
from wanderlust.rubrics.rubric import Rubric
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Task, Trajectory, user


async def tool_A(x: int) -> int:
    """Add 1 to a whole number."""
    return x + 1


async def tool_B(x: str) -> str:
    """Put a 2 behind a text."""
    return f"{x}2"


async def tool_C(x: float) -> float:
    """Add 3 to a number."""
    return x + 3.0


async def tool_D(x: bool) -> bool:
    """Say the opposite."""
    return not x


def called(trajectory: Trajectory, answer: Sequence[str]) -> float:
    """1 when the last answer calls each tool as often as it was named, and no other."""
    calls = trajectory.turns[-1].action.tool_calls if trajectory.turns else ()
    return float(sorted(call.name for call in calls) == sorted(answer))


class ToolTest(ToolEnvironment):
    """Call the tools that are named, all in one message; the calls are not answered, as the episode is over."""

    tools, rubric, limits = (tool_A, tool_B, tool_C, tool_D), Rubric(called), Limits(max_turns=1)

    def tasks(self, split: str = "train") -> list[Task]:
        """A thousand draws of one to four tools; a hundred for `eval`."""
        draws = [Random(f"tool-test/{split}/{n}") for n in range(100 if split == "eval" else 1000)]
        named = [rng.sample([f"tool_{letter}" for letter in "ABCD"], rng.randint(1, 4)) for rng in draws]
        ask = "Call these tools, each with arguments of your choice: {}"
        return [Task(id=f"{split}-{n}", prompt=(user(ask.format(one)),), answer=one) for n, one in enumerate(named)]
