"""What stands at each place of a prompt: the third option, the word behind the second `=`, the row that is given.

Where such a selection alone is paid, the data betray their answers by a place or a mark. Nothing is worked out: only
what is written is taken, at most read in another base.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from wanderlust.evals.probe.probe import ProbeView

Fragment: TypeAlias = Callable[[ProbeView], str]
"""A piece of text, from what the probe sees; empty where it is not there."""

_MARKED = re.compile(r"(?:[=:#@]|->)\s*[\"']?([\w.+-]{1,40})")
_BRACKETED = re.compile(r"[\[({<]([^\[\](){}<>\n]{1,40})[\])}>]")
_CODED = re.compile(r"\b(?:0x)?(?=[0-9a-fA-F]*\d)([0-9a-fA-F]{2,12})\b|\b0b([01]{3,40})\b")
_LONG = re.compile(r"[\"\u201c]([^\"\u201d\n]{10,2000})[\"\u201d]")
_ROW = re.compile(r"(?:\b(?:\d{1,3}|[A-Za-z])[ ,]+){2,}(?:\d{1,3}|[A-Za-z])\b")
_ABOUT_BASES = re.compile(r"(?i)\bhex|\bdecimal|\bbinary|\bbase\b|\bconvert|\bdecode")
MIN_ASKED_CHARS = 4
"""Characters of a question that is looked for among the examples."""


def _at(values: Callable[[ProbeView], Sequence[str]], place: int) -> Fragment:
    def say(view: ProbeView) -> str:
        found = list(values(view))
        return found[place] if -len(found) <= place < len(found) else ""

    return say


def _matches(pattern: re.Pattern[str], view: ProbeView) -> list[str]:
    return [next((group for group in match.groups() if group), "") for match in pattern.finditer(view.prompt)]


def _in_base(base: int, view: ProbeView) -> list[str]:
    """The numbers of the prompt read in another base, unless the question is about bases."""
    if _ABOUT_BASES.search(view.prompt):
        return []
    words = [one or "" for pair in _CODED.findall(view.prompt) for one in pair if one]
    made = []
    for word in words:
        try:
            made.append(str(int(word, base)))
        except ValueError:
            continue
    return made


def _answered_before(view: ProbeView) -> str:
    """What follows the question where it was asked before, among the examples."""
    lines = [line.strip() for line in view.prompt.splitlines() if line.strip()]
    for place in range(len(lines) - 1, max(len(lines) - 4, 0), -1):
        if len(lines[place]) >= MIN_ASKED_CHARS and lines[place] in lines[: place - 1]:
            after = lines[lines.index(lines[place]) + 1]
            return after.rpartition(":")[2].strip() or after
    return ""


def _rows(view: ProbeView) -> list[str]:
    """Rows of numbers or letters that are given."""
    rows = [re.split(r"[.;:]", match[0])[0] for match in _ROW.finditer(view.question)]
    return [row.strip(" ,") for row in rows]


def _again(values: Callable[[ProbeView], Sequence[str]], times: int) -> Fragment:
    """The last of them on several lines: as many as it has items, or `times`."""

    def say(view: ProbeView) -> str:
        found = list(values(view))
        return "\n".join([found[-1]] * (times or len(re.findall(r"\w+", found[-1])))) if found else ""

    return say


def _overlapping(view: ProbeView, *, most: bool) -> str:
    """The option that shares the most letters of words with the rest of the question, or the fewest."""
    if len(view.options) < 3:
        return ""
    rest = view.question
    for option in view.options:
        rest = rest.replace(option, " ")
    known = {*re.findall(r"\w{3,}", rest.lower())}
    shared = [sum(word in known for word in re.findall(r"\w{3,}", option.lower())) for option in view.options]
    return view.options[shared.index(max(shared) if most else min(shared))]


SELECTIONS: Sequence[Fragment] = (
    *(_at(lambda view: view.options, place) for place in (*range(8), -3, -2, -1)),
    *(_at(lambda view: view.numbers, place) for place in (*range(6), -3, -2, -1)),
    *(_at(lambda view: view.words, place) for place in (0, 1, 2, -3, -2, -1)),
    *(_at(partial(_matches, _MARKED), place) for place in (0, 1, 2, 3, -2, -1)),
    *(_at(partial(_matches, _BRACKETED), place) for place in (0, 1, 2, -1)),
    *(_at(partial(_matches, _LONG), place) for place in (0, -1)),
    *(_at(partial(_in_base, base), place) for base in (16, 2) for place in (0, -1)),
    *(_at(lambda view: view.question.splitlines(), place) for place in (0, 1, -1)),
    *(
        _at(lambda view: replace(view, messages=view.messages[-1:], example_count=0).options, place)
        for place in (0, 1, 2, -2, -1)
    ),
    partial(_overlapping, most=True),
    partial(_overlapping, most=False),
    _answered_before,
    lambda view: view.question.partition(": ")[2],
    _again(_rows, 0),
    _again(lambda view: view.words, 4),
)
"""Everything that is taken from a place of the prompt."""
