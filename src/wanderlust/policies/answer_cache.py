"""A cache of generations: the same request under the same key is answered from a folder. It is for evaluation alone.

Policies that draw by the key draw the same for it anyway; a hosted model does not, and its answers cost money. What is
cached is the policy's whole answer. Failures are never cached.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, closing
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import msgspec

from wanderlust.agent import release_conversation
from wanderlust.errors import PolicyFailure, StoreError
from wanderlust.types import (
    AnswerOptions,
    Completion,
    Message,
    OnText,
    Policy,
    SupportsOptions,
    Tool,
)

CACHE_FILE = "answers.db"
BUSY_SECONDS = 30.0
"""Patience with other processes that write to the same file."""
_TABLE = "create table if not exists answers (key blob primary key, answer blob not null) without rowid"
_answers = msgspec.json.Decoder(Completion)


class AnswerCache:
    """Completions by key, in a file of the folder, for any number of processes. StoreError where it cannot be used."""

    def __init__(self, folder: Path):
        self.path = folder / CACHE_FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as db:
                db.execute(_TABLE)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"cannot use {folder} as a cache of answers: {error}") from error

    def get(self, key: bytes) -> Completion | None:
        """The completion that was put under the key first."""
        try:
            with closing(self._open()) as db:
                row = db.execute("select answer from answers where key = ?", (key,)).fetchone()
            return None if row is None else _answers.decode(row[0])
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            raise StoreError(f"the cache {self.path} cannot be read: {error}") from error

    def put(self, key: bytes, completion: Completion) -> None:
        """Keep a completion, unless it holds half a character, which the file cannot."""
        try:
            answer = msgspec.json.encode(completion)
        except UnicodeEncodeError:
            return
        try:
            with closing(self._open()) as db, db:
                db.execute("insert or ignore into answers values (?, ?)", (key, answer))
        except sqlite3.Error as error:
            raise StoreError(f"the cache {self.path} cannot be written: {error}") from error

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=BUSY_SECONDS)


class CachedPolicy:
    """A policy that is asked only what the cache does not know.

    A request is the policy's label and settings, the conversation, the tools and the options. The key of the draw
    belongs to it, so that several samples of a task stay several samples.
    """

    def __init__(self, policy: Policy, cache: AnswerCache):
        self.policy, self.cache = policy, cache

    @property
    def label(self) -> Any:
        """The policy's own."""
        return getattr(self.policy, "label", type(self.policy).__name__)

    @property
    def model(self) -> str:
        """The policy's own."""
        return str(getattr(self.policy, "model", ""))

    @property
    def sampling(self) -> Any:
        """The policy's own."""
        return getattr(self.policy, "sampling", None)

    @property
    def accepts_images(self) -> bool:
        """The policy's own."""
        return bool(getattr(self.policy, "accepts_images", False))

    async def __aenter__(self) -> Self:
        if isinstance(self.policy, AbstractAsyncContextManager):
            await self.policy.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        if isinstance(self.policy, AbstractAsyncContextManager):
            await self.policy.__aexit__(*error)

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The answer from the cache, or the policy's."""
        return await self._answer(None, messages, tools, key=key)

    def unsupported_option(self, options: AnswerOptions) -> str:
        """As the policy says."""
        if isinstance(self.policy, SupportsOptions):
            return self.policy.unsupported_option(options)
        return next(iter(options.changed), "")

    async def complete_with_options(
        self,
        options: AnswerOptions,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        key: str = "",
        on_text: OnText | None = None,
    ) -> Completion:
        """As `complete`, with options."""
        return await self._answer(options, messages, tools, key=key)

    def release(self, key: str) -> None:
        """Tell the policy."""
        release_conversation(self.policy, key)

    async def _answer(
        self, options: AnswerOptions | None, messages: Sequence[Message], tools: Sequence[Tool], *, key: str
    ) -> Completion:
        declared = [(tool.name, tool.description, tool.schema) for tool in tools]
        settings = (self.label, repr(self.sampling), options or AnswerOptions())
        request = repr((settings, key, [*messages], declared)).encode(errors="backslashreplace")
        digest = sha256(request).digest()
        known = await asyncio.to_thread(self.cache.get, digest)
        if known is not None:
            return known
        if options is None:
            completion = await self.policy.complete(messages, tools, key=key)
        elif isinstance(self.policy, SupportsOptions):
            completion = await self.policy.complete_with_options(options, messages, tools, key=key)
        else:
            raise PolicyFailure(f"the policy cannot honour {', '.join(options.changed)}")
        await asyncio.to_thread(self.cache.put, digest, completion)
        return completion
