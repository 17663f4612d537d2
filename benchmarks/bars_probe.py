"""What `wander probe` finds: planted flaws, and false alarms on sound rewards. Written by different hands.

The half called `dev` was looked at while the battery was written, as was the second set once its first rate was known;
the other half was not, and says more.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
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
    """Detection, by kind, and false alarms."""
    flawed = [one for one in done if one.planted.flaw is not None]
    sound = [one for one in done if one.planted.flaw is None]
    found = sum(one.findings.verdict == "flaw found" for one in flawed)
    alarms = sum(one.findings.verdict == "flaw found" for one in sound)
    seconds = sum(one.seconds for one in done)
    kinds = Counter(one.planted.kind for one in flawed if one.findings.verdict != "flaw found")
    missed = ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items()))
    note = f"{len(done)} environments, {seconds:.0f} s of this process; missed: {missed or 'none'}"
    yield Bar(
        name=f"probe, {name}: planted flaws found ({len(flawed)})",
        figure=100 * found / len(flawed),
        bar=95,
        aim=100,
        unit="%",
        better="higher",
        note=note,
    )
    yield Bar(
        name=f"probe, {name}: sound rewards reported ({len(sound)})",
        figure=100 * alarms / len(sound),
        bar=3,
        aim=0,
        unit="%",
        note=note,
    )


def reliable(done: Sequence[Probed]) -> Iterator[Bar]:
    """Probes that crashed, and verdicts without coverage."""
    crashes = [crash for one in done for crash in one.findings.crashes]
    uncovered = [one.planted.name for one in done if one.findings.sound and not one.findings.spoke]
    silent = sum(one.findings.verdict == "cannot tell" for one in done)
    what = f"({len(done)} environments)"
    yield Bar(name=f"probe: probes that crashed {what}", figure=len(crashes), bar=0, aim=0, note="; ".join(crashes))
    yield Bar(
        name=f"probe: 'nothing found' without a probe that could speak {what}",
        figure=len(uncovered),
        bar=0,
        aim=0,
        note=f"'cannot tell' said of {silent}",
    )


def bars() -> Iterator[Bar]:
    """Both halves, the second set, both halves together, and what must never happen in any of them."""
    seen = [probed(one) for one in dev()]
    yield from told(seen, "seen half")
    second_set = [probed(one) for one in second()]
    yield from told(second_set, "second seen set")
    unseen = [probed(one) for one in held_out()]
    yield from told(unseen, "unseen half")
    yield from told([*seen, *unseen], "all")
    yield from reliable([*seen, *second_set, *unseen])
