"""What the default install costs: its packages, its size, and the wait before anything happens.

Measured in a virtual environment of its own, made afresh from this checkout without any extra.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.bar import Bar

ROOT = Path(__file__).parent.parent
REPEATS = 5
MEGABYTE = 1_000_000


def install(place: Path) -> Path:
    """A fresh environment with the default install; its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    binaries = place / "bin"
    subprocess.run([binaries / "python", "-m", "pip", "install", "-qq", "--no-input", ROOT], check=True)
    return binaries


def seconds(command: Sequence[str | Path]) -> tuple[float, float]:
    """Median wall-clock and processor seconds of a whole fresh process, without the first, which fills the caches."""
    clock, processor = [], []
    for _ in range(REPEATS + 1):
        started, before = time.perf_counter(), _children()
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        clock.append(time.perf_counter() - started)
        processor.append(_children() - before)
    return median(clock[1:]), median(processor[1:])


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def packages(binaries: Path) -> list[str]:
    """Installed distributions besides ourselves and pip with its tools."""
    command: list[str | Path] = [binaries / "python", "-m", "pip", "list", "--format", "json"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sorted({item["name"] for item in json.loads(listed)} - {"pip", "setuptools", "wanderlust"})


def megabytes(binaries: Path) -> float:
    """Size of what was installed besides pip and setuptools, compiled files left out."""
    site = next(binaries.parent.glob("lib/python*/site-packages"))
    ours = [
        top for top in site.iterdir() if not top.name.startswith(("pip", "setuptools", "pkg_resources", "_distutils"))
    ]
    files = [file for top in ours for file in ([top] if top.is_file() else top.rglob("*")) if file.is_file()]
    return sum(file.stat().st_size for file in files if file.suffix != ".pyc") / MEGABYTE


def bars() -> Iterator[Bar]:
    """Start-up time, number of packages and size of the default install."""
    with tempfile.TemporaryDirectory(prefix="wanderlust-bars-") as folder:
        binaries = install(Path(folder) / "venv")
        clock, processor = seconds([binaries / "python", "-c", ""])
        bare, bare_processor = f"bare interpreter {clock:.3f} s", f"bare interpreter {1000 * processor:.0f} ms"
        importing, spent = seconds([binaries / "python", "-c", "import wanderlust"])
        what = "import wanderlust, processor time"
        yield Bar(name=what, figure=1000 * spent, bar=150, aim=100, unit="ms", note=bare_processor)
        yield Bar(name="import wanderlust, fresh process", figure=importing, bar=0.5, aim=0.25, unit="s", note=bare)
        helping, _ = seconds([binaries / "wander", "--help"])
        yield Bar(name="wander --help, without torch", figure=helping, bar=0.5, aim=0.25, unit="s", note=bare)
        count = len(packages(binaries))
        yield Bar(name="packages the default install brings", figure=count, bar=30, aim=20)
        yield Bar(name="size of the default install", figure=megabytes(binaries), bar=50, aim=30, unit="MB")
