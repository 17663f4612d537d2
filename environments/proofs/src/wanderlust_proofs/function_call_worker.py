"""Runs in the sandbox: programs from standard input, each in a process of its own that is forked before it is read.

A program gets calls and gives their results as JSON; what they should be is not known here. This process cannot be read
or traced by the programs' processes, and forgets each program before the next one comes. Imports nothing of ours:
`function_calls.py` sends this file's text.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import struct
import time
from contextlib import suppress
from typing import Any

PR_SET_DUMPABLE = 4
MAX_RESULT_BYTES = 65536


def serve(seconds: float, token: str) -> None:
    """Answer each program with a line: the token, the program's number, its results as JSON."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot be closed to the programs")
    number = 0
    while (size := _read_size()) is not None:
        read_end, write_end = os.pipe()
        body = bytearray(size)
        view, filled = memoryview(body), 0
        while filled < size:
            filled += os.readv(0, [view[filled:]])
        child = os.fork()
        if child == 0:
            os.close(read_end)
            _play(bytes(body), write_end, seconds)
        body[:] = bytes(size)
        os.close(write_end)
        results = _read_results(read_end, seconds)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.write(1, f"{token} {number} {results}\n".encode())
        number += 1


def _read_size() -> int | None:
    head = b""
    while len(head) < 4:
        more = os.read(0, 4 - len(head))
        if not more:
            return None
        head += more
    return int(struct.unpack("<I", head)[0])


def _read_results(pipe: int, seconds: float) -> str:
    """What the child writes until it ends or its time is up; `null` where that is no JSON list."""
    found, end = b"", time.monotonic() + seconds
    while len(found) <= MAX_RESULT_BYTES and (left := end - time.monotonic()) > 0:
        if not select.select([pipe], [], [], left)[0]:
            break
        more = os.read(pipe, MAX_RESULT_BYTES)
        if not more:
            break
        found += more
    os.close(pipe)
    try:
        results = json.loads(found)
    except (ValueError, RecursionError):
        return "null"
    return json.dumps(results) if isinstance(results, list) else "null"


def _play(body: bytes, pipe: int, seconds: float) -> None:
    """Define the program, make the calls, write their results; never returns."""
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        pipe = os.dup2(pipe, 3)
        os.closerange(4, 256)
        cpu = max(1, round(seconds))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
        job = json.loads(body)
        defined: dict[str, Any] = {"__name__": "program"}
        exec(job["code"], defined)
        results = [_call(defined[job["name"]], values) for values in job["calls"]]
        os.write(pipe, json.dumps(results).encode()[:MAX_RESULT_BYTES])
    finally:
        os._exit(0)


def _call(function: Any, values: list[Any]) -> Any:
    """The result in a list of its own; None where the call raises or gives no plain data."""
    with suppress(Exception):
        result = function(*values)
        return [json.loads(json.dumps(result))]
    return None
