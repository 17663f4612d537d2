"""The state that all routes share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from starlette.requests import Request

from wanderlust.store.queries import SortedPages
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import RUNS_FOLDER
from wanderlust.studio.games import GameSessions
from wanderlust.studio.run_index import RunIndex, RunLocation, open_run_store
from wanderlust.studio.world_view import WorldViews


@dataclass(frozen=True, slots=True, kw_only=True)
class StudioState:
    """The state behind the routes."""

    index: RunIndex
    sorted_pages: SortedPages = field(default_factory=SortedPages)
    plays_folder: Path = RUNS_FOLDER
    """Folder of the runs of games that are played here."""
    games: GameSessions = field(default_factory=GameSessions)
    views: WorldViews = field(default_factory=WorldViews)

    def folders(self) -> list[Path]:
        """The folders of all runs."""
        return [place.folder for place in [*self.index.locations.values()]]

    def session(self, record: dict[str, Any]) -> dict[str, Any]:
        """A game as JSON data, with its place as `stored`: the run's key, and the rollout's number."""
        saved = self.games.stored(record["id"])
        stored_at = None if saved is None else {"key": self.index.add(saved.folder), "id": saved.id}
        return {**record, "stored": stored_at}


def studio_state(request: Request) -> StudioState:
    """The state behind this request."""
    return cast(StudioState, request.app.state.studio)


def requested_run(request: Request) -> RunLocation:
    """The run that the path names. Raises NotFound."""
    return studio_state(request).index.location(str(request.path_params["key"]))


def requested_reader(request: Request) -> RunReader:
    """The store of the run that the path names, for this request alone. Raises NotFound and StoreError."""
    return open_run_store(requested_run(request))
