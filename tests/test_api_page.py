"""docs/api.md has every public name."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/api.md"
FACES = {"wanderlust_worlds": "wanderlust.worlds", "wanderlust_data": "wanderlust.data"}
"""Packages whose names the core offers, too."""
PUBLIC = [
    str(path.relative_to(source).with_suffix("")).replace("/", ".").removesuffix(".__init__")
    for source in (ROOT / "src", *ROOT.glob("*/*/src"))
    for path in sorted(source.rglob("*.pyi"))
    if path.stem not in ("worlds", "data") and "wanderlust_optimize" not in path.parts
]
"""Modules of public names; the names of `wanderlust_optimize` are those of `wanderlust.algorithms`."""
PAGES = [
    path
    for pattern in ("README.md", "docs/*.md", "docs/tutorials/*.md", "*/*/README.md")
    for path in sorted(ROOT.glob(pattern))
]
IMPORT = re.compile(r"^[ ]*from (wanderlust[\w.]*) import (\([^)]*\)|[^\n(]+)$", re.MULTILINE)


@pytest.mark.parametrize("module", PUBLIC)
def test_api_page_has_every_public_name(module):
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    listed = {line.removeprefix(f"::: {module}.") for line in lines if line.startswith(f"::: {module}.")}
    assert {name for name in listed if "." not in name} == set(importlib.import_module(module).__all__)


@pytest.mark.parametrize("module", PUBLIC)
def test_the_stub_and_the_module_have_the_same_names(module: str) -> None:
    """Type checkers and the site read the stub as Python; the module reads its lines."""
    home = importlib.import_module(module)
    tree = ast.parse(Path(str(home.__file__)).with_suffix(".pyi").read_text(encoding="utf-8"))
    written = {name.asname for line in tree.body if isinstance(line, ast.ImportFrom) for name in line.names}
    assert written == set(home.__all__)
    for name in home.__all__:
        assert getattr(home, name) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_programs_of_the_docs_import_public_names_alone(page: Path) -> None:
    """A name that a page needs is offered at the top of its package, or in a module of public names."""
    home = "wanderlust"
    offered = {f"{module}.{name}" for module in PUBLIC for name in importlib.import_module(module).__all__}
    offered |= {f"{home}.{part}" for part in ("algorithms", "data", "errors", "serving", "testing", "worlds")}
    offered |= {f"{face}.{name}" for module, face in FACES.items() for name in importlib.import_module(module).__all__}
    offered |= {f"{home}.testing.{name}" for name in vars(importlib.import_module(f"{home}.testing"))}
    programs = "\n".join(re.findall(r"```python[^\n]*\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
    asked = {
        f"{module}.{name.strip()}"
        for module, names in IMPORT.findall(programs)
        for name in names.strip("()").split(",")
        if name.strip()
    }
    assert asked <= offered


def test_the_top_level_stays_small() -> None:
    assert len(importlib.import_module("wanderlust").__all__) <= 60
