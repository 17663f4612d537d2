"""Games over HTTP: playable environments and sessions; the world of a rollout, and branches that continue it."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.errors import UsageError, one_line
from wanderlust.store.run_folder import BRANCH_STAGE, HUMAN_POLICY
from wanderlust.studio import games
from wanderlust.studio.grid_view import CONSENT, with_person
from wanderlust.studio.requests import (
    json_response,
    load_stored_rollout,
    path_number,
    query_number,
    query_text,
    request_body,
    requested_run,
    resolve_trusted_environment,
    studio_state,
)
from wanderlust.studio.run_index import settings_of
from wanderlust.studio.world_view import WorldView
from wanderlust.tasks.registry import environment_name


def get_playable(request: Request) -> Response:
    """Environments, checkpoints to play against, and the games under way."""
    here = studio_state(request)
    return json_response(
        {
            "environments": games.playable_environments(),
            "checkpoints": games.checkpoint_records(here.folders()),
            "sessions": here.games.list(),
            "consent": CONSENT,
        }
    )


def get_tasks(request: Request) -> Response:
    """Some tasks of a split."""
    env, split = query_text(request, "env"), query_text(request, "split", "train")
    offset, limit = (
        query_number(request, "offset", 0, maximum=games.MAX_TASKS_SEARCHED),
        query_number(request, "limit", 50, maximum=games.MAX_TASKS_LISTED),
    )
    return json_response(games.task_records(env, split, offset=offset, limit=limit))


async def post_session(request: Request) -> Response:
    """A new session."""
    body = await request_body(request)

    def begun() -> dict[str, Any]:
        here = studio_state(request)
        setting = games.game_setting(body, root=here.plays_folder, folders=here.folders())
        setting = with_person(setting, body.get("person"), here.plays_folder)
        return here.session(here.games.begin(setting))

    return json_response(await run_in_threadpool(begun))


def get_session(request: Request) -> Response:
    """A session as it stands."""
    here = studio_state(request)
    return json_response(here.session(here.games.record(_id(request))))


def get_session_apps(request: Request) -> Response:
    """The apps of the world that a session is played in, as they stand."""
    return json_response(studio_state(request).games.apps(_id(request)))


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
    Route("/api/play/{session}/apps", get_session_apps),
    Route("/api/play/{session}/act", post_turn, methods=["POST"]),
)


def _view(request: Request) -> WorldView:
    return studio_state(request).views.view(requested_run(request), path_number(request, "id"))


def get_world(request: Request) -> Response:
    """The world of a rollout without its states."""
    return json_response(_view(request).record())


def get_world_state(request: Request) -> Response:
    """The state of every app after entry `n`; -1 is the start."""
    return json_response(_view(request).at(_moment(request, "n")))


def get_world_difference(request: Request) -> Response:
    """Changes between the moments after two entries."""
    view = _view(request)
    return json_response(view.difference(_moment(request, "from"), _moment(request, "to")))


def _moment(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > 12 or int(text) < -1:
        raise UsageError(f"{name} must be the number of an entry, or -1, and is {one_line(text, 40)!r}")
    return int(text)


async def post_branch(request: Request) -> Response:
    """Begin a session that continues a rollout from a moment, by hand or with a policy."""
    body = await request_body(request)

    def begun() -> dict[str, Any]:
        moment, policy = body.get("n"), body.get("policy", HUMAN_POLICY)
        if not isinstance(moment, int) or not isinstance(policy, str):
            raise UsageError("say from where, as the number n of an entry, and with which policy")
        here, where, id = studio_state(request), requested_run(request), path_number(request, "id")
        played, env = load_stored_rollout(where, id)
        resolved = resolve_trusted_environment(settings_of(where.folder), env)
        settings = {"env": environment_name(resolved.target), "policy": policy, BRANCH_STAGE: str(where.folder)}
        name = f"branch-{where.folder.name}"
        setting = games.branch_setting(
            played,
            moment,
            resolved,
            policy=policy,
            since={"run": where.key, "rollout": id},
            save=games.rollout_saver(where.folder.parent, resolved, name=name, settings=settings),
            opponents=games.opponent_checkpoints(here.folders()),
        )
        return {"session": here.session(here.games.begin(setting))}

    return json_response(await run_in_threadpool(begun))


_ROOT = "/api/runs/{key}/rollouts/{id}/world"
WORLD_ROUTES = (
    Route(_ROOT, get_world),
    Route(f"{_ROOT}/at", get_world_state),
    Route(f"{_ROOT}/difference", get_world_difference),
    Route(f"{_ROOT}/branch", post_branch, methods=["POST"]),
)
