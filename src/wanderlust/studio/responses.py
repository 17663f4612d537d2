"""Requests' parameters, and answers: plain data as JSON, a failure as one line."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from wanderlust.errors import StoreError, UsageError, WanderlustError, one_line
from wanderlust.store.filters import FilterError

JSON_TYPE = "application/json"
_encoder = msgspec.json.Encoder(enc_hook=str)


class NotFound(WanderlustError):
    """There is nothing of that name (404)."""


class Refused(WanderlustError):
    """The request is not allowed (403)."""


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
    statuses = ((NotFound, 404), (Refused, 403), (UsageError, 400))
    return json_response(body, status=next((status for kind, status in statuses if isinstance(error, kind)), 409))


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
