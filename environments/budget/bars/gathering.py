"""A task in which every further token pays, and each less than the one before, so that effort is a choice.

Six letters are shown. Whoever repeats the first m of them earns 1 - 0.6^m of what all six together earn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from random import Random

from benchmarks.lessons import LETTERS

from wanderlust.environment import SingleTurnEnvironment
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Message, Policy, Task, user

SHOWN, KEPT_EACH = 6, 0.6
EVAL_TASKS = 300
"""Tasks of the `eval` split; the `train` split is endless."""


def gathered(completion: str, answer: Sequence[str]) -> float:
    """What the letters are worth that stand in the right order from the first on, of 1 for all."""
    said = completion.split()
    right = next((n for n, (one, letter) in enumerate(zip(said, answer, strict=False)) if one != letter), len(said))
    return (1 - KEPT_EACH ** min(right, SHOWN)) / (1 - KEPT_EACH**SHOWN)


def some(messages: Sequence[Message], rng: Random) -> str:
    """The first letters, any number of them from one on."""
    letters = messages[-1].content.split()
    return " ".join(letters[: rng.randint(1, len(letters))])


class Gathering(SingleTurnEnvironment):
    """`D A K C P B`: repeat as many as you like, in their order."""

    def __init__(self) -> None:
        super().__init__(rubric=Rubric(gathered))
        self.players: Mapping[str, Callable[[], Policy]] = {"teacher": lambda: Scripted(some)}

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """Tasks by number, each drawn by its own key."""
        for number in range(EVAL_TASKS) if split == "eval" else count():
            letters = Random(f"gathering/{split}/{number}").sample(LETTERS, SHOWN)
            yield Task(id=f"{split}-{number}", prompt=(user(" ".join(letters)),), answer=letters)
