"""A policy over a token-level sampler: conversations grow by ids and are never tokenized again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Self

from wanderlust.errors import PolicyFailure
from wanderlust.policies.base import SampledTokens, Sampler, SamplingOptions, derive_key
from wanderlust.policies.chat_template import Renderer
from wanderlust.types import Completion, Message, Tokens, Tool

NOT_SAMPLED = "not_sampled"
"""Finish of an answer that the policy did not sample itself."""


@dataclass(slots=True)
class _Conversation:
    messages: list[Message] = field(default_factory=list)
    tool_names: tuple[str, ...] = ()
    """Names of the tools in the context."""
    ids: list[int] = field(default_factory=list)
    """Ids of `messages`, read and sampled."""
    closed: bool = False
    busy: bool = False


class TokenPolicy:
    """Sample with exact ids and log-probabilities, by any sampler.

    `key` names a conversation: with one, a later turn's prompt extends the ids of the turns before; without, every
    context is rendered whole. Draws depend on `seed`, the key and the turn alone.
    """

    def __init__(self, sampler: Sampler, renderer: Renderer, sampling: SamplingOptions | None = None, *, seed: int = 0):
        self.sampler, self.renderer, self.seed = sampler, renderer, seed
        self.sampling = sampling or SamplingOptions()
        self._conversations: dict[str, _Conversation] = {}

    @property
    def label(self) -> str | None:
        """The model, and where it is, if the sampler says so."""
        return getattr(self.sampler, "label", None)

    def with_sampling(self, sampling: SamplingOptions) -> Self:
        """The same model and engine with other sampling options."""
        return type(self)(self.sampler, self.renderer, sampling, seed=self.seed)

    def greedy(self) -> Self:
        """The same model, always taking the likeliest token."""
        return self.with_sampling(replace(self.sampling, temperature=0.0))

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Sample an answer. ContextFull when the conversation does not fit the model, PolicyFailure for an engine's."""
        return await self._sample_turn(self.sampler.sample, messages, tools, key=key)

    async def _sample_turn(
        self,
        sample: Callable[..., Awaitable[SampledTokens]],
        messages: Sequence[Message],
        tools: Sequence[Tool],
        *,
        key: str,
    ) -> Completion:
        """Sample an answer by `sample`, which takes the arguments of `Sampler.sample`."""
        talk, new = self._open(messages, tools, key=key)
        offset, talk.busy = len(talk.ids), True
        draws = derive_key(self.seed, key, len(messages))
        with ExitStack() as undo:
            undo.callback(self.release, key)  # after a failure nobody knows how far the engine came
            sampled = await sample([*talk.ids, *new], self.sampling, key=draws, session=key)
            undo.pop_all()
        talk.busy = False
        talk.ids += new
        talk.ids += sampled.ids
        message = self.renderer.parse_answer(sampled.ids, tools, turn=len(messages))
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

    def force_answer(self, messages: Sequence[Message], answer: Message, *, key: str) -> Completion:
        """Append a given answer as if it had been sampled; the conversation continues from there.

        The completion's finish is `not_sampled` and its log-probabilities are 0, those of a certain answer.
        """
        talk, new = self._open(messages, (), key=key)
        offset, ids = len(talk.ids), self.renderer.render_answer(answer)
        talk.ids += (*new, *ids)
        talk.messages, talk.closed = [*messages, answer], True
        tokens = Tokens(prompt=tuple(new), completion=ids, logprobs=(0.0,) * len(ids), offset=offset)
        return Completion(message=answer, finish=NOT_SAMPLED, tokens=tokens)

    def has_conversation(self, key: str) -> bool:
        """Whether there is a conversation under `key`."""
        return key in self._conversations

    def release(self, key: str) -> None:
        """Forget the conversation `key`."""
        if self._conversations.pop(key, None) is not None:
            self.sampler.release(key)

    def _open(
        self, messages: Sequence[Message], tools: Sequence[Tool], *, key: str
    ) -> tuple[_Conversation, tuple[int, ...]]:
        """Find the conversation under `key`, or start one, and render the ids that it reads next."""
        talk = self._conversations.get(key) if key else None
        if talk is not None and talk.busy:
            raise PolicyFailure(f"two answers at once are asked for under the key {key!r}")
        tool_names = tuple(tool.name for tool in tools)
        new = None
        if talk is not None and tool_names in ((), talk.tool_names):
            length = len(talk.messages)
            if len(messages) > length and list(messages[:length]) == talk.messages:
                new = self.renderer.extend(talk.messages, messages[length:], closed=talk.closed)
        if talk is None or new is None:
            if talk is not None:
                self.sampler.release(key)
            talk, new = _Conversation(tool_names=tool_names), self.renderer.start(messages, tools)
        if key:
            self._conversations[key] = talk
        return talk, new
