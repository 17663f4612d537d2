"""Requests to a model whose answers are parsed strictly: asked again until one can be, cached, and counted.

The cache is in memory, and with a path also in one SQLite file, which outlives the process.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, TypeGuard, TypeVar
from weakref import WeakValueDictionary

import msgspec

from wanderlust.agent import release_conversation
from wanderlust.errors import Failure, RubricFailure, StoreError, UsageError, boundary, one_line
from wanderlust.rubrics.parsing import scan_json
from wanderlust.types import AnswerOptions, Completion, Message, Policy, SupportsOptions, assistant, user

MAX_CACHED_RESPONSES = 100_000
"""Responses in memory; the oldest are dropped first."""

_SCHEMA = """
create table if not exists verdicts (
    key blob primary key, model text not null, answer text not null, usage text not null
) without rowid
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeResponse:
    """A parsed answer of a judge, as it is cached."""

    answer: str
    usage: Mapping[str, int] = field(default_factory=dict)
    """Usage of the call that gave it."""


class JudgeResponseCache:
    """Responses by judge model and prompt, with a `path` also on a local disk, for any number of processes.

    Failures are never cached. Raises StoreError when the file cannot be read or written.
    """

    def __init__(self, path: str | Path | None = None):
        self.path = None if path is None else Path(path)
        self._responses: dict[bytes, JudgeResponse] = {}
        self._db: sqlite3.Connection | None = None
        self._owner = 0

    def get(self, key: bytes) -> JudgeResponse | None:
        """The response that was put under `key`."""
        response = self._responses.get(key)
        if response is None and self.path is not None:
            with self._open() as db:
                row = db.execute("select answer, usage from verdicts where key = ?", (key,)).fetchone()
            if row is not None:
                response = JudgeResponse(answer=row[0], usage=msgspec.json.decode(row[1], type=dict[str, int]))
                self._remember(key, response)
        return response

    def put(self, key: bytes, response: JudgeResponse, *, model: str) -> None:
        """Cache a response. The first one put under a key stays on disk."""
        self._remember(key, response)
        if self.path is not None:
            row = key, model, response.answer, msgspec.json.encode(response.usage).decode()
            with self._open() as db:
                db.execute("insert or ignore into verdicts values (?, ?, ?, ?)", row)

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        db, self._db = self._db, None
        if db is not None and self._owner == os.getpid():
            db.close()

    def __del__(self) -> None:
        with suppress(sqlite3.ProgrammingError):  # in another thread than the one that opened it
            self.close()

    def _remember(self, key: bytes, verdict: JudgeResponse) -> None:
        if len(self._responses) >= MAX_CACHED_RESPONSES:
            del self._responses[next(iter(self._responses))]
        self._responses[key] = verdict

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
            raise StoreError(f"{self.path}: the judge's responses cannot be cached there: {error}") from error


MAX_MODEL_ANSWER_CHARS = 20_000
"""Characters of an unparsable answer that are repeated in the next request, or searched for an answer in prose."""
JSON_FORM = "the JSON"
_REFUSAL = re.compile(
    r"(?i)\W*(?:(?:i[\u2019']?m |i am )?(?:very )?sorry\b|i (?:can[\u2019']?t|cannot|can not|won[\u2019']?t) "
    r"|i(?:[\u2019']m| am) (?:unable|not able) )"
)
"""Beginnings of an answer that declines, where it holds no verdict."""
USAGE_TOKEN_KEYS = ("prompt_tokens", "completion_tokens")
REQUEST_USAGE_KEYS = ("calls", "retries", "cached", *USAGE_TOKEN_KEYS)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseError:
    """The reason why an answer cannot be parsed."""

    reason: str


class NoVerdict(RubricFailure):
    """A model gave no answer that can be parsed; `answer` is the last one."""

    answer: str = ""


