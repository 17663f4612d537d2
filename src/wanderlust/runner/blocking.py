"""Calling asynchronous functions from code that is not: in a script, and where an event loop runs already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


def run_blocking(call: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Call an asynchronous function, wait for it, and return its result.

    Where an event loop runs in this thread already (a notebook, asynchronous code), the call gets a thread and a loop
    of its own, and this thread blocks until it has finished.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(call())
    with ThreadPoolExecutor(1, thread_name_prefix="wanderlust") as thread:
        return thread.submit(lambda: asyncio.run(call())).result()
