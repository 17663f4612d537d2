"""Work counted in lines of Python, which no machine's speed changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def lines_run(call: Callable[..., T], *arguments: Any) -> tuple[T, int]:
    """What a call returns, and the lines of Python that this thread ran for it. What C code does is not counted."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = call(*arguments)
    finally:
        sys.settrace(before)
    return result, count
