"""What judges said before: in memory, and in one SQLite file where it should outlive the process.

Asking a model for something that can be read: strictly parsed, asked again, cached, counted; never guessed.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec

from wanderlust.errors import RubricFailure, StoreError, UsageError, boundary
from wanderlust.types import Completion, Formatting, Message, Policy, assistant, user

REMEMBERED = 100_000
"""Verdicts kept in memory; the oldest go first."""

_SCHEMA = """
create table if not exists verdicts (
    key blob primary key, model text not null, answer text not null, usage text not null
) without rowid
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """An answer of a judge that could be read."""

    answer: str
    usage: Mapping[str, int] = field(default_factory=dict)
    """What all calls took that led to it."""


class VerdictCache:
    """Verdicts by judge model and prompt, with a `path` also on a local disk, for any number of processes.

    Failures are never kept. Raises StoreError when the file cannot be read or written.
    """

    def __init__(self, path: str | Path | None = None):
        self.path = None if path is None else Path(path)
        self._known: dict[bytes, Verdict] = {}
        self._db: sqlite3.Connection | None = None
        self._owner = 0

    def get(self, key: bytes) -> Verdict | None:
        """The verdict that was put under `key`."""
        found = self._known.get(key)
        if found is None and self.path is not None:
            with self._open() as db:
                row = db.execute("select answer, usage from verdicts where key = ?", (key,)).fetchone()
            if row is not None:
                found = Verdict(answer=row[0], usage=msgspec.json.decode(row[1], type=dict[str, int]))
                self._remember(key, found)
        return found

    def put(self, key: bytes, verdict: Verdict, *, model: str) -> None:
        """Keep a verdict. The first one put under a key stays on disk."""
        self._remember(key, verdict)
        if self.path is not None:
            row = key, model, verdict.answer, msgspec.json.encode(verdict.usage).decode()
            with self._open() as db:
                db.execute("insert or ignore into verdicts values (?, ?, ?, ?)", row)

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        db, self._db = self._db, None
        if db is not None and self._owner == os.getpid():
            db.close()

    def _remember(self, key: bytes, verdict: Verdict) -> None:
        if len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[key] = verdict

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            if self._db is None or self._owner != os.getpid():  # a connection must not cross a fork
                self._db, self._owner = sqlite3.connect(f"{self.path}", timeout=10, isolation_level=None), os.getpid()
                self._db.execute("pragma journal_mode = wal")
                self._db.execute("pragma synchronous = normal")
                self._db.execute(_SCHEMA)
            yield self._db
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            raise StoreError(f"{self.path}: the verdicts cannot be kept there: {error}") from error


LONGEST_ANSWER = 20_000
"""Characters of an answer that are shown again when it could not be read."""
TOKENS = ("prompt_tokens", "completion_tokens")
SPENT = ("calls", "retries", "cached", *TOKENS)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Why an answer cannot be read."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Generic[T]):
    """An answer that could be read."""

    value: T
    answer: str
    spent: Mapping[str, int]
    """Under the names in SPENT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """One model that is asked for verdicts.

    The same model, messages and number are asked once: whoever says the same meanwhile waits for the answer, and it is
    cached. Draws are keyed by the messages.
    """

    policy: Policy
    name: str
    what: str = "verdict"
    """What the answer is called in messages."""
    model: str = ""
    cache: VerdictCache
    attempts: int = 3
    timeout: float = 600.0
    """Wall-clock seconds of one answer."""
    form: Mapping[str, Any] | None = None
    """A `response_format` that the policy is held to; only for one that is Formatting."""
    _asking: WeakValueDictionary[bytes, asyncio.Lock]

    @classmethod
    def of(
        cls,
        policy: Policy,
        *,
        name: str,
        what: str = "verdict",
        model: str = "",
        cache: VerdictCache | None = None,
        attempts: int = 3,
        timeout: float = 600.0,
        form: Mapping[str, Any] | None = None,
    ) -> Asker:
        """Without `model` it is the policy's own name. UsageError when a cache that lasts would not know it.

        A policy that is not Formatting is asked in words alone, `form` or not.
        """
        named = model or str(getattr(policy, "model", ""))
        if cache is not None and not named:
            raise UsageError(f"the cache of {name!r} needs to know which model said what: give model=")
        return cls(
            policy=policy,
            name=name,
            what=what,
            model=named,
            cache=VerdictCache() if cache is None else cache,
            attempts=attempts,
            timeout=timeout,
            form=form if isinstance(policy, Formatting) else None,
            _asking=WeakValueDictionary(),
        )

    async def ask(
        self, messages: Sequence[Message], read: Callable[[str], T | Unread], *, number: int = 0
    ) -> Answered[T]:
        """An answer that `read` can read. RubricFailure after `attempts` others, or when the model fails."""
        asked = repr((self.model, number, [(m.role, m.content) for m in messages]))
        key = sha256(asked.encode("utf-8", "surrogatepass")).digest()
        async with self._asking.setdefault(key, asyncio.Lock()):
            known = self.cache.get(key)
            if known is not None and not isinstance(value := read(known.answer), Unread):
                return Answered(value=value, answer=known.answer, spent={"cached": 1})
            return await self._decide(messages, read, key=key)

    async def _decide(
        self, messages: Sequence[Message], read: Callable[[str], T | Unread], *, key: bytes
    ) -> Answered[T]:
        spent, said, talk = Counter[str](), "", list(messages)
        for attempt in range(self.attempts):
            done = await self._complete(talk, f"{self.name}/{key.hex()}/{attempt}")
            spent.update(calls=1, retries=int(attempt > 0), **{k: done.usage.get(k, 0) for k in TOKENS})
            answer = done.message.content
            value = read(answer)
            if not isinstance(value, Unread):
                self.cache.put(key, Verdict(answer=answer, usage=done.usage), model=self.model)
                return Answered(value=value, answer=answer, spent=spent)
            said = value.why
            again = user(f"That is no {self.what}: {said}. Answer again, with the JSON and nothing else.")
            talk += [assistant(answer[:LONGEST_ANSWER]), again]
        raise RubricFailure(f"no {self.what} in {self.attempts} answers; the last: {said}")

    async def _complete(self, messages: Sequence[Message], key: str) -> Completion:
        try:
            async with asyncio.timeout(self.timeout):
                with boundary(RubricFailure):
                    if self.form is not None and isinstance(self.policy, Formatting):
                        return await self.policy.complete_as(self.form, messages, key=key)
                    return await self.policy.complete(messages, key=key)
        except TimeoutError as error:
            raise RubricFailure(f"no {self.what} within {self.timeout:g} seconds", transient=True) from error
        finally:
            release = getattr(self.policy, "release", None)
            if release is not None:
                release(key)


def unwrapped(answer: str) -> str:
    """What is left of an answer without its reasoning and a fence around it."""
    text = answer.rpartition("</think>")[2] if answer.lstrip().startswith("<think>") else answer
    text = text.strip()
    for opening in ("```json\n", "```\n"):
        if text.startswith(opening) and text.endswith("\n```"):
            return text[len(opening) : -4]
    return text
