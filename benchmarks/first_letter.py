"""The first letter of a word, after three examples: what a small pretrained model knows better than it says."""

from __future__ import annotations

from random import Random
from typing import ClassVar

from wanderlust.environment import SingleTurnEnvironment
from wanderlust.environments.wordle import SECRET_WORDS
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Message, Task, assistant, user

QUESTION = "First letter of {}:"
SHOWN = ("cow", "cake", "drill")
EXAMPLES: tuple[Message, ...] = tuple(
    message for word in SHOWN for message in (user(QUESTION.format(word)), assistant(word[0].upper()))
)
TRAIN, EVAL = 400, 100
"""Words; none is in both."""


def read(completion: str) -> str:
    """The answer without case and white space."""
    return completion.strip().lower()


def right(completion: str, answer: str) -> float:
    """1 for the letter and nothing else."""
    return float(read(completion) == answer)


def task(word: str) -> Task:
    """A word's."""
    return Task(id=word, prompt=(*EXAMPLES, user(QUESTION.format(word))), answer=word[0])


class FirstLetter(SingleTurnEnvironment):
    """Words of five letters; without `exam` the `eval` split is empty, so that a run spends no time on it."""

    rubric: ClassVar[Rubric] = Rubric(right)
    extract = staticmethod(read)

    def __init__(self, exam: bool = True) -> None:
        words = list(SECRET_WORDS)
        Random("first letter").shuffle(words)
        tasks = [task(word) for word in words[: EVAL + TRAIN]]
        super().__init__({"eval": tasks[:EVAL] if exam else [], "train": tasks[EVAL:]})
