"""What the commands say: results on stdout, everything else on stderr, one line each."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from wanderlust.core.text import visible

WIDTH = 110
"""Columns of a table that goes into a file or a pipe."""


def result(table: Table | None = None, *lines: str) -> None:
    """A table and lines for people; brackets in them are just brackets."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, markup=False)
    if table is not None:
        console.print(table)
    for line in lines:
        console.print(line, soft_wrap=True)


def result_json(body: Mapping[str, Any]) -> None:
    """One JSON object, and nothing else."""
    sys.stdout.write(json.dumps(body, indent=2, ensure_ascii=False, default=str) + "\n")


def note(line: str) -> None:
    """A line beside the results."""
    sys.stderr.write(f"wander: {' '.join(visible(line).split())}\n")
    sys.stderr.flush()


def command(*words: str | Path) -> str:
    """A command line that can be pasted into a shell."""
    return shlex.join(["wander", *map(str, words)])


def near(name: str, known: list[str], *, kind: str) -> str:
    """The end of an error line: the valid names nearest to `name`, or all when they are few, or that there are none."""
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    if not known:
        return f"there are no {kind} here"
    return f"{kind}: {', '.join(known[:8])}" + (", ..." if len(known) > 8 else "")
