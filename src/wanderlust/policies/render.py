"""Messages to ids and back, through the tokenizer's own chat template.

A conversation grows by ids: what was sampled is never re-tokenized. A template that rewrites earlier turns (for
example by dropping reasoning) cannot be extended that way; that is detected, said once, and such turns start a
sequence of their own.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from wanderlust.core.contracts import Tool
from wanderlust.core.errors import PolicyFailure
from wanderlust.core.messages import Message, assistant, user

CACHED_TEXTS = 65_536
"""How many rendered pieces and decoded answers are kept; episodes of one environment repeat themselves a lot."""


class PrefixWarning(UserWarning):
    """The chat template rewrites earlier turns, so multi-turn contexts are rendered afresh."""


class Renderer:
    """Guarantees that the ids of a context extend the ids sampled before, or says that they cannot.

    `tokenizer` is a `transformers` tokenizer with a chat template and an end-of-turn token.
    """

    def __init__(self, tokenizer: Any):
        if not getattr(tokenizer, "chat_template", None):
            raise PolicyFailure("the tokenizer has no chat template: set tokenizer.chat_template")
        self.tokenizer = tokenizer
        self.end_ids = _end_ids(tokenizer)
        self._probe = self.text(_PROBE, asks=False)
        self.closing = self._closing()
        self.appends = self._appends()
        self._encode = lru_cache(CACHED_TEXTS)(self._encode_text)
        self._decode = lru_cache(CACHED_TEXTS)(self._decode_ids)
        self._piece = lru_cache(CACHED_TEXTS)(self._piece_after)
        self._opening = lru_cache(CACHED_TEXTS)(self._opened_by)

    def start(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> tuple[int, ...]:
        """Ids of a whole context that asks for an answer."""
        return self._encode(self.text(messages, tools)) if tools else self._opening(tuple(messages))

    def extend(self, known: Sequence[Message], new: Sequence[Message], *, closed: bool) -> tuple[int, ...] | None:
        """Ids that turn a context which ends in the sampled answer `known[-1]` into one that asks again.

        `closed` tells whether the end-of-turn id was sampled. None when the template does not extend.
        """
        if self.appends:
            return self._piece(tuple(new), closed)
        before, after = self.text(known, asks=False), self.text([*known, *new])
        opening = self.text(known[:-1])
        if not (after.startswith(before) and before.startswith(opening + known[-1].content)):
            return None
        return self._encode(self._tail(closed) + after[len(before) :])

    def closed(self, answer: Message) -> tuple[int, ...]:
        """Ids of an answer that somebody else wrote, with the end-of-turn id."""
        return (*self._encode(answer.content), min(self.end_ids))

    def answer(self, ids: Sequence[int]) -> Message:
        """The message that sampled ids stand for; the end-of-turn id is not part of it."""
        body = ids[:-1] if ids and ids[-1] in self.end_ids else ids
        return assistant(self._decode(tuple(body)))

    def text(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, asks: bool = True) -> str:
        """The conversation as the model's template writes it; `asks` opens the assistant's turn."""
        schemas = [tool_schema(tool) for tool in tools] or None
        rendered = self.tokenizer.apply_chat_template(
            [as_dict(m) for m in messages], tools=schemas, tokenize=False, add_generation_prompt=asks
        )
        return str(rendered)

    def _encode_text(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def _decode_ids(self, ids: tuple[int, ...]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def _tail(self, closed: bool) -> str:
        if not closed:
            return self.closing
        for end in self.end_ids:
            text = self.tokenizer.decode([end])
            if self.closing.startswith(text):
                return self.closing[len(text) :]
        return self.closing

    def _opened_by(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        return self._encode(self.text(messages))

    def _piece_after(self, new: tuple[Message, ...], closed: bool) -> tuple[int, ...]:
        return self._encode(self._tail(closed) + self.text([*_PROBE, *new])[len(self._probe) :])

    def _closing(self) -> str:
        return self._probe[self._probe.rindex(_PROBE[-1].content) + len(_PROBE[-1].content) :]

    def _appends(self) -> bool:
        """Whether a later message always adds the same text, whatever came before, and changes nothing there."""
        once, twice = [*_PROBE], [*_PROBE, *_PROBE]
        added = []
        for known in (once, twice):
            before, after = self.text(known, asks=False), self.text([*known, user("more")])
            opened = self.text(known[:-1]) + known[-1].content
            if not (after.startswith(before) and before.startswith(opened)):
                warnings.warn(
                    "the chat template rewrites earlier turns: each turn is rendered afresh and trained as a "
                    "sample of its own",
                    PrefixWarning,
                    stacklevel=3,
                )
                return False
            added.append(after[len(before) :])
        return added[0] == added[1]


_PROBE = (user("first words"), assistant("<think>second</think> third"))
"""A conversation whose reasoning a template would drop, if it drops any."""


def as_dict(message: Message) -> dict[str, Any]:
    """The message in the shape chat templates and endpoints take."""
    out: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        out["tool_calls"] = [
            {
                "id": c.id,
                "type": "function",
                "function": {"name": c.name, "arguments": _arguments(c.arguments)},
            }
            for c in message.tool_calls
        ]
    if message.tool_call_id is not None:
        out["tool_call_id"] = message.tool_call_id
    return out


def tool_schema(tool: Tool) -> dict[str, Any]:
    """The tool in the shape chat templates and endpoints take."""
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
    }


def _arguments(raw: str) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw


def _end_ids(tokenizer: Any) -> frozenset[int]:
    if tokenizer.eos_token_id is None:
        raise PolicyFailure("the tokenizer has no end-of-turn token: set tokenizer.eos_token")
    return frozenset({int(tokenizer.eos_token_id)})
