"""Where a model computes and how finely, as it is written down; `policies/local/placing.py` puts models there.

Token prompts in, sampled tokens out: what every engine can do, near or far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, Protocol, TypeAlias

Precision: TypeAlias = Literal["fp32", "bf16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Nothing but the device and the numbers' size; the defaults are what every figure of this project is made with."""

    device: str = "cpu"
    """Where models compute: cpu, cuda, cuda:N, or auto: a GPU where there is one."""
    precision: Precision = "fp32"
    """bf16: layers compute in bfloat16; logits, losses and what is learnt stay in fp32. For GPUs."""


DEFAULT_HARDWARE = Hardware()


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """How answers are drawn."""

    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    """Draw among the likeliest tokens that together reach this probability; 1 is off."""
    max_tokens: int = 256
    """Bound of one answer, in tokens."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer; they stay part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledTokens:
    """One answer as it was drawn."""

    ids: tuple[int, ...]
    """At least one; the last one ends the turn where `finish` is `stop` and no text of the sampling's did."""
    logprobs: tuple[float, ...]
    """Of each id under softmax(logits / temperature), before any cut; at temperature 0 under softmax(logits)."""
    finish: str
    """`stop` or `length`."""
    version: int = 0
    """Of the weights that drew it; where they changed meanwhile, the oldest."""


OnTokens: TypeAlias = Callable[[Sequence[int], Sequence[float]], None]
"""Is told an answer's ids and log-probabilities so far, whenever there are more."""


class Sampler(Protocol):
    """An engine that continues token prompts."""

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str = ""
    ) -> SampledTokens:
        """Draw one answer. PolicyFailure when the prompt does not fit the model or the engine fails.

        Equal keys draw equally where the engine can. `session` names a conversation whose prompts each extend what
        was read and sampled before, so that an engine may remember it; without one nothing is remembered.
        """
        ...

    def release(self, session: str) -> None:
        """A conversation is over."""
        ...


class StreamingSampler(Sampler, Protocol):
    """A sampler that can be listened to."""

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
    """A 64-bit number that stands for the parts."""
    return int.from_bytes(
        blake2b("/".join(map(str, parts)).encode(errors="surrogatepass"), digest_size=8).digest(), "little"
    )
