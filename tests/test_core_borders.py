"""The core names nothing that is to leave it: no import, not for types alone, not late, and no module by string."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src/wanderlust"

LEAVES = {
    "worlds": (),
    "hub": (),
    "data": (),
    "recipes": (
        *("recipes/*", "evals/prompt_evolution.py"),
        *(
            "cli/lab.py",
            "cli/lab_entry.py",
            "cli/optimize_command.py",
            "cli/reasoner_command.py",
        ),
    ),
    "proofs": (),
    "grids": (),
    "inbox": (),
    "repository": (),
    "others": (
        *("environments/coding.py", "environments/connections.py", "environments/flawed_rewards.py"),
        *("environments/multi_agent.py", "environments/reasoning.py", "environments/writing.py"),
    ),
}
"""What becomes a package beside the core, as patterns below src/wanderlust; everything else is the core."""

EXCEPTIONS = {
    ("algorithms.py", "wanderlust.evals.prompt_evolution"): "public names, imported when they are first used",
    ("data.py", "wanderlust_data"): "the package's public names are offered under this name",
    ("training/presets.py", "wanderlust.environments.reasoning"): "a preset's text, which goes with the environment",
    ("worlds.py", "wanderlust_worlds"): "the package's public names are offered under this name",
}
"""The importing file and the imported module, with the reason why it may."""


def home_of(path: str) -> str:
    """The package that a file is to be in; empty for the core."""
    return next((name for name, patterns in LEAVES.items() if any(fnmatch(path, one) for one in patterns)), "")


def modules_of(source: Path) -> dict[str, str]:
    """The file of every module, below `source`."""
    paths = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.py"))
    names = (f"wanderlust.{path.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}" for path in paths)
    return dict(zip(names, paths, strict=True))


def named_in(tree: ast.AST) -> Iterator[str]:
    """What a file imports or names in its texts, as a dotted name that a module's name may be the beginning of."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\bwanderlust(?:\.\w+)+|\bwanderlust_\w+", node.value)
            if re.fullmatch(r"\w+(\.\w+)+(:\w+)?", node.value):  # as `lazy_names` takes them
                yield f"wanderlust.{node.value.partition(':')[0]}"


def crossings(source: Path) -> Iterator[tuple[str, str]]:
    """The core's files with the modules of other packages that they name."""
    modules = modules_of(source)
    for path in modules.values():
        if home_of(path):
            continue
        for name in named_in(ast.parse((source / path).read_text(encoding="utf-8"))):
            words = name.split(".")
            if words[0].removeprefix("wanderlust_") in LEAVES:
                yield path, words[0]
            begins = (".".join(words[:end]) for end in range(len(words), 1, -1))
            module = next((one for one in begins if one in modules), None)
            if module is not None and home_of(modules[module]):
                yield path, module


def test_every_pattern_finds_something_that_leaves():
    paths = set(modules_of(SOURCE).values())
    patterns = [pattern for some in LEAVES.values() for pattern in some]
    assert [one for one in patterns if not any(fnmatch(path, one) for path in paths)] == []


def test_the_core_names_nothing_that_leaves_it():
    found = {*crossings(SOURCE)}
    assert sorted(found - EXCEPTIONS.keys()) == []
    assert sorted(EXCEPTIONS.keys() - found) == [], "exceptions that nothing needs any more"


@pytest.mark.parametrize(
    "line",
    [
        "import wanderlust.recipes.sat.check",
        "from wanderlust.recipes.sat import check",
        "from wanderlust.recipes.sat.check import World",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from wanderlust.recipes.sat.check import World",
        "def late():\n    import wanderlust.recipes.sat.check",
        "PLACE = 'wanderlust.recipes.sat.check:World'",
        "PLACES = {'recipes.sat.check': 'World'}",
    ],
)
def test_a_module_across_the_border_is_found(tmp_path, line):
    for path, text in (("recipes/sat/check.py", ""), ("studio/offender.py", f"{line}\n")):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    assert {*crossings(tmp_path)} == {("studio/offender.py", "wanderlust.recipes.sat.check")}


@pytest.mark.parametrize(
    "line", ["from wanderlust_worlds.engine import world", "PLACE = 'wanderlust_worlds.engine:World'"]
)
def test_a_package_beside_the_core_is_found(tmp_path, line):
    (tmp_path / "offender.py").write_text(f"{line}\n")
    assert {*crossings(tmp_path)} == {("offender.py", "wanderlust_worlds")}
