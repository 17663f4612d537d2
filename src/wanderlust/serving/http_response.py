"""HTTP answers of seats and models: whole, or written piece by piece; errors in the shape that SDKs parse."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec


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
        """Headers of the answer; OpenAI's SDKs read `x-should-retry`."""
        return {"Content-Type": self.content_type, "x-should-retry": "true" if self.retryable else "false"}


Send = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ResponseStream:
    """An HTTP answer that is written while it is sampled, as server-sent events."""

    write: Callable[[Send], Coroutine[Any, Any, None]]
    cancel: Callable[[], object] = bool
    """To be called in the end: drops what is under way where the client has gone."""


def error_response(status: int, message: str, *, code: str, retryable: bool = False) -> HttpResponse:
    """Render an error in the shape that SDKs parse."""
    error = {"message": message, "type": code, "param": None, "code": code}
    return HttpResponse(status, msgspec.json.encode({"error": error}), retryable=retryable)
