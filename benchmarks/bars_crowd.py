"""Ten thousand rollouts in flight on one machine, and what a rollout costs however many there are.

The model is a process of its own that takes 50 ms for an answer, or none; the rollouts are in another, `crowd.py`, that
does nothing else: its peak memory and its processor time are the figures. Flat means that from 100 to 100,000 rollouts
the dearest costs at most a quarter more than the cheapest, 1,024 at once, after as many that open the connections.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.bar import Bar
from benchmarks.bars_endpoint import ROOT, model
from benchmarks.crowd import Round
from wanderlust.errors import UsageError
from wanderlust.policies.endpoint import raise_file_limit

IN_FLIGHT, TURNS, LATENCY = 10_000, 5, 0.05
AT_ONCE = 1024
COUNTS = {100: 15, 1_000: 7, 10_000: 3, 100_000: 1}
"""How many rollouts, and how many such rounds are played: their median counts."""


def rounds(url: str, turns: int, concurrency: int, *, counts: Sequence[int]) -> list[Round]:
    """What a fresh process reports; ValueError unless every rollout is right."""
    command = [sys.executable, "-m", "benchmarks.crowd", url, str(turns), str(concurrency), *map(str, counts)]
    told = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    played = [Round(**json.loads(line)) for line in told.splitlines()]
    for one in played:
        if one.right != one.count:
            raise ValueError(f"only {one.right} of {one.count} rollouts were right")
    return played


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor milliseconds of a rollout, when there are as many."""

    count: int
    milliseconds: float


def costs(played: Sequence[Round]) -> list[Cost]:
    """The median of each size."""
    sizes = dict.fromkeys(one.count for one in played)
    return [Cost(size, median(one.milliseconds for one in played if one.count == size)) for size in sizes]


def bars() -> Iterator[Bar]:
    """All in flight at once, then flatness."""
    yield in_flight()
    with model() as url:
        found = costs(rounds(url, 1, AT_ONCE, counts=[n for n, times in COUNTS.items() for _ in range(times)]))
    figure = max(c.milliseconds for c in found) / min(c.milliseconds for c in found)
    note = "ms each: " + ", ".join(f"{c.milliseconds:.2f} of {c.count:,}" for c in found)
    what = "cost per rollout, 100 to 100,000: dearest to cheapest"
    yield Bar(name=what, figure=figure, bar=1.25, aim=1.1, unit="x", note=note)


def in_flight() -> Bar:
    """Peak memory; None where the system does not allow so many connections."""
    figure: float | None = None
    try:
        raise_file_limit(IN_FLIGHT)  # the model's process inherits it
    except UsageError as error:
        note = str(error)
    else:
        with model(LATENCY) as url:
            (crowd,) = rounds(url, TURNS, IN_FLIGHT, counts=[IN_FLIGHT])
        figure = crowd.megabytes
        note = f"all {crowd.right:,} right; {crowd.milliseconds:.2f} ms of processor time each, {crowd.seconds:.0f} s"
    what = f"{IN_FLIGHT:,} rollouts in flight, {TURNS} turns: peak memory"
    return Bar(name=what, figure=figure, bar=600, aim=400, unit="MB", note=note)
