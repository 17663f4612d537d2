"""What `wander probe` finds: planted flaws, and false alarms on sound rewards. Written by different hands.

The half called `dev` was looked at while the battery was written, as was the second set once its first rate was known;
the other half was not, and says more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.bar import Bar
from benchmarks.planted.dev import dev
from benchmarks.planted.held_out import held_out
from benchmarks.planted.record import Planted
from benchmarks.planted.second import second
from wanderlust.evals.probe.battery import run_probes
from wanderlust.evals.probe.report import ProbeReport
from wanderlust.policies.scripted import PerRolloutPolicy, RolloutKey
from wanderlust.types import Task

TASKS = 32


@dataclass(frozen=True, slots=True)
class Probed:
    """One environment, and what was found."""

    planted: Planted
    findings: ProbeReport
    seconds: float


def probed(one: Planted) -> Probed:
    """Play the whole battery."""
    env, began = one.make(), time.process_time()
    tasks: list[Task] = list(env.tasks("eval"))[:TASKS]
    by_id = {task.id: task for task in tasks}

    def knowing(place: RolloutKey):
        return one.oracle(by_id[place.task])

    findings = asyncio.run(run_probes(env, tasks=tasks, oracle=PerRolloutPolicy(knowing)))
    return Probed(one, findings, time.process_time() - began)


def told(done: Sequence[Probed], name: str) -> Iterator[Bar]:
    """Detection and false alarms."""
    flawed = [one for one in done if one.planted.flaw is not None]
    sound = [one for one in done if one.planted.flaw is None]
    found = sum(one.findings.verdict == "flaw found" for one in flawed)
    alarms = sum(one.findings.verdict == "flaw found" for one in sound)
    seconds = sum(one.seconds for one in done)
    note = f"{len(done)} environments, {seconds:.0f} s of this process"
    yield Bar(
        name=f"probe, {name}: planted flaws found ({len(flawed)})",
        figure=100 * found / len(flawed),
        bar=90,
        aim=100,
        unit="%",
        better="higher",
        note=note,
    )
    yield Bar(
        name=f"probe, {name}: sound rewards reported ({len(sound)})",
        figure=100 * alarms / len(sound),
        bar=5,
        aim=0,
        unit="%",
        note=note,
    )


def bars() -> Iterator[Bar]:
    """Both halves, the second set, and all halves together."""
    seen = [probed(one) for one in dev()]
    yield from told(seen, "seen half")
    yield from told([probed(one) for one in second()], "second seen set")
    unseen = [probed(one) for one in held_out()]
    yield from told(unseen, "unseen half")
    yield from told([*seen, *unseen], "all")
