"""Pause, resume and stop over HTTP: the same socket as `wander ctl`."""

from __future__ import annotations

from typing import get_args

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.core.errors import UsageError
from wanderlust.rollout.control import Deed, ask
from wanderlust.studio.server.answers import answer
from wanderlust.studio.server.state import place, studio


class Wish(msgspec.Struct, rename={"deed": "do"}):
    """The body of the request."""

    deed: Deed


async def control(request: Request) -> Response:
    """Do that, and say how the run is now."""
    try:
        wish = msgspec.json.decode(await request.body(), type=Wish)
    except msgspec.MsgspecError as error:
        raise UsageError(f'the body must be {{"do": one of {", ".join(get_args(Deed))}}}') from error
    return await run_in_threadpool(_done, request, wish.deed)


def _done(request: Request, deed: Deed) -> Response:
    found = place(request)
    ask(found.folder, deed, by="studio")
    return answer(studio(request).catalogue.info(found))


ROUTES = (Route("/api/runs/{key}/control", control, methods=["POST"]),)
