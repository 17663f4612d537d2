"""A look-alike of `AsyncOpenAI` over a recorded seat, for code written for the SDK.

It needs no package and takes a tenth of the SDK's processor time. Code that needs the SDK's own classes (isinstance,
`except openai.APIError`, `.parse`, agent frameworks) takes `serving.openai_sdk.openai_client`, the real client over
the same seat.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Self, TypeVar

from wanderlust.agent import Agent
from wanderlust.serving.agent_api import AgentAPI

_ABSENT = frozenset(
    {"annotations", "audio", "completion_tokens_details", "content", "error", "function_call", "incomplete_details"}
    | {"instructions", "logprobs", "name", "prompt_tokens_details", "reasoning", "reasoning_content", "refusal"}
    | {"role", "service_tier", "system_fingerprint", "temperature", "tool_calls", "top_p", "usage"}
)
"""Optional fields of the SDK's answers: where ours leave them out, they read as None."""


class JsonRecord(SimpleNamespace):
    """JSON data with the attributes and methods that programs use on the SDK's objects."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """`data` and all objects in it as records."""
        return cls(**{name: _record(value) for name, value in data.items()})

    def __getattr__(self, name: str) -> None:
        if name not in _ABSENT:
            raise AttributeError(f"an answer of a recorded seat has no {name!r}")

    @property
    def output_text(self) -> str:
        """All text of a response."""
        parts = [part for item in self.output if item.type == "message" for part in item.content]
        return "".join(part.text for part in parts)

    def model_dump(self, *, exclude_none: bool = False, **_: Any) -> dict[str, Any]:
        """As plain JSON data."""
        whole = {name: _plain(value, exclude_none=exclude_none) for name, value in vars(self).items()}
        return {name: value for name, value in whole.items() if not (exclude_none and value is None)}

    def model_dump_json(self, *, indent: int | None = None, exclude_none: bool = False, **_: Any) -> str:
        """As JSON text."""
        return json.dumps(self.model_dump(exclude_none=exclude_none), indent=indent)

    to_dict = model_dump
    to_json = model_dump_json


def _record(value: Any) -> Any:
    if isinstance(value, Mapping):
        return JsonRecord.of(value)
    return [_record(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any, *, exclude_none: bool = True) -> Any:
    """JSON data out of what a program hands over: records, the SDK's own objects, or plain data already."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_plain(item) for item in value]
    return value.model_dump(exclude_none=exclude_none) if hasattr(value, "model_dump") else value


T = TypeVar("T")
_Take = Callable[[Mapping[str, Any]], Awaitable[T]]


class ChunkStream:
    """The look-alike of `AsyncStream`: an answer that is there already, piece by piece."""

    def __init__(self, pieces: Iterable[Mapping[str, Any]]):
        self._pieces: Iterator[Mapping[str, Any]] = iter(pieces)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> JsonRecord:
        for piece in self._pieces:
            return JsonRecord.of(piece)
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the rest unread."""
        self._pieces = iter(())


class Turns:
    """The look-alike of `client.chat.completions`, and of `client.responses`, where `previous_response_id` works."""

    def __init__(self, whole: _Take[Mapping[str, Any]], pieces: _Take[Iterable[Mapping[str, Any]]]):
        self._whole, self._pieces = whole, pieces

    async def create(self, **request: Any) -> Any:
        """Take one recorded turn of the seat; sampling options are ignored, as the policy decides them.

        Returns a JsonRecord, or a ChunkStream of them with `stream=True`. Raises StopEpisode at the seat's limits,
        PolicyFailure where the policy fails, UsageError for what the policy cannot do.
        """
        body = _plain(request)
        return ChunkStream(await self._pieces(body)) if body.get("stream") else JsonRecord.of(await self._whole(body))


class Client:
    """Has the interface of `AsyncOpenAI`; every call is a recorded, bounded turn of a seat (see `AgentAPI`)."""

    def __init__(self, *agents: Agent):
        """With several seats, a call's `model` names the one it is for."""
        front = AgentAPI({agent.trajectory.seat: agent for agent in agents})
        self.chat = SimpleNamespace(completions=Turns(front.chat, front.chat_events))
        self.responses = Turns(front.respond, front.respond_events)

    def with_options(self, **_: Any) -> Self:
        """Return itself: there is nothing to time out or to retry here."""
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def close(self) -> None:
        """Nothing to close."""
