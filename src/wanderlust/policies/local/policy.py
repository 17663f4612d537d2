"""A policy that is a language model in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from wanderlust.core.contracts import Tool
from wanderlust.core.errors import PolicyFailure
from wanderlust.core.messages import Message
from wanderlust.core.types import Completion, Tokens
from wanderlust.policies.local.context import Context
from wanderlust.policies.local.drafts import Drafts
from wanderlust.policies.local.engine import Engine
from wanderlust.policies.local.sampling import Sampling, key_of
from wanderlust.policies.render import Renderer

GIVEN = "given"
"""Finish of an answer that the policy did not sample itself."""


@dataclass(slots=True)
class _Conversation:
    messages: list[Message] = field(default_factory=list)
    context: Context = field(default_factory=Context)
    closed: bool = False
    busy: bool = False


class LocalPolicy:
    """Samples with exact ids and log-probabilities; keeps each conversation's memory across its turns.

    `key` names a conversation: with one, only what is new is read; without, the whole context is read and then
    forgotten. Draws depend on `seed`, the key and the turn alone.
    """

    def __init__(self, engine: Engine, renderer: Renderer, sampling: Sampling | None = None, *, seed: int = 0):
        self.engine, self.renderer, self.seed = engine, renderer, seed
        self.sampling = sampling or Sampling()
        self._drafts = Drafts()
        self._conversations: dict[str, _Conversation] = {}

    @classmethod
    def of(
        cls, model: Any, tokenizer: Any, sampling: Sampling | None = None, *, seed: int = 0, fast: bool = True
    ) -> Self:
        """A policy of a `transformers` model and its tokenizer, which `transformers` itself reads unless `fast`."""
        renderer = Renderer(tokenizer)
        engine = Engine(model, end_ids=renderer.end_ids, decode=tokenizer.decode, fast=fast)
        return cls(engine, renderer, sampling, seed=seed)

    def sampled(self, sampling: Sampling) -> LocalPolicy:
        """The same model and engine, drawn from in another way."""
        return type(self)(self.engine, self.renderer, sampling, seed=self.seed)

    def greedy(self) -> LocalPolicy:
        """The same model, always taking the likeliest token."""
        return self.sampled(replace(self.sampling, temperature=0.0))

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Sample an answer. PolicyFailure when the context does not fit the model or the model fails."""
        talk, new = self._open(messages, tools, key=key)
        offset = len(talk.context.ids)
        draws = key_of(self.seed, key, len(messages))
        talk.busy = True
        request = await self.engine.sample(talk.context, new, sampling=self.sampling, key=draws, drafts=self._drafts)
        talk.busy = False
        message = self.renderer.answer(request.sampled)
        talk.messages, talk.closed = [*messages, message], request.sampled[-1] in self.renderer.end_ids
        if not key:
            self.engine.release(talk.context)
        tokens = Tokens(
            prompt=tuple(new),
            completion=tuple(request.sampled),
            logprobs=tuple(request.logprobs),
            offset=offset,
            version=self.engine.version,
        )
        usage = {"prompt_tokens": offset + len(new), "completion_tokens": len(request.sampled)}
        return Completion(message=message, finish=request.finish, tokens=tokens, usage=usage)

    def say(self, messages: Sequence[Message], answer: Message, *, key: str) -> Completion:
        """Answer with somebody else's words, as if they had been sampled; the conversation goes on from there.

        The completion's finish is `given` and its log-probabilities are 0: whoever gave it was certain of it.
        """
        talk, new = self._open(messages, (), key=key)
        offset, ids = len(talk.context.ids), self.renderer.closed(answer)
        talk.context.append((*new, *ids))
        talk.messages, talk.closed = [*messages, answer], True
        tokens = Tokens(prompt=tuple(new), completion=ids, logprobs=(0.0,) * len(ids), offset=offset)
        return Completion(message=answer, finish=GIVEN, tokens=tokens)

    def knows(self, key: str) -> bool:
        """Whether a conversation goes on under `key`."""
        return key in self._conversations

    def _open(
        self, messages: Sequence[Message], tools: Sequence[Tool], *, key: str
    ) -> tuple[_Conversation, tuple[int, ...]]:
        """The conversation under `key`, or a new one, and the ids that it has to read next."""
        talk = self._conversations.get(key) if key else None
        if talk is not None and talk.busy:
            raise PolicyFailure(f"two answers at once are asked for under the key {key!r}")
        new = self._continue(talk, messages) if talk is not None else None
        if talk is None or new is None:
            if talk is not None:
                self.engine.release(talk.context)
            talk, new = _Conversation(), self.renderer.start(messages, tools)
        if key:
            self._conversations[key] = talk
        return talk, new

    def release(self, key: str) -> None:
        """Forget the conversation `key`."""
        talk = self._conversations.pop(key, None)
        if talk is not None:
            self.engine.release(talk.context)

    def _continue(self, talk: _Conversation, messages: Sequence[Message]) -> tuple[int, ...] | None:
        known = len(talk.messages)
        if len(messages) <= known or list(messages[:known]) != talk.messages:
            return None
        return self.renderer.extend(talk.messages, messages[known:], closed=talk.closed)
