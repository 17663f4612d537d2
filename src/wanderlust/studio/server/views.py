"""The worlds that are looked at: rollouts with the environment that they were played in, as far as it may be made."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from wanderlust.core.errors import UsageError, WanderlustError
from wanderlust.core.text import one_line
from wanderlust.core.types import Rollout
from wanderlust.environments.named import ready_made
from wanderlust.studio.resolve import Found, find_environment
from wanderlust.studio.server.answers import NotFound
from wanderlust.studio.server.catalogue import Place, opened
from wanderlust.studio.server.facts import settings_of
from wanderlust.studio.server.world_view import WorldView

KEPT = 8
"""Worlds that are kept open: each is somebody's scrubbing back and forth."""


class Views:
    """The worlds that were looked at last. Rollouts never change, so that a view stays right."""

    def __init__(self) -> None:
        self._views: OrderedDict[tuple[Path, int, int], WorldView] = OrderedDict()
        self._lock = Lock()

    def view(self, where: Place, id: int) -> WorldView:
        """The world of a rollout. Raises NotFound, StoreError, and UsageError for one without a world."""
        file = where.store.stat().st_ino if where.store.exists() else 0  # a run may be made anew at the same place
        with self._lock:
            known = self._views.get((where.store, file, id))
        if known is None:
            played, env = stored(where, id)
            known = world_of(played, where.folder, env)
        with self._lock:
            self._views[where.store, file, id] = known
            self._views.move_to_end((where.store, file, id))
            while len(self._views) > KEPT:
                self._views.popitem(last=False)
        return known


def stored(where: Place, id: int) -> tuple[Rollout, str]:
    """A rollout, and what its run calls the environment. Raises NotFound and StoreError."""
    with opened(where) as store:
        rows = store.rollouts({"id": id})
        if not rows:
            raise NotFound(f"there is no rollout {id} in this run")
        return store.get(id), rows[0].env


def world_of(played: Rollout, folder: Path, env: str) -> WorldView:
    """The world of a rollout of the run in `folder`, whose row names `env`; what cannot be made again is said in it.

    Raises UsageError for a rollout that left no world.
    """
    try:
        return WorldView.of(played, trusted(settings_of(folder), env).env)
    except _Unknown as unknown:
        return WorldView.of(played, None, str(unknown))


class _Unknown(UsageError):
    """The environment of a run cannot be made, or must not be."""


def trusted(settings: Mapping[str, Any], env: str) -> Found:
    """The environment that a run was played in: a ready-made one, or one in a file below this folder.

    A run may come from anybody, and what it names is made by calling it: so nothing else is. Raises UsageError.
    """
    name = settings.get("env") or env
    if not isinstance(name, str) or not name:
        raise _Unknown("the run does not say in which environment it was played")
    where, _, rest = name.partition(",")
    known = ready_made()
    short = next((one for one, target in known.items() if target == where), where)
    if short not in known and not _ours(where):
        raise _Unknown(f"only ready-made environments and files below this folder are opened, not {one_line(name)!r}")
    try:
        return find_environment(f"{short},{rest}" if rest else short)
    except WanderlustError as error:
        raise _Unknown(f"the environment cannot be made: {one_line(str(error), 500)}") from error


def _ours(where: str) -> bool:
    file, colon, _ = where.rpartition(":")
    return bool(colon) and file.endswith(".py") and Path(file).resolve().is_relative_to(Path.cwd().resolve())
