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
def test_the_stub_and_the_module_have_the_same_names(module: str) -> None:
    """Type checkers and the site read the stub as Python; the module reads its lines."""
    home = importlib.import_module(module)
    tree = ast.parse(Path(str(home.__file__)).with_suffix(".pyi").read_text(encoding="utf-8"))
    written = {name.asname for line in tree.body if isinstance(line, ast.ImportFrom) for name in line.names}
    assert written == set(home.__all__)
    for name in home.__all__:
        assert getattr(home, name) is not None


def test_the_top_level_stays_small() -> None:
    assert len(importlib.import_module("wanderlust").__all__) <= 60
