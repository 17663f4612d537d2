"""Search by fuzzy names and by regular expressions, in bounded time for any pattern and text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from math import factorial

from wanderlust.tools.function import ToolError

MAX_PATTERN_CHARS = 200
MAX_REGEX_STEPS = 300_000_000
"""Steps of the worst case of all matches of one search: some seconds."""
MIN_NAME_SIMILARITY = 0.8
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|.", re.DOTALL)


def close_names(query: str, names: Iterable[str]) -> list[str]:
    """Names much like the query, or with all of its words, in any case; the likeliest first."""
    sought = query.lower().strip()
    words = set(sought.split())
    scored = []
    for name in names:
        lowered = name.lower()
        whole = bool(words) and words <= set(lowered.split())
        score = max(SequenceMatcher(None, sought, lowered, autojunk=False).ratio(), 0.9 * whole)
        if score >= MIN_NAME_SIMILARITY:
            scored.append((-score, name))
    return [name for _, name in sorted(scored)]


def safe_regex_search(pattern: str) -> Callable[[str], bool]:
    """Whether a text has a match of a regular expression, in any case.

    Raises ToolError for what is none, for groups that repeat and references back, and, while searching, when the
    worst case of a pattern would take too long.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(f"a regular expression may have {MAX_PATTERN_CHARS} characters")
    repeats, doubles = _count_repetitions(pattern)
    try:
        compiled = re.compile(pattern, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ToolError(f"not a regular expression: {error}") from error
    spent = 0

    def search(text: str) -> bool:
        nonlocal spent
        spent += (len(text) ** (repeats + 1) << doubles) // factorial(repeats + 1)
        if spent > MAX_REGEX_STEPS:
            raise ToolError("this regular expression takes too long here: use fewer of * + ? and |")
        return compiled.search(text) is not None

    return search


def _count_repetitions(pattern: str) -> tuple[int, int]:
    """Count the repetitions, and the choices that may each double the work."""
    repeats = doubles = depth = 0
    before = ""
    for token in _TOKEN.findall(pattern):
        repeating = token in ("*", "+") or (token.startswith("{") and len(token) > 1)
        if (repeating and before == ")") or re.fullmatch(r"\\[1-9]", token) or token in ("(?P=", "(?("):
            raise ToolError("a group must not repeat, and nothing refer back to one")
        repeats += repeating
        doubles += (token == "?" and before not in ("(", "*", "+", "?")) or (token == "|" and depth > 0)
        depth += (token == "(") - (token == ")")
        before = token
    if "(?P=" in pattern or "(?(" in pattern:
        raise ToolError("a group must not repeat, and nothing refer back to one")
    return repeats, min(doubles, 64)
