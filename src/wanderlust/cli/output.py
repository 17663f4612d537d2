"""Output of the commands: results on stdout, notes and errors on stderr, one line each."""

from __future__ import annotations

import io
import json as json_format
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from typing import Any, TextIO

from wanderlust.errors import one_line, printable
from wanderlust.runner.terminal import Console, Table

OUTPUT_WIDTH = 110
"""Columns of a table that goes into a file or a pipe."""
MAX_NOTE_CHARS = 10_000


_json_stream: ContextVar[TextIO | None] = ContextVar("json_stream", default=None)
"""The program's stdout while everything else that is printed goes to stderr."""


def replace_unencodable() -> None:
    """Let stdout write the escape of a character that its encoding lacks, instead of raising UnicodeEncodeError."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


@contextmanager
def reserve_stdout_for_json() -> Iterator[None]:
    """Within the block `print_json` alone writes to stdout; print() in an environment or a worker goes to stderr."""
    stream, own = sys.stdout, sys.stdout is sys.__stdout__
    if own:  # workers and C libraries write to the file descriptor
        stream = os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors="replace")
        os.dup2(2, 1)
    token = _json_stream.set(stream)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _json_stream.reset(token)
        if own:
            os.dup2(stream.fileno(), 1)
            with suppress(OSError):  # a failed write was reported when it happened
                stream.close()


def print_result(table: Table | None = None, *lines: str) -> None:
    """Print a table and lines for people."""
    if table is not None:
        Console(width=None if sys.stdout.isatty() else OUTPUT_WIDTH).print(table)
    for line in lines:
        sys.stdout.write(f"{printable(line)}\n")


def show_result(body: Mapping[str, Any], *lines: str, table: Table | None = None, json: bool) -> None:
    """Print one JSON object, or a table and lines for people."""
    if json:
        print_json(body)
    else:
        print_result(table, *lines)


def print_json(body: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout; characters that its encoding may lack are escaped."""
    stream = _json_stream.get() or sys.stdout
    ascii_only = not (stream.encoding or "utf-8").lower().startswith("utf")
    stream.write(json_format.dumps(body, indent=2, ensure_ascii=ascii_only, default=str) + "\n")
    stream.flush()


def print_note(line: str) -> None:
    """Print one line on stderr."""
    sys.stderr.write(f"wander: {one_line(line.strip(), MAX_NOTE_CHARS)}\n")
    sys.stderr.flush()
