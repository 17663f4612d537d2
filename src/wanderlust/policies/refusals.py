"""What a server says when it refuses a request: whether the context is full, and whether it refuses all.

The texts are those of OpenAI, vLLM, SGLang, llama.cpp, text-generation-inference, Anthropic, Google and Mistral as of
2026, with whatever status: some servers, and proxies before them, answer a full context with HTTP 500 and the like.
Not covered: servers that cut a long prompt in silence (Ollama by default).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wanderlust.errors import BLOCKED, CONTENT_FILTER, PolicyFailure

CONTEXT_STATUSES = frozenset({400, 413, 422, 500, 502, 503})
"""Statuses with which servers refuse a conversation that is too long."""
CONTEXT_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"})
"""Values of an error's `code` or `type` that say so."""
BLOCK_CODES = frozenset(
    {"content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation", "invalid_prompt"}
)
"""Values of an error's `code` or `type` where a filter blocked the prompt."""
_BLOCK_TEXT = re.compile(r"content (filter|management)(ing)? policy|violates (our )?usage guidelines", re.IGNORECASE)
QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error"})
"""Values that say that nothing is left to pay with: waiting is no use, whatever the status."""
_QUOTA_TEXT = re.compile(r"credit balance is too low|insufficient (balance|credits|funds|quota)", re.IGNORECASE)
NO_CREDIT = "no credit"
MAX_ERROR_CHARS = 400
"""Characters of an error's text that are searched: what follows may be the conversation itself, repeated."""
_CONTEXT_TEXT = re.compile(
    r"maximum context length (is|of) \d"
    r"|context length is only \d"
    r"|(exceeds?|longer than|larger than|greater than) (the )?((model's|available|maximum|allowed) )*"
    r"(context (size|length|window|limit)|model length)"
    r"|prompt is too long: \d+ tokens"
    r"|exceed context limit: \d"
    r"|input token count \(?\d+\)? exceeds the maximum number of tokens"
    r"|too large for model with \d+ maximum context length"
    r"|`inputs`( tokens \+ `max_new_tokens`)? must (have less than|be <=) \d"
    r"|context (size|length|window|limit) (has been |is |was )?exceeded"
    r"|ContextWindowExceeded"
    r"|(input|prompt) length \(?\d+( tokens)?\)? exceeds (the )?maximum"
    r"|the context has \d+ tokens and .{1,200} reads \d",
    re.IGNORECASE,
)
_CONTEXT_TOKENS = re.compile(r"(?:context length|context limit|must be)[^\d]{0,24}(\d+)", re.IGNORECASE)
_PROMPT_TOKENS = re.compile(
    r"(\d+) (?:in the (?:messages|prompt)|input tokens|tokens from the input|`inputs` tokens|of text input)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that the server refused for good."""

    status: int
    text: str
    """The error's own message where the body has one, else the body's start."""
    codes: frozenset[str] = frozenset()
    """The error's `code` and `type`."""
    label: str = ""
    """Name of the refusal of one conversation, which says nothing of others (a content filter)."""

    @property
    def context_full(self) -> bool:
        """Whether the conversation, alone or with the answer that was asked for, is longer than the model's context."""
        text = self.text[:MAX_ERROR_CHARS]
        return self.status in CONTEXT_STATUSES and (
            bool(self.codes & CONTEXT_CODES) or _CONTEXT_TEXT.search(text) is not None
        )

    @property
    def room(self) -> int:
        """Tokens that the context has left for an answer, where the prompt alone fits and the text says so; else 0."""
        text = self.text[:MAX_ERROR_CHARS]
        context, prompt = _CONTEXT_TOKENS.search(text), _PROMPT_TOKENS.search(text)
        return max(int(context[1]) - int(prompt[1]), 0) if context and prompt else 0

    @property
    def used_up(self) -> bool:
        """Whether the account has nothing left to pay with."""
        said = self.status in (400, 403, 429) and _QUOTA_TEXT.search(self.text[:MAX_ERROR_CHARS])
        return self.status == 402 or bool(self.codes & QUOTA_CODES or said)

    @property
    def name(self) -> str:
        """The label, or the status as text: refusals with the same one count as equal."""
        return self.label or (NO_CREDIT if self.used_up else f"HTTP {self.status}")


def parse_refusal(status: int, body: bytes) -> Refusal:
    """Read the body of an answer with a status 4xx or 5xx, whatever its form."""
    start = body[:1000].decode(errors="replace")
    try:
        data: Any = json.loads(body)
    except (ValueError, RecursionError):
        return Refusal(status=status, text=start)
    error = data.get("error", data) if isinstance(data, Mapping) else data
    if not isinstance(error, Mapping):
        return Refusal(status=status, text=error if isinstance(error, str) else start)
    text = next((error[name] for name in ("message", "detail", "error") if isinstance(error.get(name), str)), start)
    codes = frozenset(str(error[name]) for name in ("code", "type") if error.get(name) is not None)
    blocked = min(codes & BLOCK_CODES, default="")
    if not blocked and status in (400, 403) and _BLOCK_TEXT.search(text[:MAX_ERROR_CHARS]):
        blocked = CONTENT_FILTER
    return Refusal(status=status, text=text, codes=codes, label=BLOCKED + blocked if blocked else "")


def told_status(body: bytes) -> int:
    """The status of an error that came as HTTP 200, as some proxies send it; 0 where the body tells of none."""
    try:
        error = json.loads(body).get("error")
    except (ValueError, RecursionError, AttributeError):
        return 0
    if not error or not isinstance(error, Mapping):
        return 0
    told = (error.get(name) for name in ("code", "status"))
    return next((code for code in told if type(code) is int and 400 <= code < 600), 500)


MAX_REFUSALS = 5
"""Equal refusals in a row, without a single success, after which nothing further is asked."""
FIRST_CALLS = 8
"""Calls at once before a server has answered one."""
FIRST_ANSWER_SECONDS = 1.0
"""How long more calls wait for the first answer of a server that has refused none."""


class Trial:
    """Lets few calls through until a server has answered one; fails further ones where it refuses all.

    Until the first answer FIRST_CALLS are under way at once, for FIRST_ANSWER_SECONDS or while the server refuses.
    After MAX_REFUSALS equal refusals no call is made until those under way have ended; without an answer among them
    all further calls are PolicyFailures.
    """

    def __init__(self, *, answered: bool = False):
        self.answered = answered
        self._last: Refusal | None = None
        self._refusals = self._live = 0
        self._since: float | None = None
        self._waiting: list[asyncio.Future[None]] = []

    async def enter(self) -> None:
        """Wait until a call may be made; each call that was let through must `leave`. Raises PolicyFailure."""
        if self.answered:
            self._live += 1
            return
        loop = asyncio.get_running_loop()
        while not self._admits(loop.time()):
            if self._last is not None and self._refusals >= MAX_REFUSALS and not self._live:
                line = f"{self._last.name}: {self._last.text[:MAX_ERROR_CHARS]} (said of all requests so far)"
                raise PolicyFailure(line, refusal=self._last.name)
            place = loop.create_future()
            self._waiting.append(place)
            await place
        self._live += 1
        if self._since is None:
            self._since = loop.time()
            loop.call_later(FIRST_ANSWER_SECONDS, self._wake)

    def leave(self, *, answered: bool = False, refusal: Refusal | None = None) -> None:
        """Give the place back, with what the server said; neither where it was away or busy."""
        self._live -= 1
        self.answered |= answered
        if refusal is not None:
            same = self._last is not None and self._last.name == refusal.name
            self._refusals, self._last = self._refusals + 1 if same else 1, refusal
        if self._waiting:
            self._wake()

    def _admits(self, now: float) -> bool:
        if self.answered:
            return True
        if self._refusals >= MAX_REFUSALS:
            return False
        late = self._since is not None and now - self._since >= FIRST_ANSWER_SECONDS and not self._refusals
        return late or self._live + self._refusals < FIRST_CALLS

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for place in waiting:
            if not place.done():
                place.set_result(None)
