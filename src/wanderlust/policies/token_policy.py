"""A policy over a token-level sampler: conversations grow by ids and are never tokenized again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, ClassVar, Self

from wanderlust.agent.conversation_graph import draw_name
from wanderlust.errors import PolicyFailure
from wanderlust.policies.base import (
    NOT_SAMPLED,
    OnTokens,
    SampledTokens,
    Sampler,
    SamplingOptions,
    ScoringSampler,
    ThinkingBudget,
    derive_key,
    schema_text,
)
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.streaming_text import StreamingText, first_stop
from wanderlust.policies.thinking import ForcedTokens, check_thinking, sample_thinking, thinking_ids
from wanderlust.policies.token_conversations import TokenConversations
from wanderlust.types import (
    AnswerDetails,
    AnswerOptions,
    Completion,
    Message,
    OnText,
    TokenLogprob,
    Tokens,
    Tool,
)

HONOURED_OPTIONS = frozenset({"stop", "max_tokens", "logprobs"})
"""Fields of AnswerOptions that sampling tokens can honour; `response_format` where the sampler takes a schema."""


class TokenPolicy:
    """Sample with exact ids and log-probabilities, by any sampler.

    `key` names a conversation: with one, a later turn's prompt extends the ids of the turns before; without, every
    context is rendered whole. A conversation that branches off from another one of its seat begins with the ids that
    were read and sampled there. Draws depend on `seed`, the key and the turn alone.
    """

    streams: ClassVar[bool] = False
    """Whether the sampler reports tokens while it samples."""

    def __init__(self, sampler: Sampler, renderer: Renderer, sampling: SamplingOptions | None = None, *, seed: int = 0):
        self.sampler, self.renderer, self.seed = sampler, renderer, seed
        self.sampling = sampling or SamplingOptions()
        check_thinking(self.sampling)
        self._conversations = TokenConversations(renderer)

    @property
    def label(self) -> str | None:
        """The model, and where it is, if the sampler says so."""
        return getattr(self.sampler, "label", None)

    @property
    def longest_answer(self) -> int:
        """Tokens that an answer has at most."""
        return self.sampling.max_tokens

    def with_sampling(self, sampling: SamplingOptions) -> Self:
        """The same model and engine with other sampling options."""
        return type(self)(self.sampler, self.renderer, sampling, seed=self.seed)

    def greedy(self) -> Self:
        """The same model, always taking the likeliest token."""
        return self.with_sampling(replace(self.sampling, temperature=0.0))

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Sample an answer. ContextFull when the conversation does not fit the model, PolicyFailure for an engine's."""
        return await self._sample_turn(AnswerOptions(), messages, tools, key=key)

    def unsupported_option(self, options: AnswerOptions) -> str:
        """As in SupportsOptions: what the sampler does itself is honoured, and nothing is forced on the model."""
        honoured = HONOURED_OPTIONS
        if getattr(self.sampler, "takes_schema", False) and self.sampling.thinking is None:
            honoured = honoured | {"response_format"}
        return next((name for name in options.changed if name not in honoured), "")

    async def complete_with_options(
        self,
        options: AnswerOptions,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        key: str = "",
        on_text: OnText | None = None,
    ) -> Completion:
        """Sample an answer that ends where the options say; its ids are those that were sampled.

        `on_text` is called while tokens are sampled if `streams`, else once at the end.
        """
        if name := self.unsupported_option(options):
            raise PolicyFailure(f"a policy that samples tokens cannot honour {name}")
        if on_text is None or not self.streams:
            return await self._sample_turn(options, messages, tools, key=key)
        renderer = self.renderer
        call_format = renderer.tool_call_format if tools else None
        text = StreamingText(
            renderer.tokenizer.decode, ends=renderer.end_ids, stops=options.stop, tool_call_format=call_format
        )

        def read(ids: Sequence[int], _: Sequence[float]) -> None:
            if piece := text.advance(ids):
                on_text(piece)

        return await self._sample_turn(options, messages, tools, key=key, on_tokens=read)

    def count_tokens(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> int:
        """Tokens of the whole context, as the model would read it."""
        return len(self.renderer.start(messages, tools))

    async def _sample_turn(
        self,
        options: AnswerOptions,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        *,
        key: str,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        opened = self._conversations.open(messages, tools, key=key)
        talk, new = opened.conversation, opened.new
        if opened.restarted:
            self.sampler.release(key)
        offset, talk.busy = len(talk.ids), True
        draws = derive_key(self.seed, draw_name(key, messages))
        sampling = self._sampling_of(options)
        with ExitStack() as undo:
            undo.callback(self.release, key)  # after a failure nobody knows how far the engine came
            if sampling.thinking is None:
                reports: dict[str, Any] = {} if on_tokens is None else {"on_tokens": on_tokens}
                sampled = await self.sampler.sample([*talk.ids, *new], sampling, key=draws, session=key, **reports)
                forced = ForcedTokens(sampled=sampled)
            else:
                forced = await sample_thinking(
                    self.sampler, [*talk.ids, *new], sampling, renderer=self.renderer, key=draws
                )
                sampled = forced.sampled
            undo.pop_all()
        talk.busy = False
        message = self.renderer.parse_answer(sampled.ids, tools, turn=len(messages), stops=options.stop)
        closed = sampled.ids[-1] in self.renderer.end_ids
        talk.append(new, [*messages, message], sampled.ids, closed=closed)
        tokens = Tokens(
            prompt=new,
            completion=sampled.ids,
            logprobs=sampled.logprobs,
            offset=offset,
            version=sampled.version,
        )
        usage = {"prompt_tokens": offset + len(new), "completion_tokens": len(sampled.ids)}
        if forced.thinking:
            usage["reasoning_tokens"] = forced.thinking
        finish = "tool_calls" if message.tool_calls and sampled.finish == "stop" else sampled.finish
        if forced.written or sampling.schema:  # no trainer may take such ids for free draws of the policy
            finish = NOT_SAMPLED
        details = self._details(options, sampled, cut=finish == NOT_SAMPLED and sampled.finish == "length")
        return Completion(message=message, finish=finish, tokens=tokens, usage=usage, details=details)

    def _sampling_of(self, options: AnswerOptions) -> SamplingOptions:
        """The policy's own sampling with the ends that the options add."""
        sampling = self.sampling
        if options.stop:
            sampling = replace(sampling, stop=(*sampling.stop, *options.stop))
        if options.max_tokens is not None and options.max_tokens < sampling.max_tokens:
            sampling = replace(sampling, max_tokens=options.max_tokens)
        if options.response_format is not None:
            sampling = replace(sampling, schema=schema_text(options.response_format))
        return sampling

    def _details(self, options: AnswerOptions, sampled: SampledTokens, *, cut: bool) -> AnswerDetails | None:
        if not (options.stop or options.logprobs or cut):
            return None
        stop = first_stop(self.renderer.answer_text(sampled.ids), options.stop)
        pairs = zip(sampled.ids, sampled.logprobs, strict=True) if options.logprobs else ()
        decode = self.renderer.tokenizer.decode
        return AnswerDetails(
            cut=cut,
            stop=stop,
            logprobs=tuple(TokenLogprob(text=str(decode([token])), logprob=logprob) for token, logprob in pairs),
        )

    def force_answer(
        self, messages: Sequence[Message], answer: Message, *, key: str, tools: Sequence[Tool] = ()
    ) -> Completion:
        """Append a given answer as if it had been sampled; the conversation continues from there.

        The completion's finish is `not_sampled` and its log-probabilities are 0, those of a certain answer.
        """
        tokens = self._conversations.give(messages, answer, tools, key=key)
        if not tokens.offset:  # what the sampler keeps of an earlier conversation is of no use
            self.sampler.release(key)
        return Completion(message=answer, finish=NOT_SAMPLED, tokens=tokens)

    def thinking_of(self, completion: Sequence[int]) -> Sequence[int] | None:
        """The ids of a completion before the end of its thinking; None where it does not end."""
        return thinking_ids(completion, self._thinking_end, self.renderer)

    async def choice_logprobs(self, messages: Sequence[Message], choices: Sequence[str]) -> list[float]:
        """As `SupportsChoices` says; the conversation is not kept."""
        if not isinstance(self.sampler, ScoringSampler):
            raise PolicyFailure(f"{type(self.sampler).__name__} does not tell how probable given texts are")
        return await self.sampler.score(self.renderer.start(messages), [self.renderer.encode(one) for one in choices])

    async def answer_after(self, prompt: Sequence[int], thinking: Sequence[int], *, key: str) -> str:
        """The whole text of an answer to `prompt` that begins with this thinking; the rest is sampled after its end.

        It belongs to no conversation. ContextFull and PolicyFailure as `complete`.
        """
        begun = (*thinking, *self.renderer.encode(self._thinking_end))
        sampling = replace(self.sampling, thinking=None)
        sampled = await self.sampler.sample([*prompt, *begun], sampling, key=derive_key(self.seed, key))
        return self.renderer.answer_text([*begun, *sampled.ids])

    @property
    def _thinking_end(self) -> str:
        return (self.sampling.thinking or ThinkingBudget()).end

    def has_conversation(self, key: str) -> bool:
        """Whether there is a conversation under `key`."""
        return key in self._conversations

    def release(self, key: str) -> None:
        """Forget the conversation `key`."""
        if self._conversations.drop(key):
            self.sampler.release(key)
