"""The studio as an ASGI application."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from wanderlust.core.errors import WanderlustError
from wanderlust.studio.resolve import RUNS
from wanderlust.studio.server import comparing, control, page, play, rollouts, rows, runs, stream, tokens, worlds
from wanderlust.studio.server.answers import answer, failed
from wanderlust.studio.server.catalogue import Catalogue
from wanderlust.studio.server.guard import Guard
from wanderlust.studio.server.state import Studio

ROUTES = (
    *runs.ROUTES,
    *rows.ROUTES,
    *rollouts.ROUTES,
    *tokens.ROUTES,
    *worlds.ROUTES,
    *play.ROUTES,
    *comparing.ROUTES,
    *control.ROUTES,
    *stream.ROUTES,
    *page.ROUTES,  # takes whatever is left
)


def application(
    roots: Sequence[Path], *, token: str, hosts: tuple[str, ...] = (), built: Path = page.PAGE, plays: Path = RUNS
) -> Starlette:
    """The studio over the runs at `roots`; every request needs the `token`. `built` is the front end's folder.

    Games that are played here are kept in runs below `plays`.
    """
    app = Starlette(
        routes=list(ROUTES),
        middleware=[Middleware(Guard, token=token, hosts=hosts)],
        exception_handlers={WanderlustError: failed, OSError: _unreadable},
    )
    app.state.studio, app.state.page = Studio(catalogue=Catalogue(roots), plays=plays), built
    return app


def _unreadable(request: Request, error: Exception) -> Response:
    return answer({"error": f"cannot be read: {error}"}, status=409)
