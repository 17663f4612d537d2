"""Folders of games as the official toolkit has them: `metadata.json` beside the source of a game's class.

Games of ours are written as such; games of anybody are found. Nothing of what a folder holds is run here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from wanderlust.errors import UsageError, one_line
from wanderlust_grids.generation import make_game

METADATA_FILE = "metadata.json"
MAX_METADATA_BYTES = 1 << 20
MAX_GAMES = 10_000
"""Of a folder."""
_SOURCE = """\"\"\"The grid game {key} of Wanderlust, whose package it needs.\"\"\"

from wanderlust_grids.official_game import official_game

{name} = official_game({key!r})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameFiles:
    """A game of a folder."""

    id: str
    class_name: str
    baselines: tuple[int, ...]
    """Actions of people by level; empty where the metadata has none."""
    folder: Path
    """Where the source lies."""

    @property
    def source(self) -> Path:
        """The file with the class. Raises UsageError where there is none."""
        for name in (self.class_name.lower(), self.class_name):
            if (file := self.folder / f"{name}.py").is_file():
                return file
        raise UsageError(f"{self.folder} has no {self.class_name.lower()}.py, the source of its game {self.id}")


def export_games(keys: Iterable[str], folder: Path) -> list[Path]:
    """Write games of ours into a folder that the official toolkit reads; returns the folders of the games.

    Baselines are the shortest solutions. A file names its game by the key, and needs this package to play it: whoever
    has the file of a private game can play that game, and no other one.
    """
    return [_export(key, folder) for key in keys]


def _export(key: str, folder: Path) -> Path:
    split, _, number = key.partition("-")
    name, place = f"{split}{number}".capitalize(), folder / split / number
    game = make_game(key)
    place.mkdir(parents=True, exist_ok=True)
    metadata = {"game_id": key, "title": key, "class_name": name, "tags": list(game.mechanics)}
    text = json.dumps({**metadata, "baseline_actions": list(game.optimum)}, indent=2)
    (place / METADATA_FILE).write_text(f"{text}\n", encoding="utf-8")
    (place / f"{name.lower()}.py").write_text(_SOURCE.format(key=key, name=name), encoding="utf-8")
    return place


def find_games(folder: Path) -> list[GameFiles]:
    """The games below a folder, by their ids. Raises UsageError for a folder without any, and for bad metadata."""
    files = sorted(folder.rglob(METADATA_FILE))[: MAX_GAMES + 1]
    if not files or len(files) > MAX_GAMES:
        raise UsageError(f"{folder} has {'no' if not files else 'too many'} games: {METADATA_FILE} beside their source")
    games = sorted((_read(file) for file in files), key=lambda one: one.id)
    twice = [one.id for one, other in pairwise(games) if one.id == other.id]
    if twice:
        raise UsageError(f"{folder} has two games {twice[0]}: remove one of them")
    return games


def _read(file: Path) -> GameFiles:
    try:
        if file.stat().st_size > MAX_METADATA_BYTES:
            raise UsageError(f"{file} has more than {MAX_METADATA_BYTES:,} bytes")
        metadata = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} cannot be read: {one_line(str(error))}") from None
    if not isinstance(metadata, dict):
        raise UsageError(f"{file} is no JSON object")
    return _checked(metadata, file)


def _checked(metadata: Mapping[str, Any], file: Path) -> GameFiles:
    id, baselines = metadata.get("game_id"), metadata.get("baseline_actions") or []
    if not isinstance(id, str) or not id.replace("-", "").replace("_", "").isalnum() or len(id) > 100:
        raise UsageError(f"{file}: game_id is no name of letters, digits, - and _")
    name = metadata.get("class_name") or id[:4][:1].upper() + id[:4][1:]  # as the official toolkit makes one
    if not isinstance(name, str) or not name.isidentifier():
        raise UsageError(f"{file}: class_name is no name of a class")
    whole = isinstance(baselines, list) and all(type(one) is int and one > 0 for one in baselines)
    if not whole or len(baselines) > 254:
        raise UsageError(f"{file}: baseline_actions is no list of whole numbers from 1 on")
    return GameFiles(id=id, class_name=name, baselines=tuple(baselines), folder=file.parent)
