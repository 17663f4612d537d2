"""The world of a rollout over HTTP: its past, its apps at any moment, and branches that go on from there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.errors import UsageError, one_line
from wanderlust.policies.resolve import environment_spec
from wanderlust.store.run_folder import BRANCH_STAGE, HUMAN_POLICY
from wanderlust.studio.games import branch_setting, opponent_checkpoints, rollout_saver
from wanderlust.studio.responses import json_response, path_number, request_body
from wanderlust.studio.run_index import settings_of
from wanderlust.studio.state import requested_run, studio_state
from wanderlust.studio.world_view import WorldView, load_stored_rollout, resolve_trusted_environment


def _view(request: Request) -> WorldView:
    return studio_state(request).views.view(requested_run(request), path_number(request, "id"))


def get_world(request: Request) -> Response:
    """All of it but the states."""
    return json_response(_view(request).record())


def get_world_state(request: Request) -> Response:
    """The state of every app after an entry; `n=-1` is the start."""
    return json_response(_view(request).at(_moment(request, "n")))


def get_world_difference(request: Request) -> Response:
    """What changed between the moments after two entries."""
    view = _view(request)
    return json_response(view.difference(_moment(request, "from"), _moment(request, "to")))


def _moment(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > 12 or int(text) < -1:
        raise UsageError(f"{name} must be the number of an entry, or -1, and is {one_line(text, 40)!r}")
    return int(text)


async def post_branch(request: Request) -> Response:
    """Go on from a moment, by hand or with a policy: a session of `play`."""
    body = await request_body(request)
    return json_response(await run_in_threadpool(_branch, request, body))


def _branch(request: Request, body: Mapping[str, Any]) -> dict[str, Any]:
    moment, policy = body.get("n"), body.get("policy", HUMAN_POLICY)
    if not isinstance(moment, int) or not isinstance(policy, str):
        raise UsageError("say from where, as the number n of an entry, and with which policy")
    where = requested_run(request)
    played, env = load_stored_rollout(where, path_number(request, "id"))
    resolved = resolve_trusted_environment(settings_of(where.folder), env)
    settings = {"env": environment_spec(resolved), "policy": policy, BRANCH_STAGE: str(where.folder)}
    room, name = where.folder.parent, f"branch-{where.folder.name}"
    setting = branch_setting(
        played, moment, resolved, policy=policy, since={"run": where.key, "rollout": path_number(request, "id")},
        save=rollout_saver(room, resolved, name=name, settings=settings), opponents=opponent_checkpoints(studio_state(request).folders()),
    )  # fmt: skip
    return {"session": studio_state(request).session(studio_state(request).games.begin(setting))}


_ROOT = "/api/runs/{key}/rollouts/{id}/world"
WORLD_ROUTES = (
    Route(_ROOT, get_world),
    Route(f"{_ROOT}/at", get_world_state),
    Route(f"{_ROOT}/difference", get_world_difference),
    Route(f"{_ROOT}/branch", post_branch, methods=["POST"]),
)
