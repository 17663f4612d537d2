"""What the policies over providers' own APIs have in common; each API is a class of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, ClassVar

import msgspec
from yarl import URL

from wanderlust.agent.conversation_graph import draw_name
from wanderlust.policies.endpoint import HttpConnection, safe_url
from wanderlust.types import AnswerOptions, Completion, Message, OnText, Tool


class NativeEndpoint(HttpConnection, ABC):
    """A policy that asks a provider by its own API. Connections, retries and failures are those of `HttpConnection`.

    What an answer must be sent back with (signed reasoning) is kept in `Message.extra`, and sent back unchanged.
    """

    accepts_images: ClassVar[bool] = True

    def __init__(
        self,
        url: URL,
        model: str,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        extra_body: Mapping[str, Any] | None = None,
        **connection: Any,
    ):
        """`connection` are options of `HttpConnection`."""
        super().__init__(**connection)
        self.url, self.model = url, model
        self.temperature, self.max_tokens = temperature, max_tokens
        self._extra = dict(extra_body or {})
        settings = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
        self.sampling: Mapping[str, Any] = {**settings, **self._extra}
        """Settings that are sent with each request."""

    @property
    def label(self) -> str:
        """The model, and where it is; without user and query, which may be secret."""
        return f"{self.model} at {safe_url(self.url)}"

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Ask the provider; `usage` is what it reported."""
        return await self.complete_with_options(AnswerOptions(), messages, tools, key=key)

    async def complete_with_options(
        self,
        options: AnswerOptions,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        key: str = "",
        on_text: OnText | None = None,
    ) -> Completion:
        """Send the options with the request; the provider's refusal of one is a PolicyFailure."""
        draw = draw_name(key, messages)
        body = merge_fields(self.request(options, messages, tools, draw=draw), self._extra)
        return await self.ask(self.url, msgspec.json.encode(body), draw=draw, read=self.read)

    @abstractmethod
    def unsupported_option(self, options: AnswerOptions) -> str:
        """As in SupportsOptions."""

    @abstractmethod
    def request(
        self, options: AnswerOptions, messages: Sequence[Message], tools: Sequence[Tool], *, draw: str
    ) -> dict[str, Any]:
        """The body of a request; `draw` keys its seed, where the API has one."""

    @abstractmethod
    def read(self, body: bytes) -> Completion:
        """Read an answer. PolicyFailure for anything else."""

    def bound(self, options: AnswerOptions) -> int | None:
        """Tokens of an answer: the smaller of the policy's bound and the request's."""
        bounds = [bound for bound in (self.max_tokens, options.max_tokens) if bound is not None]
        return min(bounds, default=None)


def merge_fields(body: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Merge further fields into a body, objects by their own fields; a None removes a field."""
    out = dict(body)
    for name, value in extra.items():
        known = out.get(name)
        out[name] = merge_fields(known, value) if isinstance(value, Mapping) and isinstance(known, Mapping) else value
    return {name: value for name, value in out.items() if value is not None}


def seed_of(draw: str) -> int:
    """A seed of 31 bits that depends on `draw` alone."""
    return int.from_bytes(sha256(draw.encode(errors="surrogatepass")).digest()[:4]) >> 1
