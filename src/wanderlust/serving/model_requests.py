"""Parse requests to a model of `wander serve`: chat completions and completions.

Sources: OpenAI's API reference; vLLM's additions `return_token_ids` and prompts of token ids (vLLM 0.26).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from wanderlust.errors import UsageError
from wanderlust.openai_types import message_from_wire, parse_request, tool_from_wire
from wanderlust.policies.base import SamplingOptions, schema_text
from wanderlust.policies.endpoint import PREFER_TOKEN_IDS
from wanderlust.serving.dialect import read_stops, requested_format
from wanderlust.types import DeclaredTool, Message

MAX_CHOICES = 256
"""Answers of one request, over all its prompts."""
MAX_REQUEST_TOKENS = 2**20

Prompt = str | list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """Options of a request to a model."""

    model: str
    sampling: SamplingOptions
    n: int = 1
    """Answers to each prompt."""
    seed: int | None = None
    stream: bool = False
    include_usage: bool = False
    """Whether a stream ends with the usage."""
    logprobs: bool = False
    return_token_ids: bool = False
    """Whether the token ids are wanted."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end an answer; only those that do so anyway are supported."""


class _RequestFields(msgspec.Struct):
    model: str = ""
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    logprobs: bool | int | None = None
    top_logprobs: int | None = None
    return_token_ids: bool | None = None
    stop_token_ids: list[int] | None = None
    response_format: dict[str, Any] | None = None


class _Chat(_RequestFields, kw_only=True):
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None


class _Text(_RequestFields, kw_only=True):
    prompt: Any


_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "min_p", "min_tokens"), (0,)),
    **dict.fromkeys(("echo", "use_beam_search", "ignore_eos"), (False,)),
    "repetition_penalty": (1,),
    "top_k": (0, -1),
    "best_of": (1,),
    "logit_bias": ({},),
    "suffix": ("",),
    "parallel_tool_calls": (True,),
}
"""Unsupported options that would change the answer, and the values at which they change nothing."""


def parse_chat_completion_request(
    body: Mapping[str, Any], default: SamplingOptions, *, prefer: str = ""
) -> tuple[RequestOptions, list[Message], list[DeclaredTool]]:
    """Read a chat completion's request. Raises UsageError of one line for what cannot be done."""
    fields = parse_request(body, _Chat, "a chat completion's request")
    if not fields.messages:
        raise UsageError("a chat completion's request without messages")
    if fields.tool_choice not in (None, "auto", "none"):
        raise UsageError("tool_choice may be auto or none: nobody can be made to call a tool here")
    tools = [] if fields.tool_choice == "none" else [tool_from_wire(tool) for tool in fields.tools or ()]
    messages = [message_from_wire(message) for message in fields.messages]
    if any(message.images for message in messages):
        raise UsageError("an image: this model reads text alone")
    return _parse_options(body, fields, default, prefer=prefer), messages, tools


def parse_completion_request(
    body: Mapping[str, Any], default: SamplingOptions, *, prefer: str = ""
) -> tuple[RequestOptions, list[Prompt]]:
    """Read a completion's request. Raises UsageError of one line for what cannot be done."""
    fields = parse_request(body, _Text, "a completion's request")
    order = _parse_options(body, fields, default, prefer=prefer)
    several = isinstance(fields.prompt, list) and not all(type(item) is int for item in fields.prompt)
    prompts: list[Prompt] = fields.prompt if several else [fields.prompt]
    for prompt in prompts:
        ids = isinstance(prompt, list) and all(type(item) is int and item >= 0 for item in prompt)
        if not (prompt and (isinstance(prompt, str) or ids)):
            raise UsageError("prompt: a text or a list of token ids is needed, or a list of such; none may be empty")
    if len(prompts) * order.n > MAX_CHOICES:
        raise UsageError(f"{len(prompts) * order.n} answers at once: a request may have {MAX_CHOICES}")
    return order, prompts


def _parse_options(
    body: Mapping[str, Any], fields: _RequestFields, default: SamplingOptions, *, prefer: str
) -> RequestOptions:
    for name, neutral in _NEUTRAL.items():
        if body.get(name) is not None and body[name] not in neutral:
            raise UsageError(f"{name} is not to be had here: leave it out")
    n = 1 if fields.n is None else fields.n
    if not 1 <= n <= MAX_CHOICES:
        raise UsageError(f"n: {n} answers; a request may have 1 to {MAX_CHOICES}")
    if (fields.top_logprobs or 0) > 1 or (not isinstance(fields.logprobs, bool) and (fields.logprobs or 0) > 1):
        raise UsageError("logprobs: only those of the sampled tokens are to be had, not of others: ask for at most 1")
    exact = any(part.strip() == PREFER_TOKEN_IDS for part in prefer.split(","))
    return RequestOptions(
        model=fields.model,
        sampling=_sampling(fields, default),
        n=n,
        seed=fields.seed,
        stream=bool(fields.stream),
        include_usage=bool((fields.stream_options or {}).get("include_usage")),
        logprobs=exact or (fields.logprobs is not None and fields.logprobs is not False),
        return_token_ids=exact or bool(fields.return_token_ids),
        stop_token_ids=tuple(fields.stop_token_ids or ()),
    )


def _sampling(fields: _RequestFields, default: SamplingOptions) -> SamplingOptions:
    limits = [limit for limit in (fields.max_completion_tokens, fields.max_tokens) if limit is not None]
    sampling = SamplingOptions(
        temperature=default.temperature if fields.temperature is None else fields.temperature,
        top_p=default.top_p if fields.top_p is None else fields.top_p,
        max_tokens=limits[0] if limits else default.max_tokens,
        stop=default.stop if fields.stop is None else read_stops(fields.stop),
        schema=schema_text(requested_format(fields.response_format)),
    )
    if not (math.isfinite(sampling.temperature) and 0 <= sampling.temperature <= 100):
        raise UsageError(f"temperature: {sampling.temperature:g} is not between 0 and 100")
    if not 0 < sampling.top_p <= 1:
        raise UsageError(f"top_p: {sampling.top_p:g} is not above 0 and at most 1")
    if not 1 <= sampling.max_tokens <= MAX_REQUEST_TOKENS:
        raise UsageError(f"max_tokens: {sampling.max_tokens} is not between 1 and {MAX_REQUEST_TOKENS}")
    return sampling
