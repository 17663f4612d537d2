"""Rollouts by Ray actors on this machine: how they scale where tools are slow, and what one costs more than here.

A rollout asks a slow tool four times and a scripted policy as often; the tool is a sleep of a quarter second, or none.
Eight workers play eight times as many rollouts as one, eight each at once; starting them is no part of it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bar import Bar
from wanderlust.environment import Environment, Episode
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import WorkerBackend, rollouts
from wanderlust.runner.ray import ray_backend
from wanderlust.types import Task, user

WORKERS, EACH, TURNS, LATENCY, WAVES = 8, 8, 4, 0.25, 5
QUICK, WARM = 2_000, 200
"""Rollouts without latency, and those before them that are not counted."""
TICK = os.sysconf("SC_CLK_TCK")


class SlowTool(Environment):
    """Asks a tool before each of its turns."""

    def __init__(self, latency: float):
        self.latency = latency

    async def run(self, episode: Episode) -> None:
        for turn in range(TURNS):
            await asyncio.sleep(self.latency)
            await episode.agent.act(user(f"{turn}: {'the tool says so. ' * 20}"))
        episode.reward("asked", TURNS)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one rollout, in milliseconds."""

    wall: float
    own: float
    """Processor time of the process that asks."""
    theirs: float = 0.0
    """Processor time of the workers."""


def processor(pids: Sequence[int]) -> float:
    """Seconds of processor time that those processes took so far."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / TICK


async def play(count: int, latency: float, *, at_once: int | WorkerBackend, pids: Sequence[int] = ()) -> Cost:
    """Play that many. Raises ValueError unless each was played and scored."""
    tasks, paid = (Task(id=f"slow-{n}") for n in range(count)), 0.0
    wall, own, theirs = time.perf_counter(), time.process_time(), processor(pids)
    async with rollouts(SlowTool(latency), tasks, Scripted(["I see."] * TURNS), concurrency=at_once) as groups:
        async for group in groups:
            paid += sum(group.rewards)
    if paid != count * TURNS:
        raise ValueError(f"{count} rollouts paid {paid:g}")
    wall, own, theirs = time.perf_counter() - wall, time.process_time() - own, processor(pids) - theirs
    return Cost(*(seconds / count * 1e3 for seconds in (wall, own, theirs)))


async def measure() -> tuple[Cost, Cost, Cost, Cost]:
    """One worker and eight with the slow tool; without its latency here and with one worker."""
    async with ray_backend(WORKERS, each=EACH) as crew, ray_backend(1, each=EACH, cpus=0) as single:
        await play(WORKERS * EACH, 0.0, at_once=crew)
        eight = await play(WORKERS * EACH * WAVES, LATENCY, at_once=crew)
        await play(WARM, 0.0, at_once=single)
        one = await play(EACH * WAVES, LATENCY, at_once=single)
        there = await play(QUICK, 0.0, at_once=single, pids=[worker.pid for worker in single.workers])
    await play(WARM, 0.0, at_once=EACH)
    return one, eight, await play(QUICK, 0.0, at_once=EACH), there


def bars() -> Iterator[Bar]:
    """Scaling, then cost."""
    one, eight, here, there = asyncio.run(measure())
    note = f"{1e3 / one.wall:.1f} and {1e3 / eight.wall:.1f} rollouts/s, {TURNS} x {LATENCY:g} s each"
    what = f"{WORKERS} Ray workers against one, slow tool: rollouts/s"
    yield Bar(name=what, figure=one.wall / eight.wall, bar=6.0, aim=7.5, unit="x", better="higher", note=note)
    figure = there.own + there.theirs - here.own
    note = f"{here.own:.2f} ms here; there {there.own:.2f} ms in the asking process and {there.theirs:.2f} in workers"
    what = "a rollout by a Ray worker: processor time more than here"
    yield Bar(name=what, figure=figure, bar=4.0, aim=2.0, unit="ms", note=note)
