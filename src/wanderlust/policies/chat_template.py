"""Convert messages to token ids and back, through the tokenizer's own chat template.

A conversation grows by ids: sampled tokens are never tokenized again. A template that rewrites earlier turns (for
example by dropping reasoning) cannot be extended that way; this is detected and warned of once. Then either turns start
a sequence of their own, or earlier answers stay in the context as they were sampled. Text from users and tools never
becomes a special token, even where it spells one.

Where the template has no form of tool calls that is known here, tools and calls are text (`tools/text_protocol.py`).
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Self

import jinja2

from wanderlust.declared_tools import declare_tools
from wanderlust.errors import PolicyFailure, ToolsWarning, one_line
from wanderlust.openai_types import message_to_template, tool_from_wire, tool_to_wire
from wanderlust.policies.streaming_text import cut_at_stops
from wanderlust.policies.tool_formats.tagged_json import LFM, TEXT_CALLS, ToolCallFormat, call_id, recognize_format
from wanderlust.tools.text_protocol import render_tools_as_text
from wanderlust.types import (
    DeclaredTool,
    Message,
    Tool,
    ToolCall,
    assistant,
    decode_arguments,
    system,
    user,
)

_MARK = "\ue000{}\ue001"
"""Stands for a special token's text in a rendered conversation; from Unicode's private use area."""
_MARKED = re.compile("\ue000(\\d{1,6})\ue001")
_TRUSTED = ("assistant", "system")
"""Roles whose special tokens are encoded as such: sampled text, and text of the environment's author."""


class SpecialTokenEscaper:
    """Replace special tokens' texts in untrusted messages by marks, and encode the marks as plain text.

    Text without special tokens is encoded as the tokenizer does.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        added = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
        self._specials = sorted({*map(str, tokenizer.all_special_tokens), *added}, key=lambda text: (-len(text), text))
        self._numbers = {text: number for number, text in enumerate(self._specials)}
        self._pattern = re.compile("|".join(map(re.escape, self._specials))) if self._specials else None

    def escape(self, messages: Sequence[Message]) -> list[Message]:
        """The messages with marks where untrusted ones spell a special token."""
        pattern = self._pattern
        if pattern is None:
            return list(messages)

        def mark(match: re.Match[str]) -> str:
            return _MARK.format(self._numbers[match[0]])

        return [
            replace(m, content=pattern.sub(mark, m.content))
            if m.role not in _TRUSTED and pattern.search(m.content)
            else m
            for m in messages
        ]

    def escape_tools(self, tools: Sequence[Tool]) -> list[DeclaredTool]:
        """The tools with marks where their names, descriptions or schemas spell a special token."""
        pattern = self._pattern

        def marked(value: Any) -> Any:
            if isinstance(value, str) and pattern is not None:
                return pattern.sub(lambda match: _MARK.format(self._numbers[match[0]]), value)
            if isinstance(value, dict):
                return {marked(name): marked(one) for name, one in value.items()}
            return [marked(one) for one in value] if isinstance(value, list | tuple) else value

        return [
            DeclaredTool(name=marked(one.name), description=marked(one.description), schema=marked(one.schema))
            for one in declare_tools(tools)
        ]

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text with marks."""
        ids: list[int] = []
        for place, piece in enumerate(_MARKED.split(text)):
            if place % 2:
                number = int(piece)
                plain = self._specials[number] if number < len(self._specials) else _MARK.format(number)
                ids += self.tokenizer.encode(plain, add_special_tokens=False, split_special_tokens=True)
            elif piece:
                ids += self.tokenizer.encode(piece, add_special_tokens=False)
        return tuple(ids)


TEXT_CACHE_ENTRIES = 65_536
"""Entries of each cache of rendered pieces and decoded answers; episodes of one environment repeat many of them."""


class PrefixWarning(UserWarning):
    """The chat template rewrites earlier turns: contexts are rendered afresh, or keep what was sampled."""


RENDERING_KEY = "wanderlust_rendering"
"""Entry of a tokenizer's configuration with the choices that a checkpoint was trained with; a checkpoint keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """How conversations become text, where there is a choice."""

    keeps_answers: bool = False
    """Whether sampled answers stay in the context, even where the template would rewrite them."""
    text_calls: bool = False
    """Whether tools and calls are text, even where the template has a form of its own."""

    @classmethod
    def of(cls, tokenizer: Any) -> Self:
        """What the tokenizer's checkpoint was trained with."""
        return cls(**getattr(tokenizer, "init_kwargs", {}).get(RENDERING_KEY, {}))

    def set(self, tokenizer: Any) -> None:
        """Let every renderer of this tokenizer choose so, also after it was saved and loaded."""
        tokenizer.init_kwargs[RENDERING_KEY] = asdict(self)


