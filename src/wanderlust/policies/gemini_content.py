"""A policy over Google's `generateContent`; thought signatures go back as they came.

Source: the reference of the Gemini API, `models.generateContent`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from wanderlust.errors import PolicyFailure, answer_blocked, one_line
from wanderlust.openai_types import arguments_object, content_parts, finish_of
from wanderlust.policies.base import schema_of
from wanderlust.policies.endpoint import parse_endpoint_url
from wanderlust.policies.native_endpoint import NativeEndpoint, seed_of
from wanderlust.types import (
    AnswerDetails,
    AnswerOptions,
    Completion,
    Message,
    TokenLogprob,
    Tool,
    ToolCall,
)

ANSWER_PARTS = "gemini_parts"
"""Field of `Message.extra` that holds an answer's parts, signatures among them."""


class _Call(msgspec.Struct):
    name: str = ""
    args: Any = None
    id: str | None = None


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    function_call: _Call | None = None


class _Content(msgspec.Struct):
    parts: list[dict[str, Any]] | None = None


class _Token(msgspec.Struct, rename="camel"):
    token: str = ""
    log_probability: float = 0.0


class _Alternatives(msgspec.Struct):
    candidates: list[_Token] = []


class _Logprobs(msgspec.Struct, rename="camel"):
    chosen_candidates: list[_Token] = []
    top_candidates: list[_Alternatives] = []

    def details(self) -> AnswerDetails:
        """Log-probabilities as text."""
        top = [*self.top_candidates, *[_Alternatives()] * len(self.chosen_candidates)]
        return AnswerDetails(
            logprobs=tuple(
                TokenLogprob(
                    text=one.token,
                    logprob=one.log_probability,
                    alternatives=tuple((other.token, other.log_probability) for other in others.candidates),
                )
                for one, others in zip(self.chosen_candidates, top, strict=False)
            )
        )


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    logprobs_result: _Logprobs | None = None


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str = ""


class _Usage(msgspec.Struct, rename="camel"):
    prompt_token_count: int = 0
    candidates_token_count: int = 0
    thoughts_token_count: int = 0
    cached_content_token_count: int = 0

    def counts(self) -> dict[str, int]:
        """As in `Completion.usage`; this API counts thoughts apart."""
        usage = {
            "prompt_tokens": self.prompt_token_count,
            "completion_tokens": self.candidates_token_count + self.thoughts_token_count,
        }
        more = {"cached_tokens": self.cached_content_token_count, "reasoning_tokens": self.thoughts_token_count}
        return usage | {name: count for name, count in more.items() if count}


class _Answer(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] = []
    prompt_feedback: _Feedback | None = None
    usage_metadata: _Usage = msgspec.field(default_factory=_Usage)


_BLOCKED = frozenset({"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY"})
"""Finish reasons of answers that the provider's filter kept back, wholly or from some point on."""
_MALFORMED = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"})
"""Finish reasons of answers with a call that the API could not read, or of a tool that was not offered."""
_answers = msgspec.json.Decoder(_Answer)


