"""What the commands say: results on stdout, everything else on stderr, one line each."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from wanderlust.errors import printable

OUTPUT_WIDTH = 110
"""Columns of a table that goes into a file or a pipe."""


def print_result(table: Table | None = None, *lines: str) -> None:
    """A table and lines for people; brackets in them are just brackets."""
    console = Console(width=None if sys.stdout.isatty() else OUTPUT_WIDTH, highlight=False, markup=False)
    if table is not None:
        console.print(table)
    for line in lines:
        console.print(line, soft_wrap=True)


def print_json(body: Mapping[str, Any]) -> None:
    """One JSON object, and nothing else."""
    sys.stdout.write(json.dumps(body, indent=2, ensure_ascii=False, default=str) + "\n")


def print_note(line: str) -> None:
    """A line beside the results."""
    sys.stderr.write(f"wander: {' '.join(printable(line).split())}\n")
    sys.stderr.flush()
