"""Parts that installed packages declare as entry points, in the groups `wanderlust.*`.

Names come from the packages' metadata, so that listing them imports nothing. An object is imported when it is asked
for.
"""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from wanderlust._lazy import import_object
from wanderlust.errors import EnvironmentFailure, UsageError, WanderlustError, boundary, one_line


def declared(group: str, name: str | None = None) -> dict[str, EntryPoint]:
    """The entry points of a group, sorted by name, or those of one name alone.

    Raises UsageError, which names both packages, where two declare different objects under one name.
    """
    points = entry_points(group=group) if name is None else entry_points(group=group, name=name)
    found: dict[str, EntryPoint] = {}
    for point in sorted(points, key=lambda point: point.name):
        first = found.setdefault(point.name, point)
        if first.value != point.value:
            raise UsageError(
                f"{distribution_name(first)} and {distribution_name(point)} both declare {point.name!r} in {group}: "
                "uninstall one of them"
            )
    return found


def load(point: EntryPoint, target: str | None = None) -> Any:
    """The object of an entry point, or one that its package names elsewhere.

    Raises UsageError, which names the package, where it cannot be imported.
    """
    try:
        with boundary(EnvironmentFailure):
            return import_object(target or point.value)
    except WanderlustError as error:
        raise UsageError(
            f"{point.name!r} in {point.group}, of the package {distribution_name(point)}, cannot be loaded: "
            f"{one_line(str(error), 500)}"
        ) from error


def how_to_install(group: str, name: str) -> str:
    """What brings a name that a package beside the core declares, for an error in one line; empty where none does."""
    table: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("published.json").read_text("utf-8"))
    extra = table.get(group, {}).get(name)
    return f"install it with pip install 'wanderlust[{extra}]'" if extra else ""


def distribution_name(point: EntryPoint) -> str:
    """Name and version of the package that declares an entry point."""
    return "an unnamed package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
