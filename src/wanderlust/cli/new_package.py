"""The folder of a package that a command begins: one file of code, one test, and what makes it installable."""

from __future__ import annotations

import keyword
from collections.abc import Callable
from pathlib import Path

from wanderlust.cli.output import show_result
from wanderlust.errors import UsageError

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "PROJECT"
version = "0.1.0"
dependencies = ["wanderlust"]
entry-points."wanderlust.GROUP".PROJECT = "TARGET"

[tool.hatch.build.targets.wheel]
only-include = ["MODULE.py"]
"""


def write_package(
    name: str, group: str, target: str, *, code: str, test: str, trial: Callable[[str], str], json: bool
) -> None:
    """Write the files, and print what comes next; `trial` is the command that tries what the package brings, by name.

    In the texts and in the target of the entry point stand MODULE, PROJECT and CLASS for the package's own names.
    Raises UsageError for what is no name, and where the folder exists.
    """
    module, folder = name.replace("-", "_").lower(), Path(name)
    if not module.isidentifier() or not module.isascii() or keyword.iskeyword(module) or module == "wanderlust":
        raise UsageError(f"{name!r} cannot be the name of a package: letters, digits, - and _, a letter first")
    if folder.exists():
        raise UsageError(f"{name} exists already")
    project, class_name = module.replace("_", "-"), module.title().replace("_", "")
    texts = {"pyproject.toml": PYPROJECT, f"{module}.py": code, f"test_{module}.py": test}
    own = {"TARGET": target, "GROUP": group, "MODULE": module, "PROJECT": project, "CLASS": class_name}
    for word, value in own.items():  # a target names the module
        texts = {file: text.replace(word, value) for file, text in texts.items()}
    folder.mkdir()
    for file, text in texts.items():
        (folder / file).write_text(text)
    steps = [f"pip install -e {folder}", trial(project), f"pytest {folder}"]
    body = {"folder": str(folder), "files": [*texts], "next": steps}
    show_result(body, f"{folder}/ has {', '.join(texts)}. Next:", *(f"  {step}" for step in steps), json=json)
