"""The source of the worker in which expressions are compared; started by `rewards.py` with an empty environment.

It imports nothing of ours. A question that takes more than its seconds of processor time ends the process by SIGPROF,
which no loop inside a C function can put off.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
from contextlib import suppress
from typing import Any

from math_verify import parse, verify

MAX_MEMORY_BYTES = 2 << 30
"""Bytes of address space: a tower of powers asks for more than there is."""


def parse_expressions(text: str) -> list[object]:
    """Parse the mathematical expressions of a text; an empty list where there are none."""
    boxed: list[object] = parse(f"\\boxed{{{text}}}", parsing_timeout=None)
    return boxed or parse(text, parsing_timeout=None)


_REFERENCE: list[object] = []
"""What was read of the task's answer."""


def answer(request: dict[str, Any]) -> str:
    """First the task's `answer`, for so many `seconds`: `read` or `unreadable`. Then a `text`: `equal` or `different`.

    Either may be too `large`. The seconds are those of both.
    """
    reads = "answer" in request
    if reads:
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])
    verdict = "large"
    with suppress(MemoryError):
        if reads:
            _REFERENCE[:] = parse_expressions(request["answer"])
            verdict = "read" if _REFERENCE else "unreadable"
        else:
            equal = verify(_REFERENCE, parse_expressions(request["text"]), timeout_seconds=None)
            verdict = "equal" if equal else "different"
    if verdict != "read":
        signal.setitimer(signal.ITIMER_PROF, 0)
    return verdict


if __name__ == "worker":
    logging.disable()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
