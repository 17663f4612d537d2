"""HTTP answers of seats and models: whole, or written piece by piece; errors in the shape that SDKs parse."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from wanderlust.serving.dialect import Style


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP answer."""

    status: int
    body: bytes
    content_type: str = "application/json"
    retryable: bool = False
    """Whether the same request may succeed a little later."""

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer; the SDKs of OpenAI and Anthropic read `x-should-retry`."""
        return {"Content-Type": self.content_type, "x-should-retry": "true" if self.retryable else "false"}


Send = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ResponseStream:
    """An HTTP answer that is written while it is sampled, as server-sent events."""

    write: Callable[[Send], Coroutine[Any, Any, None]]
    cancel: Callable[[], object] = bool
    """To be called in the end: drops what is under way where the client has gone."""


_ANTHROPIC_ERRORS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
_GOOGLE_ERRORS: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
}


def error_data(status: int, message: str, *, code: str, style: Style = "openai") -> dict[str, Any]:
    """An error as JSON data, in the form of that API; `code` is OpenAI's alone."""
    if style == "anthropic":
        return {"type": "error", "error": {"type": _ANTHROPIC_ERRORS.get(status, "api_error"), "message": message}}
    if style == "google":
        return {"error": {"code": status, "message": message, "status": _GOOGLE_ERRORS.get(status, "INTERNAL")}}
    return {"error": {"message": message, "type": code, "param": None, "code": code}}


def error_response(
    status: int, message: str, *, code: str, retryable: bool = False, style: Style = "openai"
) -> HttpResponse:
    """Render an error in the shape that SDKs parse."""
    data = error_data(status, message, code=code, style=style)
    return HttpResponse(status, msgspec.json.encode(data), retryable=retryable)
