"""The command that goes on with a run, or makes it again."""

from __future__ import annotations

from pathlib import Path

from wanderlust.core.errors import StoreError
from wanderlust.recipes.folder import EVALUATION, open_folder
from wanderlust.studio.kept import again
from wanderlust.studio.output import command
from wanderlust.studio.server.facts import RunInfo

RESUMED = {"DemoConfig": "demo", "TrainConfig": "train"}
"""The command that goes on with a run of each recipe."""


def repeats(folder: Path, info: RunInfo) -> str | None:
    """None where the run does not say how it was begun, or is a finished one that learns: its report is there."""
    try:
        run = open_folder(folder)
    except StoreError:
        return None
    if run is None:
        return None
    if run.recipe == EVALUATION and "env" in run.config:
        return again(run.config, out=None if info.finished else folder)
    name = RESUMED.get(run.recipe)
    return command(name, "--resume", folder) if name and not info.finished else None
