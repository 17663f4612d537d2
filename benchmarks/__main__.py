"""Measure the bars: `python -m benchmarks [--task NAME ...] [--json]`; exits with 1 if one is missed.

Each module `benchmarks/bars_NAME.py` has a function `bars()` that yields `Bar`s as it measures them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from benchmarks.bar import Bar

PREFIX = "bars_"


def subjects() -> list[str]:
    """The NAMEs that there are, in alphabetical order."""
    return sorted(path.stem.removeprefix(PREFIX) for path in Path(__file__).parent.glob(f"{PREFIX}*.py"))


def measure(names: Sequence[str]) -> Iterator[Bar]:
    """Every bar of the named modules, as soon as it is measured."""
    for name in names:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        yield from import_module(f"benchmarks.{PREFIX}{name}").bars()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line per bar; 1 if any is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the project's bars afresh.")
    parser.add_argument("--task", action="append", choices=subjects(), metavar="NAME", help=", ".join(subjects()))
    parser.add_argument("--json", action="store_true", help="print one JSON list instead of lines")
    options = parser.parse_args(arguments)
    measured = []
    for bar in measure(options.only or subjects()):
        measured.append(bar)
        if not options.json:
            print(bar.line(), flush=True)
    if options.json:
        print(json.dumps([bar.record() for bar in measured], indent=1))
    missed = [bar.name for bar in measured if not bar.met]
    print(f"{len(measured) - len(missed)} of {len(measured)} bars met", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
