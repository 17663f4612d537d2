"""A policy over an engine that knows tokens only: conversations grow by ids and are never tokenized again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Self

from wanderlust.errors import PolicyFailure
from wanderlust.policies.base import Sampled, Sampler, Sampling, key_of
from wanderlust.policies.chat_template import Renderer
from wanderlust.types import Completion, Message, Tokens, Tool

GIVEN = "given"
"""Finish of an answer that the policy did not sample itself."""


@dataclass(slots=True)
class _Conversation:
    messages: list[Message] = field(default_factory=list)
    told: tuple[str, ...] = ()
    """Names of the tools that the model was told of."""
    ids: list[int] = field(default_factory=list)
    """All that the model has read and said; what stands for `messages`."""
    closed: bool = False
    busy: bool = False


class TokenPolicy:
    """Samples with exact ids and log-probabilities, whatever engine draws them.

    `key` names a conversation: with one, a later turn's prompt extends the ids of the turns before; without, every
    context is rendered whole. Draws depend on `seed`, the key and the turn alone.
    """

    def __init__(self, sampler: Sampler, renderer: Renderer, sampling: Sampling | None = None, *, seed: int = 0):
        self.sampler, self.renderer, self.seed = sampler, renderer, seed
        self.sampling = sampling or Sampling()
        self._conversations: dict[str, _Conversation] = {}

    def sampled(self, sampling: Sampling) -> Self:
        """The same model and engine, drawn from in another way."""
        return type(self)(self.sampler, self.renderer, sampling, seed=self.seed)

    def greedy(self) -> Self:
        """The same model, always taking the likeliest token."""
        return self.sampled(replace(self.sampling, temperature=0.0))

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Sample an answer. PolicyFailure when the context does not fit the model or the engine fails."""
        talk, new = self._open(messages, tools, key=key)
        offset, talk.busy = len(talk.ids), True
        draws = key_of(self.seed, key, len(messages))
        sampled = await self._sample([*talk.ids, *new], key, draws=draws)
        talk.busy = False
        talk.ids += new
        talk.ids += sampled.ids
        message = self.renderer.answer(sampled.ids, tools, turn=len(messages))
        talk.messages, talk.closed = [*messages, message], sampled.ids[-1] in self.renderer.end_ids
        tokens = Tokens(
            prompt=tuple(new),
            completion=sampled.ids,
            logprobs=sampled.logprobs,
            offset=offset,
            version=sampled.version,
        )
        usage = {"prompt_tokens": offset + len(new), "completion_tokens": len(sampled.ids)}
        finish = "tool_calls" if message.tool_calls and sampled.finish == "stop" else sampled.finish
        return Completion(message=message, finish=finish, tokens=tokens, usage=usage)

    async def _sample(self, prompt: Sequence[int], key: str, *, draws: int) -> Sampled:
        """Draw; where that fails the conversation is forgotten, as nobody knows how far the engine came."""
        with ExitStack() as undo:
            undo.callback(self.release, key)
            sampled = await self.sampler.sample(prompt, self.sampling, key=draws, session=key)
            undo.pop_all()
        return sampled

    def say(self, messages: Sequence[Message], answer: Message, *, key: str) -> Completion:
        """Answer with somebody else's words, as if they had been sampled; the conversation goes on from there.

        The completion's finish is `given` and its log-probabilities are 0: whoever gave it was certain of it.
        """
        talk, new = self._open(messages, (), key=key)
        offset, ids = len(talk.ids), self.renderer.closed(answer)
        talk.ids += (*new, *ids)
        talk.messages, talk.closed = [*messages, answer], True
        tokens = Tokens(prompt=tuple(new), completion=ids, logprobs=(0.0,) * len(ids), offset=offset)
        return Completion(message=answer, finish=GIVEN, tokens=tokens)

    def knows(self, key: str) -> bool:
        """Whether a conversation goes on under `key`."""
        return key in self._conversations

    def release(self, key: str) -> None:
        """Forget the conversation `key`."""
        if self._conversations.pop(key, None) is not None:
            self.sampler.release(key)

    def _open(
        self, messages: Sequence[Message], tools: Sequence[Tool], *, key: str
    ) -> tuple[_Conversation, tuple[int, ...]]:
        """The conversation under `key`, or a new one, and the ids that it has to read next."""
        talk = self._conversations.get(key) if key else None
        if talk is not None and talk.busy:
            raise PolicyFailure(f"two answers at once are asked for under the key {key!r}")
        told = tuple(tool.name for tool in tools)
        new = self._continue(talk, messages) if talk is not None and told in ((), talk.told) else None
        if talk is None or new is None:
            if talk is not None:
                self.sampler.release(key)
            talk, new = _Conversation(told=told), self.renderer.start(messages, tools)
        if key:
            self._conversations[key] = talk
        return talk, new

    def _continue(self, talk: _Conversation, messages: Sequence[Message]) -> tuple[int, ...] | None:
        known = len(talk.messages)
        if len(messages) <= known or list(messages[:known]) != talk.messages:
            return None
        return self.renderer.extend(talk.messages, messages[known:], closed=talk.closed)
