"""Runs inside the sandbox, alone: reads cells, executes them one after another in one namespace, says how each ended.

Cells come on the standard input (a line with the length and the token, then the source); how each ended goes to what
was the standard error. Before the first cell both move out of the way, so that what cells print is the standard
output alone.
"""

from __future__ import annotations

import ast
import json
import linecache
import os
import signal
import sys
import traceback
from types import CodeType
from typing import Any


class CellTimeout(BaseException):
    """Raised in a cell when its time is up; no cell catches it by accident."""


def raise_cell_timeout(signum: int, frame: object) -> None:
    """The alarm's handler."""
    raise CellTimeout


def compile_cell(source: str, name: str) -> tuple[CodeType, CodeType | None]:
    """The compiled statements, and the last one apart when it is an expression whose value is to be shown."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    expression = compile(ast.Expression(last.value), name, "eval") if isinstance(last, ast.Expr) else None
    return compile(tree, name, "exec"), expression


def execute_cell(source: str, names: dict[str, Any], *, name: str, seconds: float) -> str:
    """Run one cell; how it ended: `done`, `error` or `time`."""
    try:
        signal.signal(signal.SIGALRM, raise_cell_timeout)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            statements, expression = compile_cell(source, name)
            exec(statements, names)
            if expression is not None and (value := eval(expression, names)) is not None:
                print(repr(value))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except CellTimeout:
        return "time"
    except BaseException as error:  # noqa: BLE001
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        print("".join(traceback.format_exception(type(error), error, trace)), end="")
        return "error"
    return "done"


def flush_streams() -> None:
    """Hand on what the cell has printed; a stream that the cell closed or replaced is opened anew."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, ValueError, OSError):
            sys.stdout = sys.stderr = os.fdopen(1, "w", closefd=False)


def run_cells() -> None:
    """Cells until there are no more."""
    cells, results = os.fdopen(os.dup(0), "rb"), os.dup(2)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(1, 2)
    sys.path.insert(0, "")
    process, names, number = os.getpid(), {"__name__": "__main__"}, 0
    while line := cells.readline():
        length, token, seconds = line.split()
        source, number = cells.read(int(length)).decode(), number + 1
        name = f"<cell {number}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        ended = execute_cell(source, names, name=name, seconds=float(seconds))
        flush_streams()
        if os.getpid() != process:  # A cell forked, and its child has come back here.
            os._exit(0)
        os.write(results, json.dumps({"token": token.decode(), "ended": ended}).encode() + b"\n")


if __name__ == "__main__":
    run_cells()
