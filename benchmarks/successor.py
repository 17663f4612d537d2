"""Which number comes next, after three examples: what a small pretrained model knows better than it says."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from wanderlust.core.messages import Message, assistant, user
from wanderlust.core.types import Task
from wanderlust.environments.shapes import SingleTurnEnvironment
from wanderlust.rubrics.references import answer_in
from wanderlust.rubrics.rubric import Rubric

QUESTION = "Which number comes right after {}?"
EXAMPLES: tuple[Message, ...] = tuple(
    message for n in (16, 40, 73) for message in (user(QUESTION.format(n)), assistant(f"{n + 1}"))
)
LOW, HIGH = 10, 1000
EVAL = 100
"""Numbers that are never trained on."""


def right(completion: str, answer: str) -> float:
    """1 when the number that the answer gives is the next one."""
    return float(answer_in(completion) == answer)


def task(number: int) -> Task:
    """What comes after a number."""
    prompt = (*EXAMPLES, user(QUESTION.format(number)))
    return Task(id=f"after-{number}", prompt=prompt, answer=f"{number + 1}")


class Successor(SingleTurnEnvironment):
    """Numbers of two and three digits."""

    rubric: ClassVar[Rubric] = Rubric(right)

    def __init__(self) -> None:
        numbers = [n for n in range(LOW, HIGH) if n not in (16, 40, 73)]
        Random("successor").shuffle(numbers)
        super().__init__({"eval": [task(n) for n in numbers[:EVAL]], "train": [task(n) for n in numbers[EVAL:]]})
