"""A tool environment that a tiny model can be half good at."""

from wanderlust.environments.calculator import Calculator
from wanderlust.types import Task, user


class Sums(Calculator):
    """Sums of two digits, with the calculator's tool."""

    def tasks(self, split: str = "train") -> list[Task]:
        pairs = [(a, b) for a in range(1, 5) for b in range(1, 5)]
        return [Task(id=f"{a}+{b}", prompt=(user(f"{a} + {b}"),), answer=str(a + b)) for a, b in pairs]
