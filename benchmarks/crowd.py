"""Rollouts over HTTP in a process that does nothing else: what they cost, and how much memory they take.

`python -m benchmarks.crowd URL TURNS CONCURRENCY COUNT ...` plays as `wander eval` does (endpoint, engine, store,
tally), first CONCURRENCY rollouts of one turn that only warm up and open the connections, then each COUNT in turn, and
prints one line of JSON per COUNT.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.bars_endpoint import Asked
from wanderlust.evals.accumulator import ReportAccumulator
from wanderlust.evals.evaluation import play_jobs
from wanderlust.policies.endpoint import Endpoint
from wanderlust.runner.engine import RolloutSettings, rollout_jobs
from wanderlust.store.store import RunStore
from wanderlust.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round came to."""

    count: int
    right: int
    """Rollouts that ended with the full reward."""
    milliseconds: float
    """Processor time per rollout."""
    seconds: float
    """Wall time of the round."""
    megabytes: float
    """The most memory that the process has held since it started."""


async def play(policy: Endpoint, turns: int, count: int) -> Round:
    """One round with a store and a tally of its own; opening the store is not counted."""
    tally, crowd = ReportAccumulator(), min(policy.concurrency, count)
    with tempfile.TemporaryDirectory() as folder, RunStore.create(Path(folder) / "run.db") as store:
        todo = rollout_jobs(Task(id=str(n)) for n in range(count))
        watchers = [store.sink(stage="eval", step=0, env="asked"), tally.add]
        processor, clock = time.process_time(), time.perf_counter()
        await play_jobs(
            RolloutSettings(env=Asked(turns), policy=policy, retries=1), todo, observers=watchers, concurrency=crowd
        )
        processor, clock = time.process_time() - processor, time.perf_counter() - clock
        right = len(store.rollouts({"reward": 1.0}))
    return Round(
        count=count,
        right=right,
        milliseconds=1000 * processor / count,
        seconds=clock,
        megabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    )


async def main(url: str, turns: int, concurrency: int, *, counts: Sequence[int]) -> None:
    async with Endpoint(url, "mock", concurrency=concurrency) as policy:
        await play(policy, 1, concurrency)
        for count in counts:
            print(json.dumps(asdict(await play(policy, turns, count))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), counts=list(map(int, sys.argv[4:]))))
