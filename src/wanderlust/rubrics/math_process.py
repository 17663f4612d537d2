"""The process in which expressions are compared; started by `rewards.py`, one line of JSON per question.

It imports nothing of ours and is started with an empty environment. A question that takes more than its seconds of
processor time ends the process by SIGPROF, which no loop inside a C function can put off.
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys

from math_verify import parse, verify

MAX_MEMORY_BYTES = 2 << 30
"""Bytes of address space: a tower of powers asks for more than there is."""


def parse_expressions(text: str) -> list[object]:
    """Parse the mathematical expressions of a text; an empty list where there are none."""
    boxed: list[object] = parse(f"\\boxed{{{text}}}", parsing_timeout=None)
    return boxed or parse(text, parsing_timeout=None)


def serve_comparisons() -> None:
    """Answer with `ready`, then per question with `read` (the reference is understood) and the verdict."""
    logging.disable()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print("ready", flush=True)
    for line in sys.stdin:
        answer, text, seconds = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            reference = parse_expressions(answer)
            print("read" if reference else "unreadable", flush=True)
            if reference:
                print(
                    "equal" if verify(reference, parse_expressions(text), timeout_seconds=None) else "different",
                    flush=True,
                )
        except MemoryError:
            print("large", flush=True)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    serve_comparisons()
