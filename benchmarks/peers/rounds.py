"""What every engine here has in common: the rollouts, and rounds of them on demand.

`python -m benchmarks.peers.NAME URL TURNS CONCURRENCY` plays as many rollouts as each line on its input says, and
answers each with one line of JSON: how many were right, and the processor time that each took, in milliseconds, of
the process and the children it has ended. Standard library only: this runs in the peers' own environments.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

SYSTEM, ANSWER = "You are a test.", "42"
PATIENCE = 600.0
"""Seconds: on a busy machine 1,024 connections take a while."""

Side = Callable[[int], Awaitable[int]]
"""Plays as many rollouts and returns how many were right."""
Opening = Callable[[str, int, int], AbstractAsyncContextManager[Side]]
"""From the model's URL, the turns of a rollout and how many are played at once."""


def question(number: int) -> str:
    """What the user of rollout `number` asks first."""
    return f"Task {number}: what is the answer?"


def again(turn: int) -> str:
    """What the user says after turn `turn`, from 1."""
    return f"Turn {turn}: again, please."


def spent() -> float:
    """Seconds of processor time so far, to the microsecond: a round of few rollouts takes less than `os.times` sees."""
    taken = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in taken)


async def _play(opening: Opening) -> None:
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # some engines print to where the figures go
    async with opening(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])) as play:
        while line := sys.stdin.readline():  # nothing else is to happen between rounds
            count, before = int(line), spent()
            right = await play(count)
            milliseconds = 1000 * (spent() - before) / count
            print(json.dumps({"right": right, "milliseconds": milliseconds}), file=told, flush=True)


def serve(opening: Opening) -> None:
    """Rounds until the input ends."""
    asyncio.run(_play(opening))
