"""What all routes share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from starlette.requests import Request

from wanderlust.policies.resolve import RUNS
from wanderlust.store.queries import Orders
from wanderlust.store.reader import RunReader
from wanderlust.studio.games import Sessions
from wanderlust.studio.run_index import Catalogue, Place, opened
from wanderlust.studio.world_view import Views


@dataclass(frozen=True, slots=True, kw_only=True)
class Studio:
    """The state behind the routes."""

    catalogue: Catalogue
    orders: Orders = field(default_factory=Orders)
    plays: Path = RUNS
    """Where the games go that are played here."""
    games: Sessions = field(default_factory=Sessions)
    views: Views = field(default_factory=Views)

    def folders(self) -> list[Path]:
        """The folders of all runs."""
        return [place.folder for place in [*self.catalogue.places.values()]]

    def session(self, record: dict[str, Any]) -> dict[str, Any]:
        """A game as the page has it, with where it is `stored`: the run's key, and the rollout's number."""
        kept = self.games.stored(record["id"])
        found = None if kept is None else {"key": self.catalogue.add(kept.folder), "id": kept.id}
        return {**record, "stored": found}


def studio(request: Request) -> Studio:
    """The state behind this request."""
    return cast(Studio, request.app.state.studio)


def place(request: Request) -> Place:
    """The run that the path names. Raises NotFound."""
    return studio(request).catalogue.place(str(request.path_params["key"]))


def reader(request: Request) -> RunReader:
    """The store of the run that the path names, for this request alone. Raises NotFound and StoreError."""
    return opened(place(request))
