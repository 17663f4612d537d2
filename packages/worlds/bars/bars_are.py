"""The same work in ARE 1.2.0 and here, in turns on one machine: how many times our processor time it takes there.

ARE lives in an environment of its own, as in `peers`; each side is a process of its own, and a small round goes before
that only warms up. The figures that we promise are those of `worlds`: this says what they are worth beside the engine
that people have now. Bars and aims are the ratios of the issue's figures; of ARE's, the better ones,
and less for events in time, of which there are few here so that it takes seconds.

Generated scenarios are exported as well, and loaded and played by ARE in oracle mode: `export_warnings` has to say of
each beforehand whether ARE plays it to its end.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.bar import Bar
from benchmarks.bars_peers import EngineFailure, Round, engine
from benchmarks.peer import ROOT, NotMeasured, Peer, last_line, python_of

from wanderlust_life.assistant_life import AssistantLife
from wanderlust_worlds.exchange.write import export_scenario, export_warnings

ARE = Peer(name="ARE 1.2.0", module="are_world", pins=("meta-agents-research-environments==1.2.0",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Something that both sides do."""

    kind: str
    what: str
    ours: int
    """Events or calls of one round: as many as take about half a second."""
    theirs: int
    events: int
    """Of one world, where it is about events: spread over time a world of many takes minutes there."""
    pairs: int
    bar: float
    aim: float


WORKS = (
    Work(kind="at-once", what="events at once", ours=200_000, theirs=2_000, events=1_000, pairs=3, bar=45, aim=190),
    Work(kind="timed", what="events, one a second", ours=200_000, theirs=200, events=200, pairs=2, bar=100, aim=400),
    Work(kind="call", what="logged tool call", ours=200_000, theirs=10_000, events=1_000, pairs=3, bar=7, aim=18),
)


def pairs(work: Work, python: Path) -> list[tuple[float, float]]:
    """Milliseconds of an event or a call, here and there, in turns."""
    with (
        engine(sys.executable, "our_world", url=work.kind, turns=work.events) as ours,
        engine(python, ARE.module, url=work.kind, turns=work.events) as theirs,
    ):
        ours(work.events)
        if work.kind != "timed":  # where a round takes seconds, nothing needs to be warm
            _others(theirs, work.events)
        return [(ours(work.ours), _others(theirs, work.theirs)) for _ in range(work.pairs)]


def _others(play: Round, count: int) -> float:
    try:
        return play(count)
    except EngineFailure as error:
        raise NotMeasured(str(error)) from error


def compared(work: Work, measured: Sequence[tuple[float, float]]) -> Bar:
    """The bar of one kind of work."""
    mine, theirs = (1000 * median(side) for side in zip(*measured, strict=True))
    note = f"{theirs:,.1f} µs against our {mine:.2f}; {len(measured)} pair{'s' * (len(measured) > 1)}"
    return _bar(work, figure=median(b / a for a, b in measured), note=note)


def _bar(work: Work, *, figure: float | None, note: str) -> Bar:
    name = f"{ARE.name}, {work.what}: times our cost"
    return Bar(
        name=name, figure=figure, bar=work.bar, aim=work.aim, unit="x", better="higher", note=note, promised=False
    )


EXPORTED = (({}, 3), ({"families": "long-story"}, 8), ({"universe": "lived"}, 1))
"""Settings of lives whose scenarios of `eval` are exported, at all levels, and how many seeds of each."""
IMPORT_SECONDS = 1800


def write_exports(folder: Path) -> dict[str, tuple[str, ...]]:
    """Scenarios as files of ARE's form, and what `export_warnings` says of each, by the name of its file."""
    said = {}
    logging.getLogger(export_scenario.__module__).setLevel(logging.ERROR)
    for settings, seeds in EXPORTED:
        env = AssistantLife(**settings)
        for task in env.tasks_of_seeds("eval", range(seeds)):
            scenario, name = env.scenario(task), f"{len(said):04}"
            said[name] = export_warnings(scenario)
            (folder / f"{name}.json").write_bytes(export_scenario(scenario))
    return said


def imports(python: Path) -> Iterator[Bar]:
    """How many exported scenarios ARE plays to their end, of those that we say it does, and of the others."""
    with tempfile.TemporaryDirectory() as folder:
        said = write_exports(Path(folder))
        command = [python, "-m", "benchmarks.peers.are_imports", folder]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=IMPORT_SECONDS)
    if run.returncode:
        raise NotMeasured(last_line(run.stderr))
    rows = {row["file"]: row for row in map(json.loads, run.stdout.splitlines())}
    whole = {name for name, row in rows.items() if not row["error"] and row["done"] == row["events"]}
    taken, refused = ({name for name, lines in said.items() if bool(lines) is bad} for bad in (False, True))
    wrong = [f"{rows[name]['done']} of {rows[name]['events']} events: {rows[name]['error']}" for name in taken - whole]
    yield Bar(
        name=f"{ARE.name} plays exported scenarios to their end, of those that we say it can",
        figure=100 * len(taken & whole) / len(taken),
        bar=100,
        aim=100,
        unit="%",
        better="higher",
        note=f"{len(taken & whole)} of {len(taken)}{': ' * bool(wrong)}{'; '.join(sorted({*wrong})[:3])}",
    )
    yield Bar(
        name=f"{ARE.name} plays exported scenarios of which we say that it cannot",
        figure=100 * len(refused & whole) / len(refused),
        bar=5,
        aim=0,
        unit="%",
        note=f"{len(refused & whole)} of {len(refused)}",
    )


def bars() -> Iterator[Bar]:
    """Events at once, events in time, calls; and exported scenarios."""
    try:
        yield from imports(python_of(ARE))
    except NotMeasured as why:
        yield Bar(name=f"{ARE.name} plays exported scenarios", figure=None, bar=100, aim=100, unit="%", note=str(why))
    for work in WORKS:
        try:
            yield compared(work, pairs(work, python_of(ARE)))
        except NotMeasured as why:
            yield _bar(work, figure=None, note=str(why))
