"""docs/metrics.md speaks of metrics that the code has, and has those of every training step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from project_files import ROOT, python_files

ROW = re.compile(r"^\| ((?:`[^`]+`(?:, )?)+) \|", re.MULTILINE)


def documented() -> set[str]:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    return {name for row in ROW.findall(page) for name in re.findall(r"`([^`]+)`", row)}


def text(paths: Iterable[Path]) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def test_documented_metrics_exist():
    code = text(python_files("src"))
    plain = {name for name in documented() if "/" not in name}
    assert len(plain) > 25
    assert sorted(name for name in plain if f'"{name}"' not in code) == []


def test_metrics_of_the_gradient_and_the_loop_are_documented():
    said = re.search(
        r"def metrics\(self\).*?return out", text((ROOT / "src/wanderlust/training").rglob("*.py")), re.DOTALL
    )
    assert said is not None
    names = {*re.findall(r'"(\w+)"', said[0])}
    assert {"loss", "entropy", "clip_fraction"} <= names
    assert names - documented() == set()
