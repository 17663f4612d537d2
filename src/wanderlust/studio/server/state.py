"""What all routes share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from starlette.requests import Request

from wanderlust.rollout.reader import RunReader
from wanderlust.studio.server.catalogue import Catalogue, Place, opened
from wanderlust.studio.server.orders import Orders


@dataclass(frozen=True, slots=True, kw_only=True)
class Studio:
    """The state behind the routes."""

    catalogue: Catalogue
    orders: Orders = field(default_factory=Orders)


def studio(request: Request) -> Studio:
    """The state behind this request."""
    return cast(Studio, request.app.state.studio)


def place(request: Request) -> Place:
    """The run that the path names. Raises NotFound."""
    return studio(request).catalogue.place(str(request.path_params["key"]))


def reader(request: Request) -> RunReader:
    """The store of the run that the path names, for this request alone. Raises NotFound and StoreError."""
    return opened(place(request))
