"""What was measured, kept: `benchmarks/results/NAME.json` with commit, code, machine and date of each subject."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.bar import Bar

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
ENTERED_BY_COMMAND = "by the command"
"""How figures came into a result; others were entered by hand once, and say from where."""


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def commit() -> str:
    """The commit that is checked out, with `+` behind it where code differs from it; empty without git."""
    changed = _git(
        "status", "--porcelain", "--", "src", "packages", "environments", "benchmarks", ":!benchmarks/results"
    )
    return _git("rev-parse", "--short=9", "HEAD") + "+" * bool(changed)


def machine() -> dict[str, Any]:
    """The processor, its cores and its load now, the system and the interpreter."""
    info = Path("/proc/cpuinfo")
    models = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return {
        "processor": models[0].partition(":")[2].strip() if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def save(name: str, bars: Sequence[Bar], *, seconds: float, code: str, folder: Path = RESULTS) -> Path:
    """Keep the bars of one subject in place of what was measured of it before.

    `seconds` is what measuring took, and `code` the digest of what was measured, taken before.
    """
    folder.mkdir(exist_ok=True)
    body = {
        "name": name,
        "measured": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit(),
        "code": code,
        "machine": machine(),
        "seconds": round(seconds),
        "entered": ENTERED_BY_COMMAND,
        "bars": [bar.record() for bar in bars],
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def load(folder: Path = RESULTS) -> dict[str, Mapping[str, Any]]:
    """Every result that is kept, by subject."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def is_current(result: Mapping[str, Any], code: str) -> bool:
    """Whether a command measured the subject whole, on code that has this digest."""
    return result.get("entered") == ENTERED_BY_COMMAND and result.get("code") == code
