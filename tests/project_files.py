"""The project's Python files: those of the core, and those of every package beside it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = [
    path.parent
    for pattern in ("packages/*", "environments/*")
    for path in sorted(ROOT.glob(f"{pattern}/pyproject.toml"))
]
"""Folders of the packages beside the core."""


def python_files(part: str) -> list[Path]:
    """The files of one part, `src`, `tests`, `bars` or `tools`, of the core and of every package."""
    return [path for folder in (ROOT, *PACKAGES) for path in sorted((folder / part).rglob("*.py"))]


def module_name(path: Path) -> str:
    """The dotted name of a file of the part `src`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[parts.index("src") + 1 :]).removesuffix(".__init__")
