"""Duplicates among a million rows: processor time and memory of a process that does nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bar import Bar

MILLION = 1_000_000


def million() -> dict[str, float]:
    """Processor seconds and memory of one search among a million rows, in a process of its own."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("data_million.py"), str(MILLION)],
        check=True,
        capture_output=True,
        text=True,
    )
    body: dict[str, float] = json.loads(done.stdout)
    return body


def bars() -> Iterator[Bar]:
    """Both, of one search."""
    cost = million()
    note = (
        f"{cost['removed']:,.0f} of {cost['rows']:,.0f} rows removed; {cost['found']:.3f} of the planted copies found"
    )
    yield Bar(name="a million rows: processor time", figure=cost["seconds"] / 60, bar=10, aim=3, unit="min", note=note)
    yield Bar(name="a million rows: memory", figure=cost["gigabytes"], bar=2, aim=1, unit="GB")
