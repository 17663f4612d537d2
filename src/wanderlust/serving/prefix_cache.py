"""Cache of answered conversations: a request whose messages begin with one of them continues its sampled ids."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from wanderlust.types import Message, Tool

PREFIX_CACHE_ENTRIES = 32
"""Conversations; each holds a row of the engine's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedConversation:
    """A conversation that ends in an answer."""

    messages: tuple[Message, ...]
    ids: tuple[int, ...]
    """All ids that the model has read and sampled."""
    closed: bool
    session: str


class PrefixCache:
    """The latest answered conversations, by a hash of their messages and tools; least recently used ones are dropped.

    Answers that a program repeats with other spaces at their ends, or with arguments written anew, count as equal.
    """

    def __init__(self, on_drop: Callable[[str], None], *, max_entries: int = PREFIX_CACHE_ENTRIES):
        """`on_drop` is called with each session that is dropped."""
        self._on_drop, self._max_entries = on_drop, max_entries
        self._entries: OrderedDict[bytes, CachedConversation] = OrderedDict()

    def take(self, messages: Sequence[Message], tools: Sequence[Tool]) -> CachedConversation | None:
        """Remove and return the longest conversation that `messages` continue, under the same tools."""
        for digest in reversed(_digests(messages[:-1], tools)):
            if digest in self._entries:
                return self._entries.pop(digest)
        return None

    def put(self, conversation: CachedConversation, tools: Sequence[Tool]) -> None:
        """Store a conversation, and drop the least recently used ones above the bound."""
        digest = _digests(conversation.messages, tools)[-1]
        dropped = [self._entries.pop(digest)] if digest in self._entries else []
        while len(self._entries) >= self._max_entries:
            dropped.append(self._entries.popitem(last=False)[1])
        for old in dropped:
            self._on_drop(old.session)
        self._entries[digest] = conversation

    def clear(self) -> None:
        """Forget everything."""
        while self._entries:
            self._on_drop(self._entries.popitem()[1].session)


def _digests(messages: Sequence[Message], tools: Sequence[Tool]) -> list[bytes]:
    """Hash each beginning of the conversation."""
    declared = [(tool.name, tool.description, tool.schema) for tool in tools]
    state, out = blake2b(repr(declared).encode(errors="replace")), []
    for message in messages:
        calls = [(call.id, call.name, _value(call.arguments)) for call in message.tool_calls]
        content = message.content.strip() if message.role == "assistant" else message.content
        state.update(repr((message.role, content, calls, message.tool_call_id)).encode(errors="backslashreplace"))
        out.append(state.digest())
    return out


def _value(arguments: str) -> Any:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
