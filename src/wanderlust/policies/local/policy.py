"""A policy that is a language model in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from wanderlust.policies.local.context import Context
from wanderlust.policies.local.drafts import Drafts
from wanderlust.policies.local.engine import Engine
from wanderlust.policies.render import Renderer
from wanderlust.policies.sampling import Heard, Sampled, Sampling
from wanderlust.policies.tokens import TokenPolicy


class LocalSampler:
    """The engine of this process as a sampler: a session's memory is kept, and only what is new in it is read."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self._drafts = Drafts()
        self._sessions: dict[str, Context] = {}

    async def sample(
        self, prompt: Sequence[int], sampling: Sampling, *, key: int, session: str = "", heard: Heard | None = None
    ) -> Sampled:
        """Draw one answer; equal keys draw equally. PolicyFailure when the prompt is too long or the model fails."""
        context = self._sessions.get(session) if session else None
        if context is None:
            context = Context()
        if session:
            self._sessions[session] = context
        new, version = prompt[len(context.ids) :], self.engine.version
        request = await self.engine.sample(context, new, sampling=sampling, key=key, drafts=self._drafts, heard=heard)
        if not session:
            self.engine.release(context)
        return Sampled(
            ids=tuple(request.sampled),
            logprobs=tuple(request.logprobs),
            finish=request.finish,
            version=version,
        )

    def release(self, session: str) -> None:
        """Forget a conversation."""
        context = self._sessions.pop(session, None)
        if context is not None:
            self.engine.release(context)


class LocalPolicy(TokenPolicy):
    """A policy whose engine is in this process; keeps each conversation's memory across its turns."""

    def __init__(self, engine: Engine, renderer: Renderer, sampling: Sampling | None = None, *, seed: int = 0):
        super().__init__(LocalSampler(engine), renderer, sampling, seed=seed)
        self.engine = engine

    @classmethod
    def of(
        cls, model: Any, tokenizer: Any, sampling: Sampling | None = None, *, seed: int = 0, fast: bool = True
    ) -> Self:
        """A policy of a `transformers` model and its tokenizer, which `transformers` itself reads unless `fast`."""
        renderer = Renderer(tokenizer)
        engine = Engine(model, end_ids=renderer.end_ids, decode=tokenizer.decode, fast=fast)
        return cls(engine, renderer, sampling, seed=seed)

    def sampled(self, sampling: Sampling) -> Self:
        """The same model and engine, drawn from in another way."""
        return type(self)(self.engine, self.renderer, sampling, seed=self.seed)
