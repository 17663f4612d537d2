"""Installed packages for the time of a test: metadata and modules in a folder that is searched first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest


def install(
    folder: Path, patch: pytest.MonkeyPatch, *, name: str, points: Mapping[str, Mapping[str, str]], code: str = ""
) -> None:
    """Install version 0.1 of a package with these entry points, by group and name; `code` is its one module's."""
    info = folder / f"{name.replace('-', '_')}-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    lines = [
        line for group, some in points.items() for line in (f"[{group}]", *(f"{n} = {p}" for n, p in some.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (folder / f"{name.replace('-', '_')}.py").write_text(code)
    patch.syspath_prepend(str(folder))
