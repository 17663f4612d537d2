"""Kuhn poker against itself: how much a perfect opponent wins from a small model, before and after; exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.bar import Bar
from benchmarks.courses import Learnt, learnt, told, walls
from wanderlust.environments.kuhn import exploitability, strategy
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.training.presets import KUHN


def exploited(checkpoint: Path) -> float:
    """Chips a deal, mean of the seats."""
    return exploitability(strategy(*load_pretrained(checkpoint)))


def bars() -> Iterator[Bar]:
    """Exploitability after self-play, the share of it that is left, and the longest run."""
    yield from judge(learnt(KUHN, exploited))


def judge(runs: list[Learnt]) -> Iterator[Bar]:
    """The bars of some seeds' figures."""
    what, note = "Kuhn poker, self-play", told(runs)
    worst = max(run.after for run in runs)
    yield Bar(name=f"{what}: exploitability, chips, worst seed", figure=worst, bar=0.2, aim=0.1, note=note)
    left = max(run.after / run.before for run in runs)
    yield Bar(name=f"{what}: share of it left, worst seed", figure=left, bar=0.5, aim=0.25, note=note)
    yield from walls(f"{what}: wall time of a run", runs, bar=600, aim=180)
