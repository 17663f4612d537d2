"""The code that a subject's figures depend on, as one digest: its bars, and what they import of ours, in any depth.

Imports are read from the text, and so are our modules, environments and commands that bars name in a string. Comments,
docstrings and empty lines do not count.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from wanderlust.cli.commands import GROUP
from wanderlust.cli.main import COMMANDS
from wanderlust.plugins import declared
from wanderlust.tasks.registry import installed_environments

ROOT = Path(__file__).parent.parent
PARTS = ("src", "", "packages/*/src", "environments/*/src", "packages/*/bars", "environments/*/bars", "*/*/tools")
TARGET = re.compile(r"((?:wanderlust|benchmarks)[\w.]*)(?::\w+)?(?:,.*)?")
OFFERED = re.compile(r"(?m)^from (\S+) import (\w+) as \2$")
DIGEST_CHARS = 16


@cache
def _folders() -> list[Path]:
    return [folder for part in PARTS for folder in ([ROOT / part] if "*" not in part else sorted(ROOT.glob(part)))]


@cache
def _by_name() -> dict[str, str]:
    """The targets of commands and environments, which bars give to `wander` by name."""
    commands = {name: f"wanderlust.cli.{place}" for name, (place, _) in COMMANDS.items()}
    return commands | {name: one.value for name, one in declared(GROUP).items()} | installed_environments()


@cache
def file_of(module: str) -> Path | None:
    """The file of one of our modules; None for any other."""
    parts = module.split(".")
    places = (folder.joinpath(*parts) for folder in _folders())
    files = (file for place in places for file in (place.with_suffix(".py"), place / "__init__.py"))
    return next((file for file in files if file.is_file()), None)


@cache
def _offered(stub: Path) -> dict[str, str]:
    """The module of each name that a lazy module offers."""
    return {name: home for home, name in OFFERED.findall(stub.read_text("utf-8"))} if stub.is_file() else {}


def _imported(node: ast.stmt) -> Iterator[str]:
    """Modules that an import names, and those of the names that it takes."""
    if isinstance(node, ast.Import):
        yield from (name.name for name in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module
        home = file_of(node.module)
        lazy = _offered(home.with_suffix(".pyi")) if home is not None else {}
        for name in node.names:
            yield lazy.get(name.name, f"{node.module}.{name.name}")


@cache
def _read(file: Path) -> tuple[str, frozenset[str]]:
    """The text that counts, and the modules that it names."""
    text = file.read_text("utf-8")
    tree, found, gone = ast.parse(text), set[str](), set[int]()
    bars = not file.is_relative_to(ROOT / "src") and "src" not in file.relative_to(ROOT).parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {*_imported(node)}
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            gone |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
            found |= {*_named(node.value, bars=bars)}
    lines = enumerate(text.splitlines(), 1)
    kept = [line for number, line in lines if number not in gone and line.strip() and not line.lstrip().startswith("#")]
    return "\n".join(kept), frozenset(found)


def _named(text: str, *, bars: bool) -> Iterator[str]:
    """Modules of ours that a string names; in bars also those of commands, environments and programs."""
    if target := TARGET.fullmatch(text):
        yield target[1]
    if bars and (place := _by_name().get(text.partition(",")[0])):
        yield place.partition(":")[0]
    if bars and text.endswith(".py"):
        yield from (text.removesuffix(".py"), f"benchmarks.{text.removesuffix('.py')}")


def files_of(module: str) -> list[Path]:
    """The files of a module and of what it imports of ours, in any depth, with the packages that they are in."""
    found, waiting = set[Path](), [module]
    seen = {module}
    while waiting:
        name = waiting.pop()
        file = file_of(name)
        if file is None or file in found:
            continue
        found.add(file)
        parents = {name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)}
        new = (_read(file)[1] | parents) - seen
        seen |= new
        waiting += new
    return sorted(found)


@cache
def digest(module: str) -> str:
    """One digest of all those files."""
    code = hashlib.sha256()
    for file in files_of(module):
        code.update(f"{file.relative_to(ROOT).as_posix()}\0{_read(file)[0]}\0".encode())
    return code.hexdigest()[:DIGEST_CHARS]
