"""Where games go that a person played, or that went on from a moment of a world: a run of their own per setting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from re import sub
from typing import Any

from wanderlust.core.types import Group, Rollout
from wanderlust.recipes.folder import CONFIG, PLAY, REPORT, STORE, open_folder
from wanderlust.rollout.store import RunStore

STAGE = "play"
ONWARD = "from"
"""The setting of a run that goes on from moments of another: which run that is."""
HAND = "hand"
"""How a person is named where a policy would be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where a game lies."""

    folder: Path
    id: int


def keep(played: Rollout, folder: Path, *, env: str, settings: Mapping[str, Any]) -> Stored:
    """Add a game to the run in `folder`, which is made when there is none. `settings` are what the run says of itself.

    Raises StoreError when somebody else is writing there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / CONFIG).exists():
        draft = folder / f"{CONFIG}.new"
        draft.write_text(json.dumps({"recipe": PLAY, "config": dict(settings)}, indent=2) + "\n")
        draft.rename(folder / CONFIG)
    path = folder / STORE
    with RunStore.open(path) if path.exists() else RunStore.create(path) as store:
        last = store.rollouts({"stage": STAGE}, order="-group", limit=1)
        index = last[0].group + 1 if last else 0
        store.sink(stage=STAGE, step=0, env=env)([Group(task=played.task, rollouts=[played], index=index)])
        (row,) = store.rollouts({"stage": STAGE, "group": index})
    (folder / REPORT).write_text(json.dumps({"played": index + 1}) + "\n")
    return Stored(folder=folder, id=row.id)


def folder_for(root: Path, name: str, settings: Mapping[str, Any]) -> Path:
    """The folder in `root` for games with these settings: `play-NAME`, and with a number where others took that."""
    slug = sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "game"
    for number in count(1):
        folder = root / (slug if number == 1 else f"{slug}-{number}")
        if not folder.exists():
            return folder
        run = open_folder(folder) if folder.is_dir() else None
        if run is not None and run.recipe == PLAY and dict(run.config) == dict(settings):
            return folder
    raise AssertionError("numbers do not end")