class Renderer:
    """Render contexts whose ids extend the ids sampled before, or report that they cannot.

    Text from users and tools becomes no special token. `tokenizer` is a `transformers` tokenizer with a chat template
    and an end-of-turn token; PolicyFailure without them. Where the template writes tool calls in a known format,
    `tool_call_format` reads them out of answers; elsewhere they are text.
    """

    def __init__(self, tokenizer: Any, rendering: Rendering | None = None):
        """Without `rendering`, as the tokenizer's checkpoint was trained."""
        self.rendering = rendering or Rendering.of(tokenizer)
        if not getattr(tokenizer, "chat_template", None):
            raise PolicyFailure("the tokenizer has no chat template: set tokenizer.chat_template")
        self.tokenizer = tokenizer
        if tokenizer.eos_token_id is None:
            raise PolicyFailure("the tokenizer has no end-of-turn token: set tokenizer.eos_token")
        added: dict[str, int] = tokenizer.get_added_vocab()
        self.end_ids = frozenset(
            {int(tokenizer.eos_token_id), *(added[name] for name in (_END_OF_MESSAGE,) if name in added)}
        )
        self.end_texts = [str(tokenizer.decode([end])) for end in sorted(self.end_ids)]
        self._escaper = SpecialTokenEscaper(tokenizer)
        self.tool_call_format, self._shows_calls = self._detect_call_format()
        self._takes_system = self._writes_system()
        self._probe = self.text(_PROBE, asks=False)
        answer = assistant("third")
        _, before, closing = self.text([_PROBE[0], answer], asks=False).rpartition(answer.content)
        if not before:
            raise PolicyFailure("the chat template does not write what the assistant said")
        self.closing = closing
        self.appends = self._appends()
        self.encode = lru_cache(TEXT_CACHE_ENTRIES)(self._escaper.encode)
        self._decode = lru_cache(TEXT_CACHE_ENTRIES)(lambda ids: str(tokenizer.decode(ids, skip_special_tokens=False)))
        self._piece = lru_cache(TEXT_CACHE_ENTRIES)(self._piece_after)
        self._results = lru_cache(TEXT_CACHE_ENTRIES)(self._results_after)
        self._opening = lru_cache(TEXT_CACHE_ENTRIES)(
            lambda messages, schemas: self.encode(self.text(messages, [*map(tool_from_wire, json.loads(schemas))]))
        )
        plain = assistant(" second\n")
        written = self.answer_text_at([_ASKED, plain], 1)
        self._writes_answers_plainly = written is not None and written[1] == plain.content + str(tokenizer.eos_token)
        """Whether the template writes an answer without calls as it is, space included, and nothing before it."""

    def __reduce__(self) -> tuple[Any, ...]:
        """What is remembered stays here."""
        return type(self), (self.tokenizer, self.rendering)

    def start(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> tuple[int, ...]:
        """Render a whole context that asks for an answer. PolicyFailure where the template refuses it."""
        if tools and self._unknown_calls:
            warnings.warn(_UNKNOWN, ToolsWarning, stacklevel=3)
        return self._opening(tuple(messages), json.dumps([tool_to_wire(tool) for tool in tools]))

    def extend(self, context: Sequence[Message], new: Sequence[Message], *, closed: bool) -> tuple[int, ...] | None:
        """Render the ids that follow a context which ends in the sampled answer `context[-1]`, up to the next answer.

        `closed` tells whether the end-of-turn id was sampled. None when the template does not extend contexts, unless
        answers are kept: then only one that drops the last answer, or hides where it ends, gives None.
        """
        calls = context[-1].tool_calls
        if calls and self.appends:
            return self._results(calls, tuple(new), closed)
        only_results = all(message.role == "tool" for message in new)
        if calls and only_results and self.text([*context, *new]).startswith(self.text(context[:-1])):
            # Tool results keep the text before them unchanged, though other messages would not.
            return self._results(calls, tuple(new), closed)
        if self.appends:
            return self._piece(tuple(new), closed)
        before, after = self.text(context, asks=False), self.text([*context, *new])
        opening = self.text(context[:-1])
        if after.startswith(before) and before.startswith(opening + context[-1].content):
            return self.encode(self._tail(self.closing, closed) + after[len(before) :])
        return self._after_kept_answer(context, new, closed=closed) if self.rendering.keeps_answers else None

    def _after_kept_answer(
        self, context: Sequence[Message], new: Sequence[Message], *, closed: bool
    ) -> tuple[int, ...] | None:
        """Ids of what the template writes after the last answer, whatever it makes of that and of those before it."""
        stand_in = assistant(_ANSWER, *context[-1].tool_calls)
        _, found, rest = self.text([*context[:-1], stand_in, *new]).partition(_ANSWER)
        if context[-1].tool_calls:
            at = min((place for end in self.end_texts if (place := rest.find(end)) >= 0), default=-1)
            rest, found = rest[max(at, 0) :], found if at >= 0 else ""
        elif not rest.startswith(self.closing):
            found = ""
        return self.encode(self._tail(rest, closed)) if found and _ANSWER not in rest else None

    def answer_text_at(
        self, messages: Sequence[Message], number: int, tools: Sequence[Tool] = ()
    ) -> tuple[str, str] | None:
        """The context of the answer `messages[number]`, and what the model samples there, its end of turn included.

        None where the template writes the answer otherwise than the model samples it.
        """
        before = self.text(messages[:number], tools)
        whole = self.text(messages[: number + 1], tools, asks=False)
        if not whole.startswith(before):
            return None
        answer = whole[len(before) :]
        ends = [place + len(end) for end in self.end_texts if (place := answer.rfind(end)) >= 0]
        return before, answer[: max(ends)] if ends else answer

    def render_answer(
        self, answer: Message, messages: Sequence[Message] = (), tools: Sequence[Tool] = ()
    ) -> tuple[int, ...]:
        """Render an answer that was not sampled, with the end-of-turn id: as the template writes it after `messages`.

        PolicyFailure where that is not read back as the same calls: they would be lost.
        """
        ids = (*self.encode(self._spoken(answer).content), int(self.tokenizer.eos_token_id))
        if messages and (answer.tool_calls or not self._writes_answers_plainly):
            written = self.answer_text_at([*messages, answer], len(messages), tools)
            own = self.encode(written[1]) if written is not None else ()
            if own and own[-1] in self.end_ids and self._loses_calls(answer, own, tools) is None:
                return own
        if (lost := self._loses_calls(answer, ids, tools)) is not None:
            raise PolicyFailure(lost)
        return ids

    def _loses_calls(self, answer: Message, ids: Sequence[int], tools: Sequence[Tool]) -> str | None:
        """What is wrong where these ids are not read back as the answer's calls; None where they are."""
        if not answer.tool_calls and not tools:
            return None
        if not tools:
            return f"an answer calls {answer.tool_calls[0].name!r}, and it was offered no tools: its call would be lost"
        read = self.parse_answer(ids, tools).tool_calls
        meant, found = (
            [(call.name, decode_arguments(call.arguments)) for call in calls] for calls in (answer.tool_calls, read)
        )
        if meant == found:
            return None
        return (
            f"an answer with the calls {one_line(str(meant), 200)} would be read back as {one_line(str(found), 200)}: "
            "the chat template cannot write it; set tool_calls to text (--tool-calls text)"
        )

    def parse_answer(
        self, ids: Sequence[int], tools: Sequence[Tool] = (), *, turn: int = 0, stops: Sequence[str] = ()
    ) -> Message:
        """Decode sampled ids to a message, without the end-of-turn id, cut before the first of the `stops`.

        With tools, calls are parsed where the template's call format is known; `turn` keys their ids.
        """
        text = cut_at_stops(self.answer_text(ids), stops) if stops else self.answer_text(ids)
        return self.tool_call_format.parse(text, tools, turn=turn) if tools else assistant(text)

    def answer_text(self, ids: Sequence[int]) -> str:
        """Decode sampled ids, without the end-of-turn id."""
        return self._decode(tuple(ids[:-1] if ids and ids[-1] in self.end_ids else ids))

    def text(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, asks: bool = True) -> str:
        """Render the conversation by the model's template; `asks` opens the assistant's turn.

        Calls that the template cannot write (several where it takes one, broken ones) are written into the text.
        """
        escaped = self._escaper.escape_tools(tools) if tools else []
        schemas = [tool_to_wire(tool) for tool in escaped] or None
        rewritten = [
            m
            if (not m.tool_calls or (self._shows_calls and all(call.name for call in m.tool_calls)))
            else self._spoken(m)
            for m in messages
        ]
        if self.tool_call_format is TEXT_CALLS and (tools or any(m.role == "tool" or m.tool_calls for m in rewritten)):
            rewritten, schemas = render_tools_as_text(rewritten, escaped, in_system=self._takes_system), None
        try:
            return self._apply_template(rewritten, schemas, asks)
        except _REFUSALS as error:
            plain = [self._spoken(message) for message in messages]
            if plain == rewritten:
                raise _template_failure(error) from error
        try:
            return self._apply_template(plain, schemas, asks)
        except _REFUSALS as error:
            raise _template_failure(error) from error

    def _apply_template(self, messages: Sequence[Message], schemas: list[dict[str, Any]] | None, asks: bool) -> str:
        rendered = self.tokenizer.apply_chat_template(
            [message_to_template(m) for m in self._escaper.escape(messages)],
            tools=schemas,
            tokenize=False,
            add_generation_prompt=asks,
        )
        return str(rendered)

    def _spoken(self, message: Message) -> Message:
        """The message with its calls as text, in the template's call format."""
        if not message.tool_calls:
            return message
        text = "\n".join(filter(None, [message.content, self.tool_call_format.render_calls(message.tool_calls)]))
        return replace(message, content=text, tool_calls=())

    def _tail(self, closing: str, closed: bool) -> str:
        """The rest of a turn's closing after a sampled answer."""
        if not closed:
            return closing
        for end in self.end_texts:
            if closing.startswith(end):
                return closing[len(end) :]
        return closing

    def _piece_after(self, new: tuple[Message, ...], closed: bool) -> tuple[int, ...]:
        return self.encode(self._tail(self.closing, closed) + self.text([*_PROBE, *new])[len(self._probe) :])

    def _results_after(
        self, calls: tuple[ToolCall, ...], new: tuple[Message, ...], closed: bool
    ) -> tuple[int, ...] | None:
        """Ids that follow an answer with these calls; None when they depend on the earlier context."""
        called = (_PROBE[0], assistant(_PROBE[1].content, *calls))
        before, after = self.text(called, asks=False), self.text([*called, *new])
        if not after.startswith(before):
            return None
        end = max((before.rfind(end) for end in self.end_texts), default=-1)
        closing = before[end:] if end >= 0 else self.closing
        return self.encode(self._tail(closing, closed) + after[len(before) :])

    def _writes_system(self) -> bool:
        """Whether the template writes a system message where it stands."""
        try:
            return "first rule" in self._apply_template([system("first rule"), _ASKED], None, asks=True)
        except _REFUSALS:
            return False

    def _detect_call_format(self) -> tuple[ToolCallFormat, bool]:
        """The format of the template's calls, and whether the template writes them itself."""
        self._unknown_calls = False
        if self.rendering.text_calls:
            return TEXT_CALLS, False
        try:
            with_call = self._apply_template([_ASKED, _CALLING], [_TOOL], asks=False)
            without_call = self._apply_template([_ASKED], [_TOOL], asks=False)
        except _REFUSALS:
            return TEXT_CALLS, False
        call_format = recognize_format(
            with_call[len(without_call) :] if with_call.startswith(without_call) else with_call,
            name=_CALLING.tool_calls[0].name,
        )
        if call_format is None and "<|tool_list_start|>" in without_call:
            return LFM, False  # LFM2's first template leaves the format of calls to the caller
        if call_format is None:
            self._unknown_calls = _TOOL["function"]["name"] in without_call
            return TEXT_CALLS, False
        return call_format, True

    def _appends(self) -> bool:
        """Whether a later message always adds the same text. Warns where it changes the text before it."""
        once, twice = [*_PROBE], [*_PROBE, *_PROBE]
        added = []
        for context in (once, twice):
            before, after = self.text(context, asks=False), self.text([*context, user("more")])
            opened = self.text(context[:-1]) + context[-1].content
            if not (after.startswith(before) and before.startswith(opened)):
                warnings.warn(
                    "the chat template rewrites earlier turns: " + (_KEPT if self.rendering.keeps_answers else _AFRESH),
                    PrefixWarning,
                    stacklevel=3,
                )
                return False
            added.append(after[len(before) :])
        return added[0] == added[1]


_PROBE = (user("first words"), assistant("<think>second</think> third"))
"""A conversation whose reasoning a template would drop, if it drops any."""
_ANSWER = "\ue002"
"""Stands for an answer, from Unicode's private use area."""
_AFRESH = "each turn is rendered afresh and trained as a sample of its own"
_KEPT = (
    "answers stay in the context as they were sampled, reasoning included, so that an episode is one sequence "
    "(earlier_answers=template renders each turn afresh)"
)
_ASKED = user("first words")
_CALLING = assistant("", ToolCall(id=call_id(1, 0), name="look_up_probe", arguments='{"place": "here", "number": 3}'))
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "look_up_probe",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "number": {"type": "integer"}}},
    },
}
_REFUSALS = (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, RecursionError)
"""Exceptions of a template over a conversation that it was not written for."""
_UNKNOWN = (
    "the chat template writes tool calls in a form that is not known here, so the model is told of its tools in words "
    "and asked for calls as <tool_call>{...}</tool_call>"
)


def _template_failure(error: BaseException) -> PolicyFailure:
    return PolicyFailure(f"the chat template refuses this conversation: {one_line(str(error))}")


_END_OF_MESSAGE = "<|eom_id|>"
"""Ends a Llama's message that makes calls."""
