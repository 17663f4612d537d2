"""Types that policies share: the hardware of a model, sampling options, and the protocol of token-level samplers.

`policies/local/device.py` moves models to the hardware.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from wanderlust.errors import UsageError
from wanderlust.types import Message

API_KEY_VARIABLE = "WANDER_API_KEY"
"""Environment variable that is sent to endpoints as their key; no other program's key is sent anywhere."""
NOT_SAMPLED = "not_sampled"
"""Finish of an answer that the policy did not sample itself, or not from all tokens."""
Precision: TypeAlias = Literal["fp32", "bf16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Device and precision of a model; every figure of this project is measured with the defaults."""

    device: str = "cpu"
    """cpu, cuda, cuda:N, or auto, which takes a GPU where there is one."""
    precision: Precision = "fp32"
    """With bf16, layers compute in bfloat16; logits, losses and trained weights stay in fp32. For GPUs."""


DEFAULT_HARDWARE = Hardware()


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingBudget:
    """Bounds of the thinking that begins an answer, kept while it is sampled: budget forcing (s1, arXiv 2501.19393).

    Example:
        >>> SamplingOptions(max_tokens=512, thinking=ThinkingBudget(min_tokens=64, max_tokens=256)).thinking.end
        '</think>'
    """

    min_tokens: int = 0
    """Thinking that ends earlier goes on: its end is taken away and `extension` written in its place."""
    max_tokens: int | None = None
    """Thinking that is longer is ended: `end` is written. None: no bound but that of the answer."""
    end: str = "</think>"
    """Text that ends the thinking."""
    extension: str = " Wait,"
    """Text that makes it go on."""

    def __post_init__(self) -> None:
        """Raises UsageError for bounds that nothing can keep."""
        most = self.max_tokens
        if self.min_tokens < 0 or (most is not None and (most < 1 or most < self.min_tokens)):
            raise UsageError(
                f"thinking of {self.min_tokens} to {most} tokens: the least is from 0 on, the most from 1 and that on"
            )
        if not self.end or not self.extension:
            raise UsageError("the texts that end and extend thinking must not be empty")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """Parameters of the distribution that answers are drawn from, and of their end."""

    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    """Draw among the likeliest tokens that together reach this probability; 1 is off."""
    max_tokens: int = 256
    """Bound of one answer, in tokens."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer; they stay part of it."""
    thinking: ThinkingBudget | None = None
    """Bounds of the thinking, which a `TokenPolicy` keeps over any sampler."""
    schema: str = ""
    """A JSON schema, as text, that answers are held to; empty for none. For samplers with `takes_schema`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTokens:
    """The token ids of one sampled answer."""

    ids: tuple[int, ...]
    """At least one. Where `finish` is `stop`, the last one ends the turn, unless a stop text ended it."""
    logprobs: tuple[float, ...]
    """Of each id under softmax(logits / temperature), before any cut; at temperature 0 under softmax(logits)."""
    finish: str
    """`stop` or `length`."""
    version: int = 0
    """Version of the weights; where they changed meanwhile, the oldest."""


ToolCalls: TypeAlias = Literal["template", "text"]
"""Who writes tool calls: the model's own form, where it has one that is known, or always plain text."""


def schema_of(response_format: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The JSON schema in a `response_format`, where it has one."""
    schema = (response_format or {}).get("json_schema", {}).get("schema")
    return schema if isinstance(schema, Mapping) else None


def schema_text(response_format: Mapping[str, Any] | None) -> str:
    """The same as text, as `SamplingOptions.schema` takes it; where any JSON object will do, that one's."""
    return "" if response_format is None else json.dumps(schema_of(response_format) or {"type": "object"})


OnTokens: TypeAlias = Callable[[Sequence[int], Sequence[float]], None]
"""Receives an answer's ids and log-probabilities so far, whenever there are more."""


@runtime_checkable
class SupportsChoices(Protocol):
    """A policy that says how probable given answers are."""

    async def choice_logprobs(self, messages: Sequence[Message], choices: Sequence[str]) -> list[float]:
        """Log-probability of each text as the beginning of the answer, at temperature 1.

        PolicyFailure where the policy's engine cannot tell.
        """
        ...


class Sampler(Protocol):
    """An engine that continues token prompts."""

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str = ""
    ) -> SampledTokens:
        """Draw one answer. ContextFull when the prompt does not fit the model, PolicyFailure when the engine fails.

        Equal keys draw equally where the engine can. `session` names a conversation whose prompts each extend the ids
        read and sampled before, so that an engine may cache them; without one nothing is cached.
        """
        ...

    def release(self, session: str) -> None:
        """Forget the conversation `session`."""
        ...


@runtime_checkable
class ScoringSampler(Protocol):
    """An engine that also says how probable given tokens are."""

    async def score(self, prompt: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[float]:
        """Log-probability of each continuation of a prompt, summed over its ids, at temperature 1.

        ContextFull and PolicyFailure as `Sampler.sample`.
        """
        ...


class StreamingSampler(Sampler, Protocol):
    """A sampler that reports tokens while it samples."""

    async def sample(
        self,
        prompt: Sequence[int],
        sampling: SamplingOptions,
        *,
        key: int,
        session: str = "",
        on_tokens: OnTokens | None = None,
    ) -> SampledTokens:
        """Like `Sampler.sample`."""
        ...


def derive_key(*parts: object) -> int:
    """Hash the parts to a 64-bit number."""
    return int.from_bytes(
        blake2b("/".join(map(str, parts)).encode(errors="surrogatepass"), digest_size=8).digest(), "little"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrices:
    """Prices of a model's tokens, in dollars per million."""

    input: float
    output: float
    cached: float | None = None
    """Of prompt tokens that the server had cached; None: as `input`."""

    def cost(self, tokens_in: int, tokens_out: int, cached: int = 0) -> float:
        """Cost of so many tokens, in dollars; `cached` counts those of `tokens_in` that the server had cached."""
        of_cached = self.input if self.cached is None else self.cached
        return ((tokens_in - cached) * self.input + cached * of_cached + tokens_out * self.output) / 1e6

    def cost_of(self, usage: Mapping[str, int]) -> float:
        """Cost of one turn, in dollars."""
        read, cached = usage.get("prompt_tokens", 0), usage.get("cached_tokens", 0)
        return self.cost(read, usage.get("completion_tokens", 0), min(cached, read))
