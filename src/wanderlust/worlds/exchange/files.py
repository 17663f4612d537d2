"""Scenarios of ARE in files and folders. Errors name the file."""

from __future__ import annotations

from pathlib import Path

from wanderlust.worlds.events import ScenarioError
from wanderlust.worlds.exchange.imports import Imported, import_scenario

MOST_BYTES = 256 * 1024 * 1024
"""Of one file: a hundred times what Gaia2's have."""


def read_bytes(path: Path) -> bytes:
    """What is in a file. Raises ScenarioError in one line when it is not there, a folder, or too large."""
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MOST_BYTES else b""
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read: {error.strerror}") from error
    if size > MOST_BYTES:
        raise ScenarioError(f"{path} has {size:,} bytes, expected at most {MOST_BYTES:,}")
    return data


def read_scenario(path: Path) -> Imported:
    """The scenario in a file. Raises ScenarioError in one line that names the file, also where `read_bytes` does."""
    data = read_bytes(path)
    try:
        return import_scenario(data)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from error


def scenarios_in(folder: Path) -> dict[Path, Imported]:
    """The scenarios of all `*.json` files of a folder, in the order of their names.

    Raises ScenarioError for a folder without one, for the first file that cannot be played, and for two of one id.
    """
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise ScenarioError(f"{folder} has no files *.json, expected scenarios of ARE")
    found = {path: read_scenario(path) for path in paths}
    first: dict[str, Path] = {}
    for path, one in found.items():
        if first.setdefault(one.scenario.id, path) != path:
            raise ScenarioError(f"{path}: its scenario {one.scenario.id!r} is in {first[one.scenario.id]} as well")
    return found
