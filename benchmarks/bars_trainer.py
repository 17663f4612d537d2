"""A whole training step here and in TRL's GRPOTrainer: the same model, prompts and sizes, a step of each in turns.

TRL lives in an environment of its own, as in `peers`, beside the PyTorch of this one. Each side is a process that takes
a step when it is asked to; the first step of each only warms up. Both get the same cores.

- `count`: one answer of up to 64 tokens to each of 8 prompts, 8 siblings each.
- `guess`: up to 5 calls of a tool after a prompt of some 180 tokens; TRL by `environment_factory`. Both begin with a
  model that has learnt the form of a call; the tokens that each side samples differ, so the ratio is per sampled token.
- Beside matrix products: the share of our rollout's and update's processor time that is none of the products,
  attention's counted among them, as PyTorch's profiler tells it. Python's own time counts as beside them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bar import Bar
from benchmarks.bars_endpoint import ROOT
from benchmarks.bars_peers import Ask, EngineFailure, asked
from benchmarks.peer import NotMeasured, Peer, python_of

TRL = Peer(name="TRL 1.16.0", module="trl_trainer", pins=("trl==1.16.0", "jmespath==1.0.1"), shares=True)
MAKING_SECONDS = 1800
"""Patience with the making of a model."""
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT / "src"),
    "HF_HUB_OFFLINE": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A task that both sides learn."""

    task: str
    what: str
    pairs: int
    bar: float
    aim: float
    cores: int = 2
    """Given to each side: our worker processes, the other's threads. By one core counts processor time, by two the
    clock, which needs an idle machine."""


WORKS = (
    Work(task="count", what="a step, one turn", pairs=7, bar=2, aim=3),
    Work(task="count", what="the same on one core", pairs=5, bar=1.3, aim=2, cores=1),
    Work(task="guess", what="a step, 5 turns with a tool", pairs=3, bar=6, aim=8),
)


def student(task: str, python: Path, folder: Path) -> Path:
    """The model that both start from. NotMeasured when it cannot be made."""
    command = [python, "-m", "benchmarks.peers.student", task, folder]
    made = subprocess.run(
        command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=MAKING_SECONDS, check=False
    )
    if made.returncode:
        raise NotMeasured(f"no model to start from: {made.stderr.strip().splitlines()[-1][:200]}")
    return folder


def pairs(work: Work, python: Path, folder: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What a step of ours and of theirs came to, in turns."""
    given = (work.task, str(folder), str(work.pairs + 1), str(work.cores))
    threads = {**ENVIRONMENT, "OMP_NUM_THREADS": str(work.cores)}
    with (
        asked([sys.executable, "-m", "benchmarks.peers.our_trainer", *given], env=ENVIRONMENT) as ours,
        asked([python, "-m", f"benchmarks.peers.{TRL.module}", *given], env=threads) as theirs,
    ):
        return [(ours("step"), _others(theirs)) for _ in range(work.pairs + 1)][1:]


def _others(step: Ask) -> dict[str, Any]:
    try:
        return step("step")
    except EngineFailure as error:
        raise NotMeasured(str(error)) from error


def compared(work: Work, measured: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> Bar:
    """The bar of one task: times our time per sampled token."""
    clock = "processor" if work.cores == 1 else "wall"
    ratios = sorted((b[clock] / b["sampled"]) / (a[clock] / a["sampled"]) for a, b in measured)
    mine, theirs = ([step[n] for step in measured] for n in (0, 1))
    said = " against ".join(
        f"{median(s[clock] for s in side):.2f} s and {median(s['sampled'] for s in side):,.0f} tokens"
        for side in (theirs, mine)
    )
    note = f"{said} ours; {len(ratios)} pairs, {ratios[0]:.2f} to {ratios[-1]:.2f}"
    return _bar(work, figure=median(ratios), note=note)


def _bar(work: Work, *, figure: float | None, note: str) -> Bar:
    name = f"{TRL.name}, {work.what}: times our cost"
    return Bar(
        name=name, figure=figure, bar=work.bar, aim=work.aim, unit="x", better="higher", note=note, promised=False
    )


def products(folder: Path) -> Bar:
    """The share of our own step that is none of the matrix products."""
    command = [sys.executable, "-m", "benchmarks.peers.our_products", folder]
    told = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    shares = json.loads(told.stdout)
    parts = f"rollout {shares['rollout']:.0f}%, update {shares['update']:.0f}%"
    note = f"{parts}; {shares['operators']:.0f}% of the operators' own time"
    return Bar(name="beside matrix products, one turn", figure=shares["all"], bar=18, aim=12, unit="%", note=note)


def bars() -> Iterator[Bar]:
    """One turn, several, and what our own step spends beside matrix products."""
    with tempfile.TemporaryDirectory() as scratch:
        for work in WORKS:
            folder = Path(scratch) / work.task
            try:
                python = python_of(TRL)
                yield compared(work, pairs(work, python, student(work.task, python, folder)))
            except NotMeasured as why:
                yield _bar(work, figure=None, note=str(why))
        yield products(student("count", Path(sys.executable), Path(scratch) / "own"))
