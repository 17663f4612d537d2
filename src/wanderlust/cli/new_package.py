"""The folder of a package that a command begins."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from pathlib import Path

from wanderlust.cli.output import show_result
from wanderlust.errors import UsageError


def module_of_package(name: str) -> str:
    """The module of a package in the folder `name`. Raises UsageError for what is no name, and where it exists."""
    module = name.replace("-", "_").lower()
    if not module.isidentifier() or not module.isascii() or keyword.iskeyword(module) or module == "wanderlust":
        raise UsageError(f"{name!r} cannot be the name of a package: letters, digits, - and _, a letter first")
    if Path(name).exists():
        raise UsageError(f"{name} exists already")
    return module


def write_package(folder: Path, texts: Mapping[str, str], steps: Sequence[str], *, json: bool) -> None:
    """Write the files, and print what comes next."""
    folder.mkdir()
    for file, text in texts.items():
        (folder / file).write_text(text)
    body = {"folder": str(folder), "files": [*texts], "next": steps}
    show_result(body, f"{folder}/ has {', '.join(texts)}. Next:", *(f"  {step}" for step in steps), json=json)
