"""The demo, over five seeds: does the model pass its teacher, how far, and how long does it take?

Runs `wander demo` itself, one seed after the other on an otherwise idle machine, and reads its demo.json. A figure
is that of the worst seed; one with "4 of 5" is what all but the worst seed reach.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bar import Bar
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import STORE_FILE
from wanderlust.training.reward_hacking import WARNING_EVENT

SEEDS = (0, 1, 2, 3, 4)
MOST_SECONDS, LEAST_DRAWS, LEAST_WINS, MOST_LOSSES = 180, 97, 90, 1
TIMEOUT = 1800
"""Seconds for one run."""


def bars() -> Iterable[Bar]:
    """One run per seed, then a bar per line of the demo's table of aims."""
    with tempfile.TemporaryDirectory() as folder:
        reports = [run(seed, Path(folder) / f"seed{seed}") for seed in SEEDS]
    yield from judge(reports)


def run(seed: int, out: Path) -> Mapping[str, Any]:
    """The report of one demo, run as a user runs it."""
    wander = Path(sys.executable).with_name("wander")
    command = [str(wander), "demo", "--seed", str(seed), "--out", str(out)]
    subprocess.run(command, check=True, timeout=TIMEOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    report: dict[str, Any] = json.loads((out / "demo.json").read_text())
    with RunReader(out / STORE_FILE) as store:
        warnings = [event.body for event in store.events() if event.kind == WARNING_EVENT]
    return {**report, "warnings": sorted({warning["monitor"] for warning in warnings})}


def share(report: Mapping[str, Any], policy: str, opponent: str, *, of: str) -> float:
    """One exact figure of a report, in %."""
    rows: Sequence[Mapping[str, Any]] = report["rows"]
    return 100 * float(next(r[of] for r in rows if (r["policy"], r["opponent"]) == (policy, opponent)))


def judge(reports: Sequence[Mapping[str, Any]]) -> Iterable[Bar]:
    """The bars of some seeds' reports."""

    def figure(value: Callable[[Mapping[str, Any]], float], *, higher: bool, but: int = 0) -> tuple[float, str]:
        """The value that all seeds `but` so many reach, and a note with those of all."""
        values = sorted((value(report) for report in reports), reverse=not higher)
        return values[min(but, len(values) - 1)], "seeds: " + ", ".join(f"{value(r):.1f}" for r in reports)

    def exact(name: str, opponent: str, of: str, *, bar: float, aim: float) -> Bar:
        higher = of in ("win", "draw")
        worst, note = figure(lambda r: share(r, "rl", opponent, of=of), higher=higher)
        better = "higher" if higher else "lower"
        return Bar(name=name, figure=worst, bar=bar, aim=aim, unit="%", better=better, note=note)

    wall, note = figure(lambda r: float(r["wall_s"]), higher=False)
    yield Bar(name="wander demo, wall time", figure=wall, bar=MOST_SECONDS, aim=120, unit="s", note=note)
    yield exact("draws against perfect play", "optimal", "draw", bar=LEAST_DRAWS, aim=100)
    yield exact("wins against random moves", "random", "win", bar=LEAST_WINS, aim=95)
    yield exact("losses against random moves", "random", "loss", bar=MOST_LOSSES, aim=0)
    yield exact("games with an invalid move, random", "random", "invalid", bar=1, aim=0)
    yield exact("games with an invalid move, optimal", "optimal", "invalid", bar=1, aim=0)
    gain, note = figure(
        lambda r: share(r, "rl", "optimal", of="draw") - share(r, "sft", "optimal", of="draw"), higher=True, but=1
    )
    yield Bar(
        name="draws gained over SFT (4 of 5)", figure=gain, bar=20, aim=20, unit="points", better="higher", note=note
    )
    warned = [report["warnings"] for report in reports]
    note = "; ".join(f"seed {seed}: {', '.join(names)}" for seed, names in zip(SEEDS, warned, strict=False) if names)
    yield Bar(
        name="seeds with a reward-hacking warning, of 5", figure=float(sum(map(bool, warned))), bar=0, aim=0, note=note
    )
    reached = float(sum(map(reaches, reports)))
    yield Bar(name="seeds that reach every bar but the gain, of 5", figure=reached, bar=5, aim=5, better="higher")


def reaches(report: Mapping[str, Any]) -> bool:
    """Whether one seed reaches every bar of its own, and passes its teacher."""
    draws = share(report, "rl", "optimal", of="draw")
    return (
        float(report["wall_s"]) <= MOST_SECONDS
        and draws >= LEAST_DRAWS
        and draws > share(report, "teacher", "optimal", of="draw")
        and share(report, "rl", "random", of="win") >= LEAST_WINS
        and share(report, "rl", "random", of="loss") <= MOST_LOSSES
        and max(share(report, "rl", o, of="invalid") for o in ("random", "optimal")) <= 1
    )
