"""What both trainers agree on: the two tasks, the sizes, and steps that are taken when they are asked for.

`python -m benchmarks.peers.NAME TASK MODEL STEPS CORES` trains as many steps; each line on its input lets one begin,
and each step is answered with one line of JSON. Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from random import Random
from typing import IO

GROUPS, SIBLINGS = 8, 8
TASKS = 512
LR = {"count": 1e-3, "guess": 1e-5}
"""To learn something at once; and small enough that the guesser goes on guessing, whoever trains it."""
TOKENS = {"count": 64, "guess": 320}
"""Of one answer, ours; of all answers and what is said between them, theirs."""
HIGHEST, GUESSES = 16, 5
SAMPLED: list[int] = []
"""Tokens that were sampled since the last step."""
ASK = "Guess the secret number between 1 and 16."


def count_from(number: int) -> str:
    """What is asked to count."""
    return f"Count up from {number % 256}: "


def digits(text: str) -> float:
    """The reward of counting: the share of digits."""
    return sum(letter.isdigit() for letter in text) / max(1, len(text))


def guess(n: int):  # what it returns would be written into the prompt
    """
    Guess the number.

    Args:
        n: the guess
    """
    raise NotImplementedError("both sides have a way to call it, and use only its schema")


def hint(secret: int, n: int) -> str:
    """What a guess is answered with."""
    return "correct" if n == secret else "higher" if n < secret else "lower"


def called(n: int) -> str:
    """A guess, as the model writes it."""
    return '<tool_call>\n{"name": "guess", "arguments": {"n": %d}}\n</tool_call>' % n  # noqa: UP031


def won(guesses: int, last: str) -> float:
    """The reward of guessing."""
    return 1.0 - 0.1 * (guesses - 1) if last == "correct" else 0.0


def careless(rng: Random) -> list[tuple[str, str]]:
    """Guesses of a player who does not listen, with their hints: for the form, so that there is something to learn."""
    secret, out = rng.randint(1, HIGHEST), list[tuple[str, str]]()
    while len(out) < GUESSES and not (out and out[-1][1] == "correct"):
        n = rng.randint(1, HIGHEST)
        out.append((called(n), hint(secret, n)))
    return out


class Gate:
    """Lets one step begin for each line of input, and says what it cost."""

    def __init__(self) -> None:
        self._told: IO[str] = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # trainers print to where the figures go
        self._began = (0.0, 0.0)

    def open(self) -> bool:
        """Wait for leave to begin; False when there is none any more."""
        there = bool(sys.stdin.readline())
        self._began = (_spent(), time.perf_counter())
        return there

    def passed(self, *, reward: float, sampled: int) -> None:
        """A step has ended."""
        cost = {"processor": _spent() - self._began[0], "wall": time.perf_counter() - self._began[1]}
        print(json.dumps({**cost, "reward": reward, "sampled": sampled}), file=self._told, flush=True)


def _spent() -> float:
    """Processor seconds of this process, threads included."""
    return time.process_time()


def arguments() -> tuple[str, str, int, int]:
    """Task, model folder, steps, cores."""
    task, folder, steps, cores = sys.argv[1:]
    return task, folder, int(steps), int(cores)


def mean(values: Sequence[float]) -> float:
    """Their mean; 0 of none."""
    return sum(values) / max(len(values), 1)
