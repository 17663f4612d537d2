"""Runs in the sandbox where code and its tests are kept apart: tests in this process, the code in a child of it.

Between them go calls of the code's functions with plain data, so an object of the code's own never meets a test. The
child has none of this process's files, and the kernel keeps its memory and its folder in /proc closed.
Imports nothing of ours: `unit_tests.py` sends this file's text.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any, cast

PR_SET_DUMPABLE = 4
KINDS: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def packed(value: Any) -> Any:
    """Plain data as JSON; what a subclass adds is lost. Raises TypeError for everything else."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return ["dict", *([packed(key), packed(one)] for key, one in value.items())]
    for name, kind in KINDS.items():
        if isinstance(value, kind):
            return [name, *map(packed, value)]
    raise TypeError(f"a {type(value).__name__} is no plain data")


def unpacked(value: Any) -> Any:
    """The plain data again, of the plain types alone."""
    if not isinstance(value, list):
        return value
    name, *rest = value
    if name == "dict":
        return {unpacked(key): unpacked(one) for key, one in rest}
    return KINDS[name](map(unpacked, rest))


class Solution:
    """The code in its own process; an attribute is a function of it. Whatever the code raises ends it."""

    def __init__(self, code: str, *, worker: str, began: str):
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "this process cannot be closed to the code")
        argv = [sys.executable, "-I", "-c", f"{worker}\nsolve()"]
        self._child = subprocess.Popen(argv, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL, text=True)
        print(began, flush=True)  # from here on it is the code that answers for what goes wrong
        self._say(code)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*values: Any, **named: Any) -> Any:
            self._say([name, packed(values), packed(named)])
            return unpacked(json.loads(cast(IO[str], self._child.stdout).readline()))

        return call

    def _say(self, what: Any) -> None:
        pipe = cast(IO[str], self._child.stdin)
        pipe.write(f"{json.dumps(what)}\n")
        pipe.flush()

    def _end(self) -> None:
        self._child.kill()
        self._child.wait()


def solve() -> None:
    """The child: define what the code defines, then call what is asked for. Its output goes nowhere."""
    asked, told = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    sys.set_int_max_str_digits(0)
    defined: dict[str, Any] = {"__name__": "solution"}
    exec(json.loads(asked.readline()), defined)
    for line in asked:
        name, values, named = json.loads(line)
        told.write(f"{json.dumps(packed(defined[name](*unpacked(values), **unpacked(named))))}\n")
        told.flush()


def judge(code: str, test: str, *, worker: str, began: str, passed: str) -> None:
    """Run a test that finds the code as `solution`; says `began` before any code runs, and `passed` after the test."""
    sys.set_int_max_str_digits(0)
    known = compile(test, "test", "exec")
    solution = Solution(code, worker=worker, began=began)
    try:
        exec(known, {"__name__": "test", "solution": solution})
    finally:
        solution._end()
    print(f"\n{passed}")
