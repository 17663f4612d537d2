"""docs/api.md has every public name."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs/api.md"


@pytest.mark.parametrize(
    "module", ["wanderlust", "wanderlust_worlds", "wanderlust.algorithms", "wanderlust_data", "wanderlust.serving"]
)
def test_api_page_has_every_public_name(module):
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    listed = {line.removeprefix(f"::: {module}.") for line in lines if line.startswith(f"::: {module}.")}
    assert {name for name in listed if "." not in name} == set(importlib.import_module(module).__all__)


@pytest.mark.parametrize(
    "module", ["wanderlust", "wanderlust.algorithms", "wanderlust_data", "wanderlust_worlds", "wanderlust.serving"]
)
def test_type_checkers_and_the_site_see_every_public_name(module: str) -> None:
    """What is imported when it is first used is written out under TYPE_CHECKING, which is all that they read."""
    home = importlib.import_module(module)
    tree = ast.parse(Path(str(home.__file__)).read_text())
    written = {
        name.asname or name.name
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for name in line.names
    }
    assert set(home.__all__) - written == set()


def test_the_top_level_stays_small() -> None:
    assert len(importlib.import_module("wanderlust").__all__) <= 60
