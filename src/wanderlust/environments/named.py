"""Environments by name: ready-made ones of any installed package, and anybody's `package.module:Name`."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from wanderlust.core.contracts import Environment
from wanderlust.core.errors import EnvironmentFailure, UsageError, boundary
from wanderlust.core.extras import load

ENTRY_POINTS = "wanderlust.environments"


def ready_made() -> dict[str, str]:
    """`package.module:Name` of every installed environment, by its short name."""
    return {point.name: point.value for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda p: p.name)}


def named(target: str) -> Any:
    """The object at `package.module:Name` or `folder/file.py:Name`; modules in the current folder are found too.

    Raises UsageError when there is none.
    """
    where, _, name = target.rpartition(":")
    folder, module = Path.cwd(), where
    if where.endswith(".py"):
        file = Path(where).resolve()
        if not file.is_file():
            raise UsageError(f"there is no file {where}")
        folder, module = file.parent, file.stem
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return load(f"{module}:{name}")


def environment(target: str) -> Environment:
    """The environment that `named` finds: an object, or a class or function that makes one without arguments.

    Raises UsageError when there is none of that name, and
    EnvironmentFailure when its own code fails.
    """
    try:
        with boundary(EnvironmentFailure):
            found = named(target)
            made = found if isinstance(found, Environment) or not callable(found) else found()
    except EnvironmentFailure as failure:
        raise EnvironmentFailure(f"cannot make the environment {target}: {failure}") from failure
    if not isinstance(made, Environment):
        raise UsageError(f"{target} is no environment, but a {type(made).__name__}")
    return made
