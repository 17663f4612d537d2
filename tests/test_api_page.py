"""docs/api.md has every public name."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs/api.md"


@pytest.mark.parametrize("module", ["wanderlust", "wanderlust.worlds", "wanderlust.algorithms", "wanderlust.serving"])
def test_api_page_has_every_public_name(module):
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    listed = {line.removeprefix(f"::: {module}.") for line in lines if line.startswith(f"::: {module}.")}
    assert {name for name in listed if "." not in name} == set(importlib.import_module(module).__all__)
