"""What all routes share: the state behind them, requests' parameters and answers.

Answers are plain data as JSON, a failure one line. A run's environment is made only where it can be trusted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from wanderlust.errors import StoreError, UsageError, WanderlustError, one_line
from wanderlust.store.filters import FilterError
from wanderlust.store.queries import SortedPages
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import BRANCH_STAGE, RUNS_FOLDER
from wanderlust.studio.games import GameSessions, SaveRollout, rollout_saver
from wanderlust.studio.run_index import NotFound, RunIndex, RunLocation, open_run_store, settings_of
from wanderlust.studio.viewers import ShownRollout, Viewer
from wanderlust.tasks.registry import (
    ResolvedEnvironment,
    environment_name,
    installed_environments,
    resolve_environment,
)

JSON_TYPE = "application/json"
_encoder = msgspec.json.Encoder(enc_hook=str)


def encode_json(body: Any) -> bytes:
    """Encode plain data as JSON; NaN and infinities become null, other objects their text."""
    try:
        return _encoder.encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise StoreError(f"cannot be shown as JSON: {error}") from error


def json_response(body: Any, *, status: int = 200) -> Response:
    """Make a JSON response."""
    return Response(encode_json(body), status_code=status, media_type=JSON_TYPE)


def failure_response(request: Request, error: Exception) -> Response:
    """Make the response to a failure."""
    body: dict[str, Any] = {"error": one_line(str(error), 1000)}
    if isinstance(error, FilterError):
        body |= {"at": error.at, "fields": error.fields}
    status = 404 if isinstance(error, NotFound) else 400 if isinstance(error, UsageError) else 409
    return json_response(body, status=status)


async def request_body(request: Request) -> dict[str, Any]:
    """The JSON object in a request's body. Raises UsageError for anything else."""
    try:
        body = json.loads(await request.body())  # takes half a surrogate pair, as browsers write it
    except (ValueError, RecursionError, ClientDisconnect) as error:
        raise UsageError(f"the body of the request is no JSON: {one_line(str(error))}") from error
    if not isinstance(body, dict):
        raise UsageError("the body of the request is no JSON object")
    return body


def query_number(request: Request, name: str, default: int, *, maximum: int = 2**62) -> int:
    """A whole number of the query, from 0 to `maximum`. Raises UsageError."""
    text = request.query_params.get(name, str(default))
    if not text.isdecimal() or not text.isascii() or len(text) > 19 or int(text) > maximum:
        raise UsageError(f"{name} must be a whole number from 0 to {maximum}, and is {one_line(text, 40)!r}")
    return int(text)


def path_number(request: Request, name: str) -> int:
    """A whole number of the path."""
    text = str(request.path_params[name])
    if not text.lstrip("-").isdecimal() or not text.isascii() or len(text) > 19:
        raise NotFound(f"{name} must be a number, and is {one_line(text, 40)!r}")
    return int(text)


def query_text(request: Request, name: str, default: str = "") -> str:
    """A text of the query."""
    return request.query_params.get(name, default)


def load_shown(location: RunLocation, id: int) -> ShownRollout:
    """Load a rollout of a run. Raises NotFound and StoreError."""
    with open_run_store(location) as store:
        rows = store.rollouts({"id": id})
        if not rows:
            raise NotFound(f"there is no rollout {id} in this run")
        return ShownRollout(rollout=store.get(id), id=id, env=rows[0].env, folder=location.folder, store=location.store)


class EnvironmentUnavailable(UsageError):
    """The environment of a run cannot be made, or must not be."""


JUDGE_SETTINGS = ("judge", "judge_model")
"""Settings of environments that are left out: a judge may be a file, which runs, or a server, which gets the key."""


def resolve_trusted_environment(settings: Mapping[str, Any], env: str) -> ResolvedEnvironment:
    """Make a run's environment, if it is ready-made or in a file below the working folder, without its judge.

    A run may come from anybody, and making its environment runs code: so no other one is made. Raises UsageError.
    """
    name = settings.get("env") or env
    if not isinstance(name, str) or not name:
        raise EnvironmentUnavailable("the run does not say in which environment it was played")
    where, *rest = (part for part in name.split(",") if part.partition("=")[0] not in JUDGE_SETTINGS)
    names = installed_environments()
    short = next((one for one, target in names.items() if target == where), where)
    file, colon, _ = where.rpartition(":")
    is_file = bool(colon) and file.endswith(".py")
    if short not in names and not (is_file and Path(file).resolve().is_relative_to(Path.cwd().resolve())):
        raise EnvironmentUnavailable(
            f"only ready-made environments and files below this folder are opened, not {one_line(name)!r}"
        )
    try:
        return resolve_environment(",".join([short, *rest]))
    except WanderlustError as error:
        raise EnvironmentUnavailable(f"the environment cannot be made: {one_line(str(error), 500)}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class StudioState:
    """The state behind the routes."""

    index: RunIndex
    sorted_pages: SortedPages = field(default_factory=SortedPages)
    plays_folder: Path = RUNS_FOLDER
    """Folder of the runs of games that are played here."""
    viewers: tuple[Viewer, ...] = ()
    games: GameSessions = field(default_factory=GameSessions)

    def folders(self) -> list[Path]:
        """The folders of all runs."""
        return [place.folder for place in [*self.index.locations.values()]]

    def session(self, record: dict[str, Any]) -> dict[str, Any]:
        """A game as JSON data, with its place as `stored`: the run's key, and the rollout's number."""
        saved = self.games.stored(record["id"])
        stored_at = None if saved is None else {"key": self.index.add(saved.folder), "id": saved.id}
        return {**record, "stored": stored_at}


def studio_state(request: Request) -> StudioState:
    """The state behind this request."""
    return cast(StudioState, request.app.state.studio)


def requested_run(request: Request) -> RunLocation:
    """The run that the path names. Raises NotFound."""
    return studio_state(request).index.location(str(request.path_params["key"]))


def requested_reader(request: Request) -> RunReader:
    """The store of the run that the path names, for this request alone. Raises NotFound and StoreError."""
    return open_run_store(requested_run(request))


def requested_branch(request: Request, policy: str) -> tuple[ShownRollout, ResolvedEnvironment, SaveRollout]:
    """The rollout that the path names, its environment, and how a game that goes on from it is stored.

    Raises NotFound, StoreError, and UsageError where the environment cannot be made.
    """
    where = requested_run(request)
    shown = load_shown(where, path_number(request, "id"))
    resolved = resolve_trusted_environment(settings_of(where.folder), shown.env)
    settings = {"env": environment_name(resolved.target), "policy": policy, BRANCH_STAGE: str(where.folder)}
    name = f"branch-{where.folder.name}"
    return shown, resolved, rollout_saver(where.folder.parent, resolved, name=name, settings=settings)
