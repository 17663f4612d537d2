"""The table of modules that left the core is true: the old name is free, and the new one is a package's module."""

from __future__ import annotations

import json
import sys
from importlib.resources import files

import pytest

from project_files import PACKAGES, module_name, python_files
from wanderlust.errors import UsageError
from wanderlust.tasks.registry import resolve_object

TABLE: dict[str, str] = json.loads((files("wanderlust") / "tasks/moved.json").read_text("utf-8"))
MODULES = {module_name(path): path for path in python_files("src")}


def test_every_old_name_is_a_module_of_the_core_no_more():
    assert [name for name in TABLE if not name.startswith("wanderlust.") or name in MODULES] == []


def test_every_new_name_is_a_module_of_a_package():
    theirs = {name for name, path in MODULES.items() if any(path.is_relative_to(folder) for folder in PACKAGES)}
    assert {*TABLE.values()} <= theirs


def test_a_missing_package_is_one_line_that_says_how_to_get_it(monkeypatch):
    old, new = next(iter(TABLE.items()))
    package = new.partition(".")[0]
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        UsageError, match=rf"needs the package '{package}': install it with pip install 'wanderlust\[\w+\]'"
    ):
        resolve_object(f"{old}:Anything")
