"""Many connections are many open files: the bound that can be raised is raised, the other one is said."""

from __future__ import annotations

import subprocess
import sys

from patience import PATIENCE

BOUNDED = """
import asyncio, resource
from wanderlust.errors import UsageError
from wanderlust.policies.endpoint import Endpoint

async def opened():
    async with Endpoint("http://127.0.0.1:9/v1", "mock", concurrency={calls}):
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
try:
    print(asyncio.run(opened()))
except UsageError as error:
    print(error)
"""


def opened(calls: int, soft: int, hard: int) -> str:
    code = BOUNDED.format(calls=calls, soft=soft, hard=hard)
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=PATIENCE)
    return run.stdout.strip()


def test_the_soft_limit_is_raised_as_far_as_needed():
    assert opened(1000, soft=512, hard=2048) == "1256"


def test_a_limit_that_is_high_enough_stays():
    assert opened(64, soft=512, hard=2048) == "512"


def test_a_hard_limit_that_is_too_low_is_said_in_one_line():
    said = opened(10_000, soft=512, hard=2048)
    assert said == (
        "10000 calls at once take 10256 open files and this process may have 2048: ask for at most 1792 at once, or"
        " raise the hard limit (ulimit -Hn)"
    )
