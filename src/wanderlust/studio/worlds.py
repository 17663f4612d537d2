"""The world of a rollout over HTTP: its past, its apps at any moment, and branches that go on from there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.errors import UsageError, one_line
from wanderlust.policies.resolve import written
from wanderlust.store.run_folder import HAND, ONWARD
from wanderlust.studio.games import keeper, onward, opponents_in
from wanderlust.studio.responses import answer, body_of, placed
from wanderlust.studio.run_index import settings_of
from wanderlust.studio.state import place, studio
from wanderlust.studio.world_view import WorldView, stored, trusted


def _view(request: Request) -> WorldView:
    return studio(request).views.view(place(request), placed(request, "id"))


def world(request: Request) -> Response:
    """All of it but the states."""
    return answer(_view(request).record())


def at(request: Request) -> Response:
    """The state of every app after an entry; `n=-1` is the start."""
    return answer(_view(request).at(_moment(request, "n")))


def difference(request: Request) -> Response:
    """What changed between the moments after two entries."""
    seen = _view(request)
    return answer(seen.difference(_moment(request, "from"), _moment(request, "to")))


def _moment(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > 12 or int(text) < -1:
        raise UsageError(f"{name} must be the number of an entry, or -1, and is {one_line(text, 40)!r}")
    return int(text)


async def branch(request: Request) -> Response:
    """Go on from a moment, by hand or with a policy: a session of `play`."""
    body = await body_of(request)
    return answer(await run_in_threadpool(_branch, request, body))


def _branch(request: Request, body: Mapping[str, Any]) -> dict[str, Any]:
    moment, policy = body.get("n"), body.get("policy", HAND)
    if not isinstance(moment, int) or not isinstance(policy, str):
        raise UsageError("say from where, as the number n of an entry, and with which policy")
    where = place(request)
    played, env = stored(where, placed(request, "id"))
    found = trusted(settings_of(where.folder), env)
    settings = {"env": written(found), "policy": policy, ONWARD: str(where.folder)}
    room, name = where.folder.parent, f"branch-{where.folder.name}"
    setting = onward(
        played, moment, found, policy=policy, since={"run": where.key, "rollout": placed(request, "id")},
        keep=keeper(room, found, name=name, settings=settings), opponents=opponents_in(studio(request).folders()),
    )  # fmt: skip
    return {"session": studio(request).session(studio(request).games.begin(setting))}


_ROOT = "/api/runs/{key}/rollouts/{id}/world"
ROUTES = (
    Route(_ROOT, world),
    Route(f"{_ROOT}/at", at),
    Route(f"{_ROOT}/difference", difference),
    Route(f"{_ROOT}/branch", branch, methods=["POST"]),
)
