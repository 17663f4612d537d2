"""The core names no package beside it: no import, not for types alone, not late, and no module by string."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from project_files import PACKAGES

SOURCE = Path(__file__).parent.parent / "src/wanderlust"
BESIDE = {path.name for folder in PACKAGES for path in (folder / "src").iterdir()}
"""Names under which the packages beside the core are imported."""

EXCEPTIONS = {
    ("algorithms.py", "wanderlust_optimize"): "three of the package's public names are offered under this name",
    ("algorithms.pyi", "wanderlust_optimize"): "three of the package's public names are offered under this name",
    ("data.py", "wanderlust_data"): "the package's public names are offered under this name",
    ("worlds.py", "wanderlust_worlds"): "the package's public names are offered under this name",
}
"""The importing file and the package, with the reason why it may."""


def named_in(tree: ast.AST) -> Iterator[str]:
    """The packages that a file imports or names in its texts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\bwanderlust_\w+", node.value)


def crossings(source: Path) -> Iterator[tuple[str, str]]:
    """The core's files with the packages that they name."""
    for path in [*source.rglob("*.py"), *source.rglob("*.pyi")]:
        for name in named_in(ast.parse(path.read_text(encoding="utf-8"))):
            if name in BESIDE:
                yield path.relative_to(source).as_posix(), name


def test_there_are_packages_beside_the_core():
    assert {"wanderlust_hub", "wanderlust_inbox"} < BESIDE


def test_the_core_names_no_package():
    found = {*crossings(SOURCE)}
    assert sorted(found - EXCEPTIONS.keys()) == []
    assert sorted(EXCEPTIONS.keys() - found) == [], "exceptions that nothing needs any more"


@pytest.mark.parametrize(
    "line",
    [
        "import wanderlust_worlds.engine",
        "from wanderlust_worlds import engine",
        "from wanderlust_worlds.engine.world import World",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from wanderlust_worlds.engine.world import World",
        "def late():\n    import wanderlust_worlds",
        "PLACE = 'wanderlust_worlds.engine:World'",
        "TEXT = f'{1} wanderlust_worlds.engine'",
    ],
)
def test_a_package_that_is_named_is_found(tmp_path, line):
    (tmp_path / "studio").mkdir()
    (tmp_path / "studio/offender.py").write_text(f"{line}\n")
    assert {*crossings(tmp_path)} == {("studio/offender.py", "wanderlust_worlds")}
