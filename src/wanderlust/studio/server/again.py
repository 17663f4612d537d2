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


def repeats(folder: Path, info: RunInfo, said: object = None) -> str | None:
    """None where the run does not say how it was begun; `said` is what its store has to say about that."""
    try:
        run = open_folder(folder)
    except StoreError:
        return None
    if run is None:
        return None
    if run.recipe == EVALUATION and "env" in run.config:
        return again(run.config, out=None if info.finished else folder)
    name = RESUMED.get(run.recipe)
    if name and not info.finished:
        return command(name, "--resume", folder)
    if isinstance(said, list) and said[:1] == ["train"] and all(isinstance(word, str) for word in said):
        return command(*said, "--out", folder.with_name(f"{folder.name}-again"))
    return None
