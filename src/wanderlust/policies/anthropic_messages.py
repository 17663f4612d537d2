"""A policy over Anthropic's messages API; signed reasoning goes back as it came.

Source: Anthropic's API reference, `POST /v1/messages`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from wanderlust.errors import PolicyFailure
from wanderlust.openai_types import arguments_object, content_parts, finish_of
from wanderlust.policies.base import schema_of
from wanderlust.policies.endpoint import parse_endpoint_url
from wanderlust.policies.native_endpoint import NativeEndpoint
from wanderlust.types import AnswerDetails, AnswerOptions, Completion, Message, OnText, Tool, ToolCall

API_VERSION = "2023-06-01"
DEFAULT_ANSWER_TOKENS = 8192
"""Bound of an answer where none is given: this API demands one."""
ANSWER_BLOCKS = "anthropic_content"
"""Field of `Message.extra` that holds an answer's blocks, where they are more than text and calls."""


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: Any = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None

    def counts(self) -> dict[str, int]:
        """As in `Completion.usage`; this API counts what was cached apart."""
        cached = self.cache_read_input_tokens or 0
        read = (self.input_tokens or 0) + cached + (self.cache_creation_input_tokens or 0)
        usage = {"prompt_tokens": read, "completion_tokens": self.output_tokens or 0}
        return usage | ({"cached_tokens": cached} if cached else {})


class _Answer(msgspec.Struct):
    content: list[dict[str, Any]]
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: dict[str, Any] | None = None
    usage: _Usage = msgspec.field(default_factory=_Usage)


MAX_PAUSES = 16
"""How often one turn may be paused by the API, and asked to go on."""
_answers, _blocks = msgspec.json.Decoder(_Answer), list[_Block]


class AnthropicMessages(NativeEndpoint):
    """Answer by calling `URL/v1/messages`."""

    def __init__(
        self, url: str, model: str, *, api_key: str | None = None, headers: Mapping[str, str] | None = None, **more: Any
    ):
        """`url` may end before `/v1` or after it; `more` as in `NativeEndpoint`."""
        path = "messages" if url.rstrip("/").endswith(("/v1", "/messages")) else "v1/messages"
        own = {"anthropic-version": API_VERSION, **({"x-api-key": api_key.strip()} if api_key else {})}
        super().__init__(parse_endpoint_url(url, path), model, headers=own | dict(headers or {}), **more)

    def unsupported_option(self, options: AnswerOptions) -> str:
        """As in SupportsOptions: the API tells no log-probabilities, and knows no JSON without a schema."""
        if options.logprobs:
            return "logprobs"
        formless = options.response_format is not None and schema_of(options.response_format) is None
        return "response_format" if formless else ""

    def request(
        self, options: AnswerOptions, messages: Sequence[Message], tools: Sequence[Tool], *, draw: str
    ) -> dict[str, Any]:
        """As `NativeEndpoint`; the API has no seed."""
        opening = next((n for n, message in enumerate(messages) if message.role != "system"), len(messages))
        choice: dict[str, Any] = {}
        if options.tool_choice == "required":
            choice = {"type": "tool", "name": options.tool_name} if options.tool_name else {"type": "any"}
        if not options.parallel_tool_calls:
            choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
        schema = schema_of(options.response_format)
        return {
            "model": self.model,
            "max_tokens": self.bound(options) or DEFAULT_ANSWER_TOKENS,
            "temperature": self.temperature,
            "system": "\n\n".join(message.content for message in messages[:opening]) or None,
            "messages": render_messages(messages[opening:]),
            "tools": [
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in tools
            ]
            or None,
            "tool_choice": choice or None,
            "stop_sequences": list(options.stop) or None,
            "output_config": {"format": {"type": "json_schema", "schema": schema}} if schema else None,
        }

    async def complete_with_options(
        self,
        options: AnswerOptions,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        key: str = "",
        on_text: OnText | None = None,
    ) -> Completion:
        """As `NativeEndpoint`; a turn that the API pauses goes on, and its parts are one answer."""
        done, pauses = await super().complete_with_options(options, messages, tools, key=key), 0
        while done.finish == "pause" and pauses < MAX_PAUSES:
            asked, pauses = [*messages, done.message], pauses + 1
            done = _joined(done, await super().complete_with_options(options, asked, tools, key=key))
        return replace(done, finish="length") if done.finish == "pause" else done

    def read(self, body: bytes) -> Completion:
        """As `NativeEndpoint`. A refusal without a text has the explanation as its text, where there is one."""
        try:
            answer = _answers.decode(body)
            blocks = msgspec.convert(answer.content, _blocks)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise PolicyFailure(f"not a message: {error}") from error
        text = "".join(block.text for block in blocks if block.type == "text")
        calls = tuple(
            ToolCall(id=block.id, name=block.name, arguments=msgspec.json.encode(block.input or {}).decode())
            for block in blocks
            if block.type == "tool_use"
        )
        thoughts = "".join(block.thinking for block in blocks if block.type == "thinking")
        usage = answer.usage.counts()
        refused, paused = (answer.stop_reason == reason for reason in ("refusal", "pause_turn"))
        finish = "pause" if paused and not calls else finish_of(answer.stop_reason, calls, refused=refused)
        if refused and not (text or calls):
            text = str((answer.stop_details or {}).get("explanation") or "")
        if not (text or calls or thoughts or usage["completion_tokens"] or finish in ("refusal", "length", "pause")):
            raise PolicyFailure("a message without content")
        plain = all(block.type in ("text", "tool_use") for block in blocks)
        extra = None if plain else msgspec.json.encode({ANSWER_BLOCKS: answer.content}).decode()
        return Completion(
            message=Message("assistant", text, calls, reasoning=thoughts or None, extra=extra),
            finish=finish,
            usage=usage,
            details=AnswerDetails(stop=answer.stop_sequence) if answer.stop_sequence else None,
        )


def _joined(begun: Completion, rest: Completion) -> Completion:
    """Two parts of one turn as one; the usage is that of both requests."""
    first, second = begun.message, rest.message
    message = replace(
        second,
        content=first.content + second.content,
        reasoning="".join(filter(None, (first.reasoning, second.reasoning))) or None,
        extra=msgspec.json.encode({ANSWER_BLOCKS: [*_answer_blocks(first), *_answer_blocks(second)]}).decode(),
    )
    return replace(rest, message=message, usage=dict(Counter(begun.usage) + Counter(rest.usage)))


def render_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Render a conversation: roles alternate, and results of tools are blocks of the user's."""
    out: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        if role == "assistant":
            blocks = [*_answer_blocks(message)]
        else:
            blocks = [_text_or_image(kind, part) for kind, part in content_parts(message)]
        if message.role == "tool":
            blocks = [{"type": "tool_result", "tool_use_id": message.tool_call_id or "", "content": blocks}]
        if out and out[-1]["role"] == role:
            out[-1]["content"] += blocks
        elif blocks:
            out.append({"role": role, "content": blocks})
    return out


def _answer_blocks(message: Message) -> Iterator[dict[str, Any]]:
    kept = json.loads(message.extra).get(ANSWER_BLOCKS) if message.extra else None
    if kept:
        yield from kept
        return
    if message.content.strip():
        yield {"type": "text", "text": message.content}
    for call in message.tool_calls:
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_object(call.arguments)}


def _text_or_image(kind: str, part: str) -> dict[str, Any]:
    if kind == "text":
        return {"type": "text", "text": part}
    if not part.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": part}}
    head, _, data = part.removeprefix("data:").partition(",")
    return {"type": "image", "source": {"type": "base64", "media_type": head.partition(";")[0], "data": data}}
