"""Measure the bars: `python -m benchmarks [--only NAME ... | --quick | --slow] [--json]`; 1 if one is missed.

Each module `bars_NAME.py`, here or in the folder `bars` of a package, has a function `bars()` that yields `Bar`s as it
measures them. What a subject's bars were is kept in `benchmarks/results/NAME.json`, and the tables of
docs/benchmarks.md are written from there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from benchmarks import code, page, results, scale
from benchmarks.bar import Bar

PREFIX = "bars_"
HERE = Path(__file__).parent
PARTS = ("packages/*/bars", "environments/*/bars", "environments/*/tools")
"""Folders of the packages beside the core that have bars, and what bars import."""
QUICK = frozenset(
    {
        "batching",
        "coverage",
        "crowd",
        "endpoint",
        "exchange",
        "install",
        "judge",
        "oracle",
        "ray",
        "rubric",
        "sandbox",
        "seats",
        "store",
        "throughput",
    }
    | {"worlds"}
)
"""Subjects whose figures are processor time, ratios of two sides in turns, or counts: together half an hour at most."""


def subjects() -> list[str]:
    """The NAMEs that there are, in alphabetical order."""
    return sorted(_modules())


def _modules() -> dict[str, str]:
    """The module of each subject, by its NAME; those of packages are found in their folders."""
    own = {path.stem.removeprefix(PREFIX): f"benchmarks.{path.stem}" for path in HERE.glob(f"{PREFIX}*.py")}
    folders = [place for part in PARTS for place in sorted(HERE.parent.glob(part))]
    sys.path += [str(place) for place in folders if str(place) not in sys.path]
    paths = [path for place in folders for path in sorted(place.glob(f"{PREFIX}*.py"))]
    return own | {path.stem.removeprefix(PREFIX): path.stem for path in paths}


def measure(names: Sequence[str]) -> Iterator[Bar]:
    """Every bar of the named modules, as soon as it is measured; a subject's are kept when it is through."""
    for name in names:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        began, bars, measured = time.monotonic(), [], code.digest(_modules()[name])
        for bar in import_module(_modules()[name]).bars():
            bars.append(bar)
            yield bar
        results.save(name, bars, seconds=time.monotonic() - began, code=measured)
        write_pages()


def write_pages() -> None:
    """Write the tables of the two pages whose figures are stored results."""
    page.write_page(codes())
    scale.write_page()


def codes() -> dict[str, str]:
    """The digest of each subject's code as it is now."""
    return {name: code.digest(module) for name, module in _modules().items()}


def chosen(options: argparse.Namespace) -> list[str]:
    """The subjects that the options ask for; of the slow ones, those whose code was another when they were measured."""
    if options.only:
        return list(options.only)
    if options.quick:
        return sorted(QUICK)
    if options.slow:
        kept = results.load()
        return [
            name
            for name, now in sorted(codes().items())
            if name not in QUICK and not results.is_current(kept.get(name, {}), now)
        ]
    return subjects()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line per bar; 1 if any is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the project's bars afresh.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--only", action="append", choices=subjects(), metavar="NAME", help=", ".join(subjects()))
    which.add_argument("--quick", action="store_true", help=f"at most half an hour: {', '.join(sorted(QUICK))}")
    which.add_argument("--slow", action="store_true", help="the others whose code has changed since they were measured")
    which.add_argument("--page", action="store_true", help="only write the tables of the two pages of figures")
    parser.add_argument("--json", action="store_true", help="print one JSON list instead of lines")
    options = parser.parse_args(arguments)
    if options.page:
        write_pages()
        return 0
    measured = []
    for bar in measure(chosen(options)):
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
