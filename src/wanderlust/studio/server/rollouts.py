"""One rollout over HTTP: to read, whole, its tokens; and the group it belongs to."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wanderlust.core.messages import Message
from wanderlust.core.types import Rollout, Turn
from wanderlust.recipes.folder import EVALUATION
from wanderlust.rollout.reader import RunReader
from wanderlust.studio.server.answers import JSON, NotFound, answer, encoded, number, placed, text
from wanderlust.studio.server.facts import settings_of
from wanderlust.studio.server.opened import opened, siblings
from wanderlust.studio.server.state import place, reader

SIBLINGS = 64
"""Rollouts of a group that are shown beside each other."""


def rollout(request: Request) -> Response:
    """One rollout, its long texts cut."""
    with reader(request) as store:
        _there(store, placed(request, "id"))
        return answer(opened(store, placed(request, "id"), settings_of(place(request).folder, EVALUATION)))


def group(request: Request) -> Response:
    """The siblings of one task."""
    where = str(request.path_params["stage"]), placed(request, "step"), placed(request, "group")
    with reader(request) as store:
        found = siblings(store, where, settings_of(place(request).folder, EVALUATION), most=SIBLINGS)
    if not found["rollouts"]:
        raise NotFound(f"there is no group {where[2]} in step {where[1]} of {where[0]!r}")
    return answer(found)


def whole_text(request: Request) -> Response:
    """A text that was cut."""
    with reader(request) as store:
        turn = turn_of(get(request, store), number(request, "seat", 0), number(request, "turn", 0))
    message = _message(turn, text(request, "message", "-1"))
    said = message.reasoning or "" if text(request, "of") == "reasoning" else message.content
    return answer({"text": said})


def raw(request: Request) -> Response:
    """The whole record, to keep."""
    with reader(request) as store:
        played = get(request, store)
    name = f'attachment; filename="rollout-{placed(request, "id")}.json"'
    return Response(encoded(played), media_type=JSON, headers={"content-disposition": name})


def _there(store: RunReader, id: int) -> None:
    if not store.select("select 1 from rollouts where id = ?", id):
        raise NotFound(f"there is no rollout {id} in this run")


def get(request: Request, store: RunReader) -> Rollout:
    """The rollout that the path names. Raises NotFound."""
    _there(store, placed(request, "id"))
    return store.get(placed(request, "id"))


def turn_of(played: Rollout, seat: int, turn: int) -> Turn:
    """That turn. Raises NotFound."""
    if seat < len(played.trajectories) and turn < len(turns := played.trajectories[seat].turns):
        return turns[turn]
    raise NotFound(f"this rollout has no turn {turn} of seat {seat}")


def _message(turn: Turn, index: str) -> Message:
    said: Sequence[Message] = turn.observation
    if index == "-1":
        return turn.action
    if not index.isdecimal() or len(index) > 9 or int(index) >= len(said):
        raise NotFound("this turn has no such message")
    return said[int(index)]


ROUTES = (
    Route("/api/runs/{key}/rollouts/{id}", rollout),
    Route("/api/runs/{key}/rollouts/{id}/text", whole_text),
    Route("/api/runs/{key}/rollouts/{id}/raw", raw),
    Route("/api/runs/{key}/groups/{stage}/{step}/{group}", group),
)
