"""Thinking of a bounded length, by tokens that are written into an answer while it is sampled: budget forcing.

Source: s1 (arXiv 2501.19393). Works over any `Sampler`: an answer is sampled in parts, each of which continues the ids
of the parts before. Thinking is what stands before the first `end`, whether or not anything opens it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from wanderlust.errors import UsageError
from wanderlust.policies.base import SampledTokens, Sampler, SamplingOptions, ThinkingBudget, derive_key
from wanderlust.policies.chat_template import Renderer


def check_thinking(sampling: SamplingOptions, room: int | None = None) -> None:
    """Raises UsageError when bounds of thinking leave no token of the answer, or of a context of `room` tokens."""
    if sampling.thinking is None:
        return
    thinking, most = sampling.thinking, sampling.max_tokens if room is None else min(sampling.max_tokens, room)
    wanted = max(thinking.min_tokens, thinking.max_tokens or 0)
    if wanted >= most:
        raise UsageError(f"thinking of {wanted} tokens leaves no answer: it and the thinking may have {most} together")


def thinking_ids(ids: Sequence[int], end: str, renderer: Renderer) -> Sequence[int] | None:
    """The longest beginning of an answer's ids whose text has nothing of the end of thinking; None without an end."""
    at = renderer.answer_text(ids).find(end)
    if at < 0:
        return None
    keep = len(ids)
    while keep and len(renderer.answer_text(ids[:keep])) > at:
        keep -= 1
    return ids[:keep]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedTokens:
    """An answer, and how much of it was written and not sampled."""

    sampled: SampledTokens
    """All ids; those that were written have log-probability 0."""
    written: int = 0
    """Ids that were written."""
    thinking: int = 0
    """Ids of the thinking, its end included; 0 where it did not end."""


async def sample_thinking(
    sampler: Sampler, prompt: Sequence[int], sampling: SamplingOptions, *, renderer: Renderer, key: int
) -> ForcedTokens:
    """An answer whose thinking keeps the bounds of `sampling.thinking`; equal keys draw equally where the engine can.

    An answer that ends its turn while it still thinks is extended like one that ends its thinking too early.
    """
    bounds = sampling.thinking or ThinkingBudget()
    plain, thought = replace(sampling, thinking=None), 0
    answer = _Parts(sampler=sampler, prompt=prompt, sampling=plain, renderer=renderer, key=key)
    while not thought:
        room = sampling.max_tokens if bounds.max_tokens is None else bounds.max_tokens
        part = await answer.extend(room, bounds.end)
        ended = bounds.end in renderer.answer_text(answer.ids)
        if part.finish == "length":
            if len(answer.ids) < room or room == sampling.max_tokens:
                return answer.result("length")
            answer.write(bounds.end)
            thought = len(answer.ids)
        elif len(answer.ids) < bounds.min_tokens and (ended or part.ids[-1] in renderer.end_ids):
            answer.cut(bounds.end)
            answer.write(bounds.extension)
        elif not ended:
            return answer.result(part.finish)
        else:
            thought = len(answer.ids)
    if len(answer.ids) >= sampling.max_tokens:
        return answer.result("length", thought)
    return answer.result((await answer.extend(sampling.max_tokens)).finish, thought)


@dataclass(slots=True, kw_only=True)
class _Parts:
    """An answer as its parts are sampled and written."""

    sampler: Sampler
    prompt: Sequence[int]
    sampling: SamplingOptions
    renderer: Renderer
    key: int
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    written: int = 0
    parts: int = 0
    version: int | None = None

    async def extend(self, upto: int, *stop: str) -> SampledTokens:
        """Sample until there are `upto` ids, or a stop text or the turn's end comes."""
        sampling = replace(self.sampling, stop=(*self.sampling.stop, *stop), max_tokens=max(upto - len(self.ids), 1))
        key = derive_key(self.key, "part", self.parts) if self.parts else self.key
        part = await self.sampler.sample([*self.prompt, *self.ids], sampling, key=key)
        self.ids += part.ids
        self.logprobs += part.logprobs
        self.parts += 1
        self.version = part.version if self.version is None else min(self.version, part.version)
        return part

    def write(self, text: str) -> None:
        """Append a text as if it had been sampled."""
        ids = self.renderer.encode(text)
        self.ids += ids
        self.logprobs += [0.0] * len(ids)
        self.written += len(ids)

    def cut(self, end: str) -> None:
        """Take away the end of the thinking, or of the turn."""
        thought = thinking_ids(self.ids, end, self.renderer)
        keep = len(self.ids) - (self.ids[-1] in self.renderer.end_ids) if thought is None else len(thought)
        del self.ids[keep:], self.logprobs[keep:]

    def result(self, finish: str, thinking: int = 0) -> ForcedTokens:
        """What there is."""
        sampled = SampledTokens(
            ids=tuple(self.ids), logprobs=tuple(self.logprobs), finish=finish, version=self.version or 0
        )
        return ForcedTokens(sampled=sampled, written=self.written, thinking=thinking)