class GeminiContent(NativeEndpoint):
    """Answer by calling `URL/v1beta/models/MODEL:generateContent`."""

    def __init__(
        self, url: str, model: str, *, api_key: str | None = None, headers: Mapping[str, str] | None = None, **more: Any
    ):
        """`url` may end before `/v1beta` or after it; `more` as in `NativeEndpoint`."""
        versioned = url.rstrip("/").endswith(("/v1", "/v1beta", "/v1alpha"))
        path = f"{'' if versioned else 'v1beta/'}models/{model.removeprefix('models/')}:generateContent"
        own = {"x-goog-api-key": api_key.strip()} if api_key else {}
        super().__init__(parse_endpoint_url(url, path), model, headers=own | dict(headers or {}), **more)

    def unsupported_option(self, options: AnswerOptions) -> str:
        """As in SupportsOptions: the API cannot be held to one call at a time."""
        return "" if options.parallel_tool_calls else "parallel_tool_calls"

    def request(
        self, options: AnswerOptions, messages: Sequence[Message], tools: Sequence[Tool], *, draw: str
    ) -> dict[str, Any]:
        """As `NativeEndpoint`."""
        opening = next((n for n, message in enumerate(messages) if message.role != "system"), len(messages))
        instructions = "\n\n".join(message.content for message in messages[:opening])
        declared = [
            {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema} for tool in tools
        ]
        calling: dict[str, Any] = {"mode": "ANY"}
        if options.tool_name:
            calling["allowedFunctionNames"] = [options.tool_name]
        config = {
            "temperature": self.temperature,
            "maxOutputTokens": self.bound(options),
            "stopSequences": list(options.stop) or None,
            "seed": seed_of(draw),
            "responseMimeType": "application/json" if options.response_format is not None else None,
            "responseJsonSchema": schema_of(options.response_format),
            "responseLogprobs": options.logprobs or None,
            "logprobs": options.top_logprobs or None,
        }
        return {
            "contents": render_contents(messages[opening:]),
            "systemInstruction": {"parts": [{"text": instructions}]} if instructions else None,
            "tools": [{"functionDeclarations": declared}] if declared else None,
            "toolConfig": {"functionCallingConfig": calling} if options.tool_choice == "required" else None,
            "generationConfig": {name: value for name, value in config.items() if value is not None},
        }

    def read(self, body: bytes) -> Completion:
        """As `NativeEndpoint`. A prompt or an answer that the provider blocked is a PolicyFailure that says so."""
        try:
            answer = _answers.decode(body)
            first = answer.candidates[0] if answer.candidates else _Candidate()
            raw = (first.content.parts if first.content is not None else None) or []
            parts = msgspec.convert(raw, list[_Part])
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise PolicyFailure(f"not an answer of generateContent: {error}") from error
        feedback, reason = answer.prompt_feedback, first.finish_reason or ""
        if feedback is not None and feedback.block_reason and not raw:
            raise answer_blocked(feedback.block_reason, what="prompt")
        spoken = [part for part in parts if part.text is not None and not part.thought]
        thoughts = "".join(part.text or "" for part in parts if part.thought)
        calls = tuple(
            ToolCall(
                id=part.function_call.id or f"call_{number}",
                name=part.function_call.name,
                arguments=msgspec.json.encode(part.function_call.args or {}).decode(),
            )
            for number, part in enumerate(parts)
            if part.function_call is not None
        )
        text, usage = "".join(part.text or "" for part in spoken), answer.usage_metadata.counts()
        if reason in _BLOCKED:
            raise answer_blocked(reason, text=text)
        if reason in _MALFORMED and not calls:
            calls = (ToolCall(id="call_0", name="", arguments=first.finish_message or reason),)
        finish = finish_of(reason, calls)
        if not (text or calls or thoughts or usage["completion_tokens"] or finish == "length"):
            raise PolicyFailure(f"an answer without content ({one_line(reason) or 'and without a reason'})")
        plain = all(set(part) == {"text"} for part in raw)
        extra = None if plain else msgspec.json.encode({ANSWER_PARTS: raw}).decode()
        return Completion(
            message=Message("assistant", text, calls, reasoning=thoughts or None, extra=extra),
            finish=finish,
            usage=usage,
            details=first.logprobs_result.details() if first.logprobs_result is not None else None,
        )


def render_contents(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Render a conversation: results of functions name the function, and its call's id where the API gave one."""
    out: list[dict[str, Any]] = []
    names: dict[str | None, str] = {}
    given = set[str]()
    for message in messages:
        if message.role == "assistant":
            kept = json.loads(message.extra).get(ANSWER_PARTS) if message.extra else None
            texts = [{"text": message.content}] if message.content else []
            calls = [
                {"functionCall": {"name": call.name, "args": arguments_object(call.arguments)}}
                if call.name
                else {"text": call.arguments}
                for call in message.tool_calls
            ]
            parts = kept or [*texts, *calls]
            names |= {call.id: call.name for call in message.tool_calls}
            given = {part["functionCall"]["id"] for part in parts if part.get("functionCall", {}).get("id")}
            role = "model"
        elif message.role == "tool" and names.get(message.tool_call_id):
            response: dict[str, Any] = {"name": names[message.tool_call_id], "response": {}}
            response["response"]["result"] = message.content
            if message.tool_call_id in given:
                response["id"] = message.tool_call_id
            parts, role = [{"functionResponse": response}], "user"
        else:
            parts, role = [_text_or_image(kind, part) for kind, part in content_parts(message)], "user"
        if out and out[-1]["role"] == role:
            out[-1]["parts"] = [*out[-1]["parts"], *parts]
        elif parts:
            out.append({"role": role, "parts": parts})
    return out


def _text_or_image(kind: str, part: str) -> dict[str, Any]:
    if kind == "text":
        return {"text": part}
    if not part.startswith("data:"):
        return {"fileData": {"fileUri": part, "mimeType": "image/*"}}
    head, _, data = part.removeprefix("data:").partition(",")
    return {"inlineData": {"mimeType": head.partition(";")[0], "data": data}}