class JudgeRefusal(NoVerdict):
    """A model declined to answer; that is no unreadable answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedAnswer(Generic[T]):
    """A parsed answer."""

    value: T
    answer: str
    usage: Mapping[str, int]
    """Under the names in REQUEST_USAGE_KEYS."""


@dataclass(slots=True, kw_only=True)
class JudgeClient:
    """Ask one model for verdicts.

    The same model, sampling settings, messages, format and number are asked once: equal concurrent requests wait for
    the answer, and it is cached. Draws are keyed by that. JSON may stand at the end of prose where it is the only JSON
    there, and the model was shown no such JSON. UsageError for a given cache and a model without a name.
    """

    policy: Policy
    name: str
    what: str = "verdict"
    """Name of the answer in messages."""
    form: str = JSON_FORM
    """What the answer consists of. JSON is also read out of prose."""
    model: str = ""
    """Its name in the cache; by default the policy's own."""
    cache: JudgeResponseCache | None = None
    """By default one in memory."""
    attempts: int = 3
    timeout: float = 600.0
    """Wall-clock seconds of one answer."""
    response_format: Mapping[str, Any] | None = None
    """Sent with each request to a policy that supports formats."""
    failure: type[Failure] = RubricFailure
    """What is raised where the model fails."""
    _responses: JudgeResponseCache = field(init=False)
    _locks: WeakValueDictionary[bytes, asyncio.Lock] = field(init=False, default_factory=WeakValueDictionary)

    def __post_init__(self) -> None:
        self.model = self.model or str(getattr(self.policy, "model", ""))
        if self.cache is not None and not self.model:
            raise UsageError(f"the cache of {self.name!r} needs the model's name as its key: pass model=")
        self._responses = JudgeResponseCache() if self.cache is None else self.cache

    def asking(self, policy: Policy) -> JudgeClient:
        """The same client of another policy, with a cache of its own in memory."""
        return replace(self, policy=policy, model="", cache=None)

    async def ask(
        self, messages: Sequence[Message], parse: Callable[[str], T | ParseError], *, number: int = 0
    ) -> ParsedAnswer[T]:
        """Ask for an answer that `parse` accepts.

        Raises NoVerdict after `attempts` others (JudgeRefusal where it declined to the last), or what `failure` says.
        """
        talk = [(m.role, m.content) for m in messages]
        settings = repr((getattr(self.policy, "sampling", None), getattr(self.policy, "seed", None)))
        sent = self.response_format if _takes_format(self.policy, self.response_format) else None
        request = repr((self.model, number, talk, settings, sent))
        key = sha256(request.encode("utf-8", "surrogatepass")).digest()
        async with self._locks.setdefault(key, asyncio.Lock()):
            cached = self._responses.get(key)
            if cached is not None and not isinstance(value := self._read(cached.answer, messages, parse), ParseError):
                return ParsedAnswer(value=value, answer=cached.answer, usage={"cached": 1})
            session = f"{self.name}/{key.hex()}/0"
            try:
                return await self._converse(messages, parse, key=key, session=session)
            finally:
                release_conversation(self.policy, session)

    async def _converse(
        self, messages: Sequence[Message], parse: Callable[[str], T | ParseError], *, key: bytes, session: str
    ) -> ParsedAnswer[T]:
        """Ask in one conversation until `parse` accepts an answer, and cache that."""
        spent, reason, refused, talk = Counter[str](), "", False, list(messages)
        for attempt in range(self.attempts):
            done = await complete_within(
                self.policy,
                talk,
                key=session,
                seconds=self.timeout,
                failure=self.failure,
                what=self.what,
                response_format=self.response_format,
            )
            spent.update(calls=1, retries=int(attempt > 0), **{k: done.usage.get(k, 0) for k in USAGE_TOKEN_KEYS})
            answer = done.message.content
            value = self._read(answer, messages, parse)
            if not isinstance(value, ParseError):
                self._responses.put(key, JudgeResponse(answer=answer, usage=done.usage), model=self.model)
                return ParsedAnswer(value=value, answer=answer, usage=spent)
            reason, refused = value.reason, done.finish == "refusal" or bool(_REFUSAL.match(answer))
            again = user(f"That is no {self.what}: {reason}. Answer again, with {self.form} and nothing else.")
            talk += [assistant(answer[:MAX_MODEL_ANSWER_CHARS]), again]
        why = f"no {self.what} in {self.attempts} answers; the last: {reason}"
        none = NoVerdict(why)
        if refused:
            none = JudgeRefusal(f"no {self.what}: the model declined: {one_line(answer) or 'without a word'}")
        none.answer = answer
        raise none

    def _read(self, answer: str, messages: Sequence[Message], parse: Callable[[str], T | ParseError]) -> T | ParseError:
        """Parse an answer, or else the JSON that prose leads to.

        Prose is not searched where the model was shown an answer that can be parsed: it might only quote that.
        """
        value = parse(answer)
        if not isinstance(value, ParseError) or self.form != JSON_FORM or (found := embedded_json(answer)) is None:
            return value
        shown = (message.content[start:end] for message in messages for _, start, end in scan_json(message.content))
        if any(not isinstance(parse(text), ParseError) for text in shown):
            return value
        return parse(found)


def _takes_format(policy: Policy, response_format: Mapping[str, Any] | None) -> TypeGuard[SupportsOptions]:
    """Whether there is a format, and the policy can be held to it."""
    if response_format is None or not isinstance(policy, SupportsOptions):
        return False
    return not policy.unsupported_option(AnswerOptions(response_format=response_format))


async def complete_within(
    policy: Policy,
    messages: Sequence[Message],
    *,
    key: str,
    seconds: float,
    failure: type[Failure],
    what: str = "answer",
    response_format: Mapping[str, Any] | None = None,
) -> Completion:
    """The policy's answer. Raises `failure` when the policy fails, a transient one after `seconds` of wall clock."""
    try:
        async with asyncio.timeout(seconds):
            with boundary(failure):
                if _takes_format(policy, response_format):
                    options = AnswerOptions(response_format=response_format)
                    return await policy.complete_with_options(options, messages, key=key)
                return await policy.complete(messages, key=key)
    except TimeoutError as error:
        raise failure(f"no {what} within {seconds:g} seconds", transient=True) from error


def cut_middle(text: str, max_chars: int) -> str:
    """The text; of a longer one the middle is left out, and marked so."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n[{len(text) - max_chars} characters left out]\n{text[-half:]}"


def strip_wrapping(answer: str) -> str:
    """Strip an answer's reasoning and the fence around it."""
    text = answer.rpartition("</think>")[2] if answer.lstrip().startswith("<think>") else answer
    text = text.strip()
    for opening in ("```json\n", "```\n"):
        if text.startswith(opening) and text.endswith("\n```"):
            return text[len(opening) : -4]
    return text


def embedded_json(answer: str) -> str | None:
    """The JSON object, or list of objects, that ends a text; None where there is none, or more than one."""
    text = strip_wrapping(answer)
    if len(text) > MAX_MODEL_ANSWER_CHARS:
        return None
    found = scan_json(text)
    if len(found) != 1:
        return None
    _, start, end = found[0]
    return None if text[end:].strip("`\n ") else text[start:end]


def object_format(name: str, properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """A `response_format`: a JSON object that has all these properties and no others."""
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": object_schema(properties)}}


def object_schema(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON schema of an object that has all these properties and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [*properties],
        "additionalProperties": False,
    }
