"""Policies over a language model in this process, one of them with exploring starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from random import Random
from typing import Any, ClassVar, Self, TypeAlias

import torch

from wanderlust.agent.conversation_graph import seat_of_key
from wanderlust.errors import ContextFull, PolicyFailure, boundary
from wanderlust.policies.base import OnTokens, SampledTokens, SamplingOptions
from wanderlust.policies.chat_template import Renderer, Rendering
from wanderlust.policies.local.grammar import Grammars, TokenMatcher
from wanderlust.policies.local.inference_engine import Engine, NGramSpeculator
from wanderlust.policies.local.rows import Context
from wanderlust.policies.thinking import check_thinking
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.types import AnswerOptions, Completion, Message, OnText, Tool, assistant

FirstMove: TypeAlias = Callable[[Sequence[Message], Random, int], str | None]
"""Suggests the answer of a group's nth explorer in this conversation; None leaves it to the policy."""


class ExploringStarts:
    """A policy whose samples from number `first` on open their episode with a suggested answer.

    These explorers of a group share the draws of their suggestions, so that each can try another one. All later
    answers are the policy's own. An on-policy gradient cannot find an action whose probability has become nearly 0;
    a sample that takes it can find its reward.
    """

    def __init__(self, policy: TokenPolicy, first_move: FirstMove, *, first: int):
        self.policy, self.first_move, self.first = policy, first_move, first

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The suggestion in an explorer's first turn, else the policy's answer."""
        if key and not self.policy.has_conversation(key):
            group, sibling, seat = seat_of_key(key).rsplit("/", 2)  # task/seed/sibling/seat
            nth = int(sibling) - self.first
            answer = self.first_move(messages, Random(f"explore/{group}/{seat}"), nth) if nth >= 0 else None
            if answer is not None:
                return self.policy.force_answer(messages, assistant(answer), key=key, tools=tools)
        return await self.policy.complete(messages, tools, key=key)

    def release(self, key: str) -> None:
        """Forget the conversation."""
        self.policy.release(key)


class LocalSampler:
    """The engine of this process as a sampler: a session's keys and values are cached, and only new ids are read."""

    def __init__(self, engine: Engine, tokenizer: Any = None):
        """Without the tokenizer no answer can be held to a JSON schema."""
        self.engine = engine
        self._grammars = None if tokenizer is None else Grammars(tokenizer, engine.end_ids)
        self._speculator = NGramSpeculator()
        self._sessions: dict[str, Context] = {}

    async def sample(
        self,
        prompt: Sequence[int],
        sampling: SamplingOptions,
        *,
        key: int,
        session: str = "",
        on_tokens: OnTokens | None = None,
    ) -> SampledTokens:
        """Draw one answer; equal keys draw equally. ContextFull for too long a prompt, PolicyFailure for faults."""
        context = self._sessions.get(session) if session else None
        if context is None:
            context = Context()
        if session:
            self._sessions[session] = context
        new, version = prompt[len(context.ids) :], self.engine.version
        matcher: TokenMatcher | None = None
        if sampling.schema:
            if self._grammars is None:
                raise PolicyFailure("this sampler has no tokenizer, so no answer can be held to a JSON schema")
            matcher = self._grammars.matcher(sampling.schema)
        request = await self.engine.sample(
            context, new, sampling=sampling, key=key, speculator=self._speculator, on_tokens=on_tokens, matcher=matcher
        )
        if not session:
            self.engine.release(context)
        return SampledTokens(
            ids=tuple(request.sampled),
            logprobs=tuple(request.logprobs),
            finish=request.finish,
            version=version,
        )

    @property
    def takes_schema(self) -> bool:
        """Whether answers can be held to a JSON schema."""
        return self._grammars is not None

    async def score(self, prompt: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[float]:
        """As `ScoringSampler` says: one pass of the model over all continuations."""
        longest = max(map(len, continuations))
        if len(prompt) + longest > self.engine.max_positions:
            raise ContextFull(
                f"a context of {len(prompt) + longest} tokens does not fit the model's {self.engine.max_positions}"
            )
        device = next(self.engine.model.parameters()).device
        ids = torch.zeros(len(continuations), len(prompt) + longest, dtype=torch.long)
        read = torch.zeros_like(ids)
        for row, continuation in enumerate(continuations):
            ids[row, : len(prompt) + len(continuation)] = torch.tensor([*prompt, *continuation])
            read[row, : len(prompt) + len(continuation)] = 1
        with boundary(PolicyFailure), torch.inference_mode():
            told = self.engine.model(input_ids=ids.to(device), attention_mask=read.to(device), use_cache=False)
            likely = torch.log_softmax(told.logits[:, len(prompt) - 1 : -1].float(), -1).cpu()
        of_ids = likely.gather(2, ids[:, len(prompt) :, None])[..., 0]
        return [float(row[: len(c)].sum()) for row, c in zip(of_ids, continuations, strict=True)]

    def release(self, session: str) -> None:
        """Forget a conversation."""
        context = self._sessions.pop(session, None)
        if context is not None:
            self.engine.release(context)


DIGEST_WEIGHTS = 64
"""Weights of each parameter that are read for a model's digest."""


class LocalPolicy(TokenPolicy):
    """A policy whose engine is in this process; caches each conversation's keys and values across its turns."""

    streams: ClassVar[bool] = True

    def __init__(self, engine: Engine, renderer: Renderer, sampling: SamplingOptions | None = None, *, seed: int = 0):
        self.local_sampler = LocalSampler(engine, renderer.tokenizer)
        super().__init__(self.local_sampler, renderer, sampling, seed=seed)
        self.engine = engine
        check_thinking(self.sampling, engine.max_positions)

    @classmethod
    def of(
        cls,
        model: Any,
        tokenizer: Any,
        sampling: SamplingOptions | None = None,
        *,
        seed: int = 0,
        fast: bool = True,
        cache_bytes: int = 0,
        rendering: Rendering | None = None,
    ) -> Self:
        """Make a policy of a `transformers` model and its tokenizer.

        Unless `fast`, `transformers` computes it; `cache_bytes`: see `Engine`; `rendering`: see `Renderer`.
        """
        renderer = Renderer(tokenizer, rendering)
        engine = Engine(model, end_ids=renderer.end_ids, decode=tokenizer.decode, fast=fast, cache_bytes=cache_bytes)
        return cls(engine, renderer, sampling, seed=seed)

    @property
    def longest_answer(self) -> int:
        """Tokens that an answer has at most: its bound, and the context's."""
        return min(self.sampling.max_tokens, self.engine.max_positions)

    @property
    def digest(self) -> str:
        """Of some weights of every parameter: a model that has learnt has another one."""
        found = sha256()
        for name, weights in self.engine.model.named_parameters():
            flat = weights.detach().reshape(-1)
            some = flat[:: max(flat.numel() // DIGEST_WEIGHTS, 1)].float().cpu().numpy()
            found.update(name.encode() + some.tobytes())
        return found.hexdigest()[:16]

    async def complete_streaming(
        self, on_text: OnText, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = ""
    ) -> Completion:
        """Like `complete`; `on_text` is called between passes of the model."""
        return await self.complete_with_options(AnswerOptions(), messages, tools, key=key, on_text=on_text)

    def with_sampling(self, sampling: SamplingOptions) -> Self:
        """The same model and engine, drawn from in another way."""
        return type(self)(self.engine, self.renderer, sampling, seed=self.seed)
