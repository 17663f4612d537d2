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
PLAIN_TYPES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def encode_value(value: Any) -> Any:
    """Plain data as JSON; what a subclass adds is lost. Raises TypeError for everything else."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return ["dict", *([encode_value(key), encode_value(one)] for key, one in value.items())]
    for name, kind in PLAIN_TYPES.items():
        if isinstance(value, kind):
            return [name, *map(encode_value, value)]
    raise TypeError(f"a {type(value).__name__} is no plain data")


def decode_value(value: Any) -> Any:
    """The plain data again, of the plain types alone."""
    if not isinstance(value, list):
        return value
    name, *rest = value
    if name == "dict":
        return {decode_value(key): decode_value(one) for key, one in rest}
    return PLAIN_TYPES[name](map(decode_value, rest))


class SolutionProcess:
    """The code in its own process; an attribute is a function of it. Whatever the code raises ends it."""

    def __init__(self, code: str, *, worker: str, began: str):
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "this process cannot be closed to the code")
        argv = [sys.executable, "-I", "-c", f"{worker}\nserve_solution()"]
        self._child = subprocess.Popen(argv, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL, text=True)
        print(began, flush=True)  # from here on it is the code that answers for what goes wrong
        self._send(code)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*values: Any, **named: Any) -> Any:
            self._send([name, encode_value(values), encode_value(named)])
            return decode_value(json.loads(cast(IO[str], self._child.stdout).readline()))

        return call

    def _send(self, what: Any) -> None:
        pipe = cast(IO[str], self._child.stdin)
        pipe.write(f"{json.dumps(what)}\n")
        pipe.flush()


def serve_solution() -> None:
    """The child: define what the code defines, then call what is asked for. Its output goes nowhere."""
    requests, responses = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    sys.set_int_max_str_digits(0)
    defined: dict[str, Any] = {"__name__": "solution"}
    exec(json.loads(requests.readline()), defined)
    for line in requests:
        name, values, named = json.loads(line)
        responses.write(f"{json.dumps(encode_value(defined[name](*decode_value(values), **decode_value(named))))}\n")
        responses.flush()


def run_test(code: str, test: str, *, worker: str, began: str, passed: str) -> None:
    """Run a test that finds the code as `solution`; says `began` before any code runs, and `passed` after the test."""
    sys.set_int_max_str_digits(0)
    compiled = compile(test, "test", "exec")
    solution = SolutionProcess(code, worker=worker, began=began)
    try:
        exec(compiled, {"__name__": "test", "solution": solution})
    finally:
        solution._child.kill()
        solution._child.wait()
    print(f"\n{passed}")
