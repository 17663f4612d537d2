"""Threads for functions that block: few, reused, and left behind when they hang."""

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from patience import PATIENCE
from wanderlust.errors import ToolFailure
from wanderlust.tools.threads import Threads


def test_a_hanging_thread_is_left_behind_and_its_place_is_taken():
    threads, gate, entered, hung = Threads(1, abandoned=1), threading.Event(), threading.Event(), []

    def hang():
        hung.append(threading.current_thread())
        entered.set()
        gate.wait()

    async def go():
        hanging = asyncio.create_task(threads.run(hang))
        waiting = asyncio.create_task(threads.run(lambda: "served"))
        await asyncio.to_thread(entered.wait)
        hanging.cancel()
        assert await waiting == "served"
        assert threads.abandoned == 1
        with pytest.raises(ToolFailure, match="never came back"):
            await threads.run(lambda: None)
        gate.set()
        await asyncio.to_thread(hung[0].join)
        assert await threads.run(lambda: "again") == "again"

    asyncio.run(asyncio.wait_for(go(), PATIENCE))


def test_a_call_given_up_while_it_waits_is_never_made():
    threads, gate, made = Threads(1), threading.Event(), []

    async def go():
        first = asyncio.create_task(threads.run(gate.wait))
        second = asyncio.create_task(threads.run(lambda: made.append(2)))
        third = asyncio.create_task(threads.run(lambda: made.append(3)))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(first, third)
        assert second.cancelled()

    asyncio.run(asyncio.wait_for(go(), PATIENCE))
    assert made == [3]


def test_many_calls_share_few_threads():
    threads, seen = Threads(3), set()

    async def go():
        calls = (threads.run(lambda: seen.add(threading.get_ident())) for _ in range(200))
        await asyncio.gather(*calls)

    asyncio.run(asyncio.wait_for(go(), PATIENCE))
    assert 1 <= len(seen) <= 3


FORK = """
import asyncio, os
from wanderlust.tools.threads import SHARED_THREADS

assert asyncio.run(SHARED_THREADS.run(lambda: 1)) == 1
if (child := os.fork()) == 0:
    asyncio.run(asyncio.wait_for(SHARED_THREADS.run(lambda: os._exit(7)), 600))
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_process_has_threads_of_its_own():
    assert subprocess.run([sys.executable, "-c", FORK], check=False, timeout=PATIENCE).returncode == 7


def test_a_function_that_hangs_does_not_hold_up_the_end_of_the_process():
    hang = """
import asyncio, threading
from wanderlust.tools.threads import SHARED_THREADS

try:
    asyncio.run(asyncio.wait_for(SHARED_THREADS.run(threading.Event().wait), 0.1))
except TimeoutError:
    print("ended")
"""
    ended = subprocess.run([sys.executable, "-c", hang], check=True, timeout=PATIENCE, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("ended\n", "")
