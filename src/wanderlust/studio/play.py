"""Games over HTTP: what can be played, and sessions in which somebody plays it."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.studio import games
from wanderlust.studio.responses import answer, body_of, number, text
from wanderlust.studio.state import studio


def offered(request: Request) -> Response:
    """Environments, checkpoints to play against, and the games under way."""
    here = studio(request)
    return answer(
        {
            "environments": games.environments(),
            "checkpoints": games.checkpoints(here.folders()),
            "sessions": here.games.list(),
        }
    )


def tasks(request: Request) -> Response:
    """Some tasks of a split."""
    env, split = text(request, "env"), text(request, "split", "train")
    offset, limit = (
        number(request, "offset", 0, most=games.FAR),
        number(request, "limit", 50, most=games.MOST_TASKS),
    )
    return answer(games.tasks(env, split, offset=offset, limit=limit))


async def begin(request: Request) -> Response:
    """A new session."""
    body = await body_of(request)

    def begun() -> dict[str, Any]:
        here = studio(request)
        setting = games.seated(body, root=here.plays, folders=here.folders())
        return here.session(here.games.begin(setting))

    return answer(await run_in_threadpool(begun))


def session(request: Request) -> Response:
    """A session as it stands."""
    here = studio(request)
    return answer(here.session(here.games.record(_id(request))))


def apps(request: Request) -> Response:
    """The apps of the world that a session is played in, as they stand."""
    return answer(studio(request).games.apps(_id(request)))


async def act(request: Request) -> Response:
    """Take a turn."""
    body, here = await body_of(request), studio(request)
    return answer(here.session(await run_in_threadpool(here.games.act, _id(request), body)))


def drop(request: Request) -> Response:
    """Throw a session away."""
    studio(request).games.drop(_id(request))
    return answer({"dropped": _id(request)})


def _id(request: Request) -> str:
    return str(request.path_params["session"])


ROUTES = (
    Route("/api/play", offered, methods=["GET"]),
    Route("/api/play", begin, methods=["POST"]),
    Route("/api/play/tasks", tasks),
    Route("/api/play/{session}", session, methods=["GET"]),
    Route("/api/play/{session}", drop, methods=["DELETE"]),
    Route("/api/play/{session}/apps", apps),
    Route("/api/play/{session}/act", act, methods=["POST"]),
)
