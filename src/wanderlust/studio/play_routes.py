"""Games over HTTP: playable environments and sessions."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.studio import games
from wanderlust.studio.requests import json_response, query_number, query_text, request_body, studio_state
from wanderlust.studio.viewers import SetupViewer


def get_playable(request: Request) -> Response:
    """Environments, checkpoints to play against, and the games under way."""
    here = studio_state(request)
    offers = [viewer.offer() for viewer in here.viewers if isinstance(viewer, SetupViewer)]
    return json_response(
        {
            **{name: value for offer in offers for name, value in offer.items()},
            "environments": games.playable_environments(here.viewers),
            "checkpoints": games.checkpoint_records(here.folders()),
            "sessions": here.games.list(),
        }
    )


def get_tasks(request: Request) -> Response:
    """Some tasks of a split."""
    env, split = query_text(request, "env"), query_text(request, "split", "train")
    offset, limit = (
        query_number(request, "offset", 0, maximum=games.MAX_TASKS_SEARCHED),
        query_number(request, "limit", 50, maximum=games.MAX_TASKS_LISTED),
    )
    return json_response(games.task_records(env, split, studio_state(request).viewers, offset=offset, limit=limit))


async def post_session(request: Request) -> Response:
    """A new session."""
    body = await request_body(request)

    def begun() -> dict[str, Any]:
        here = studio_state(request)
        setting = games.game_setting(body, root=here.plays_folder, folders=here.folders())
        for viewer in here.viewers:
            if isinstance(viewer, SetupViewer):
                setting = viewer.prepare(setting, body, here.plays_folder)
        return here.session(here.games.begin(setting))

    return json_response(await run_in_threadpool(begun))


def get_session(request: Request) -> Response:
    """A session as it stands."""
    here = studio_state(request)
    return json_response(here.session(here.games.record(_id(request))))


async def post_turn(request: Request) -> Response:
    """Take a turn."""
    body, here = await request_body(request), studio_state(request)
    return json_response(here.session(await run_in_threadpool(here.games.act, _id(request), body)))


def delete_session(request: Request) -> Response:
    """Throw a session away."""
    studio_state(request).games.drop(_id(request))
    return json_response({"dropped": _id(request)})


def _id(request: Request) -> str:
    return str(request.path_params["session"])


PLAY_ROUTES = (
    Route("/api/play", get_playable, methods=["GET"]),
    Route("/api/play", post_session, methods=["POST"]),
    Route("/api/play/tasks", get_tasks),
    Route("/api/play/{session}", get_session, methods=["GET"]),
    Route("/api/play/{session}", delete_session, methods=["DELETE"]),
    Route("/api/play/{session}/act", post_turn, methods=["POST"]),
)
