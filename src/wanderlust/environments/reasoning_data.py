"""Procedural tasks of `reasoning-gym` (https://github.com/open-thought/reasoning-gym, 0.1.25) and its scorers.

Some scorers evaluate a model's answer as Python or with sympy. `is_harmless` lets only literals and short formulas
through. Not covered: a formula that sympy takes long over stops everything else for that time.
"""

from __future__ import annotations

import ast
import re
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import reasoning_gym
from reasoning_gym.factory import DATASETS

from wanderlust.errors import RubricFailure, UsageError, boundary

EVAL_CALLING_DATASETS = {"string_insertion", "spiral_matrix", "binary_matrix", "n_queens"}
"""Data sets whose scorer calls `eval` on an answer."""
SYMPY_PARSING_DATASETS = {
    "countdown",
    "puzzle24",
    "polynomial_multiplication",
    "simple_integration",
    "intermediate_integration",
}
"""Data sets whose scorer parses an answer with sympy, which evaluates it."""
ALLOWED_WORDS = {
    *"abcdefghijklmnopqrstuvwxyz",
    "C",
    "E",
    "pi",
    "sin",
    "cos",
    "tan",
    "exp",
    "log",
    "ln",
    "sqrt",
    "asin",
    "acos",
    "atan",
}
ARITHMETIC_DATASETS = {"countdown", "puzzle24"}
"""Those of them whose answers have only numbers and the four basic operations."""
POWER_TOWER_PATTERN = re.compile(
    r"(?:\*\*|\^)(?:[\s(+-]*\d{3}|[\s(+-]*[\w./]+[\s)]*(?:\*\*|\^)|[\s+-]*\([^)]*(?:\*\*|\^))"
)
"""A power of a power, or one with an exponent over 99."""


def dataset_names() -> list[str]:
    """All data sets."""
    return sorted(DATASETS)


@lru_cache(maxsize=128)
def make_dataset(name: str, *, size: int, seed: int, config: tuple[tuple[str, Any], ...]) -> Any:
    """A data set; equal arguments, equal tasks. Raises UsageError for an unknown name or a wrong setting."""
    if name not in DATASETS:
        alike = get_close_matches(name, dataset_names(), n=4, cutoff=0.5) or dataset_names()
        raise UsageError(f"reasoning-gym has no data set {name!r}; there are {', '.join(alike)}")
    try:
        return reasoning_gym.create_dataset(name, size=size, seed=seed, **dict(config))
    except (TypeError, ValueError, AssertionError) as error:
        raise UsageError(f"reasoning-gym cannot make {name!r} of {dict(config)}: {error}") from error


def score_answer(name: str, data: Any, answer: str | None, *, index: int) -> float:
    """The score of the data set's own scorer, from 0 to 1; 0 where it raises."""
    entry = data[index]
    if answer is None or not (answer == entry["answer"] or is_harmless(name, answer)):
        return 0.0
    try:
        with boundary(RubricFailure):
            value = float(data.score_answer(answer=answer, entry=entry))
    except RubricFailure:
        return 0.0
    return value if 0.0 <= value <= 1.0 else 0.0


def is_harmless(name: str, answer: str) -> bool:
    """Whether an answer may be given to the scorer of a data set."""
    if name in EVAL_CALLING_DATASETS:
        try:
            ast.literal_eval(answer)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return False
        return True
    if name in ARITHMETIC_DATASETS:
        return bool(re.fullmatch(r"[0-9+\-*/().=\s]{1,300}", answer)) and not re.search(r"\*\s*\*|\d{12}", answer)
    if name in SYMPY_PARSING_DATASETS:
        plain = (
            re.fullmatch(r"[0-9A-Za-z+\-*/^().,\s]{1,300}", answer)
            and {*re.findall("[A-Za-z]+", answer)} <= ALLOWED_WORDS
        )
        nested = POWER_TOWER_PATTERN.search(answer) or len(re.findall(r"\)\s*(?:\*\*|\^)", answer)) > 2
        return bool(plain) and not nested and not re.search(r"\.\s*[A-Za-z]|\d{12}", answer)
    return True
