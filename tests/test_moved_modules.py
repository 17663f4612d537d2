"""Modules that have moved from the core to packages are found by the names that stored runs have of them."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from project_files import PACKAGES
from wanderlust._lazy import import_object, moved_module
from wanderlust.errors import UsageError

CORE = Path(__file__).parent.parent / "src"
MOVES = json.loads((CORE / "wanderlust/moved.json").read_text(encoding="utf-8"))


def is_face(old: str) -> bool:
    """Whether the core still offers the public names of a package under the old name."""
    file = CORE / f"{old.replace('.', '/')}.py"
    return file.exists() and "lazy_face(" in file.read_text(encoding="utf-8")


GONE = {old: new for old, new in MOVES.items() if not is_face(old)}


@pytest.mark.parametrize(("old", "new"), MOVES.items())
def test_a_module_that_moved_is_gone_from_the_core_and_is_in_a_package(old: str, new: str) -> None:
    assert not (CORE / old.replace(".", "/") / "__init__.py").exists()
    assert is_face(old) or not (CORE / f"{old.replace('.', '/')}.py").exists()
    assert new.partition(".")[0] in {f"wanderlust_{folder.name}" for folder in PACKAGES}
    assert find_spec(new) is not None
    assert import_object(f"{old}:__name__") == (new if old in GONE else old)


def test_names_below_a_package_that_moved_move_with_it() -> None:
    old, new = next(iter(GONE.items()))
    assert moved_module(f"{old}.below.it") == f"{new}.below.it"
    assert moved_module(f"{old}s") == f"{old}s"
    assert moved_module("wanderlust.environments.calculator") == "wanderlust.environments.calculator"
    assert moved_module("elsewhere.grids") == "elsewhere.grids"


def test_a_module_that_moved_twice_is_where_it_is_now() -> None:
    assert moved_module("wanderlust.worlds.life.brief_life") == "wanderlust_life.brief_life"
    assert moved_module("wanderlust.worlds.life.facts") == "wanderlust_worlds.verification.facts"


def test_a_module_below_a_face_is_no_second_copy() -> None:
    assert import_object("wanderlust.data.plan:__name__") == "wanderlust_data.plan"


def test_without_the_package_one_line_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = next(iter(GONE.items()))
    package = new.partition(".")[0]
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    extra = package.removeprefix("wanderlust_")
    with pytest.raises(
        UsageError, match=rf"'{package}': install it with pip install 'wanderlust\[({extra}|environments)\]'$"
    ):
        import_object(f"{old}.below:anything")


def test_a_name_that_never_was_is_refused_as_before() -> None:
    with pytest.raises(UsageError, match=r"cannot import 'wanderlust\.environments\.nobody'"):
        import_object("wanderlust.environments.nobody:Nobody")
