"""What all routes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from starlette.requests import Request

from wanderlust.rollout.reader import RunReader
from wanderlust.studio.server.catalogue import Catalogue, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Studio:
    """The state behind the routes."""

    catalogue: Catalogue


def studio(request: Request) -> Studio:
    """The state behind this request."""
    return cast(Studio, request.app.state.studio)


def place(request: Request) -> Place:
    """The run that the path names. Raises NotFound."""
    return studio(request).catalogue.place(str(request.path_params["key"]))


def reader(request: Request) -> RunReader:
    """The store of the run that the path names, for this request alone. Raises NotFound and StoreError."""
    return RunReader(place(request).store)
