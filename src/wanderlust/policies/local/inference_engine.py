"""Continuous batching: requests join and leave between passes, and equal keys draw equal tokens in any batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wanderlust.errors import ContextFull, PolicyFailure, WanderlustError, boundary
from wanderlust.policies.base import OnTokens, SamplingOptions
from wanderlust.policies.local.device import memory_of
from wanderlust.policies.local.grammar import TokenMatcher
from wanderlust.policies.local.kv_cache import BatchedKVCache, KVCache, kv_cache_for
from wanderlust.policies.local.rows import Context
from wanderlust.policies.streaming_text import StopTexts

NGRAM_TOKENS = 3
"""Ids that a guess looks back on."""
MAX_DRAFT_TOKENS = 5
"""Most tokens guessed at once."""
MIN_LEAD = 2
"""Votes by which an id must lead to be guessed."""
MAX_NGRAM_ENTRIES = 65_536
"""Entries held; when there are more, all are forgotten."""


@dataclass(slots=True)
class NGramSpeculator:
    """For every n-gram of ids, the id that mostly followed (Boyer & Moore's majority vote).

    It guesses the next tokens from those sampled before; a pass reads the guesses along and keeps the right ones:
    speculative decoding (arXiv 2211.17192) without a second model. The draws of a request are keyed, so every position
    has one token that it draws, and answers are the same with and without guessing.
    """

    votes: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)
    """The leading id and its lead."""

    def learn(self, ids: Sequence[int], new: int) -> None:
        """Count the last `new` ids."""
        if len(self.votes) >= MAX_NGRAM_ENTRIES:
            self.votes.clear()
        for end in range(max(len(ids) - new, NGRAM_TOKENS), len(ids)):
            before, came = tuple(ids[end - NGRAM_TOKENS : end]), ids[end]
            leading, lead = self.votes.get(before, (came, 0))
            if leading == came:
                self.votes[before] = (leading, min(lead + 1, 4 * MIN_LEAD))
            else:
                self.votes[before] = (leading, lead - 1) if lead > 1 else (came, 1)

    def propose(self, ids: Sequence[int], room: int) -> tuple[int, ...]:
        """Guess the ids that follow, at most `room`; none without a clear majority."""
        tail, out = tuple(ids[-NGRAM_TOKENS:]), list[int]()
        while len(out) < min(room, MAX_DRAFT_TOKENS):
            leading, lead = self.votes.get(tail, (0, 0))
            if lead < MIN_LEAD:
                break
            out.append(leading)
            tail = (*tail[1:], leading)
        return tuple(out)


def uniforms(keys: list[int], counters: list[int]) -> Tensor:
    """Draw one number from [0, 1) per key and counter, float64 [B]; SplitMix64's finalizer (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        z = np.array(keys, np.uint64) + np.array(counters, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return torch.from_numpy((z >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def draw_tokens(
    logits: Tensor, u: Tensor, *, temperature: Tensor, top_p: Tensor, allowed: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Draw tokens [B] from logits [B, V] and one uniform draw a row; returns them and their log-probabilities [B].

    Only tokens that are `allowed`, bool [B, V], are drawn. Log-probabilities are those of softmax(logits / temperature)
    of all tokens before any top-p cut, which a trainer recomputes; at temperature 0 those of softmax(logits).
    """
    greedy = temperature == 0
    logprobs = torch.log_softmax(logits.float() / torch.where(greedy, 1.0, temperature)[:, None], -1)
    likely = logprobs if allowed is None else torch.log_softmax(logprobs.masked_fill(~allowed, -torch.inf), -1)
    if bool(greedy.all()):
        tokens = likely.argmax(-1)
    else:
        probabilities = likely.double().exp()
        if bool((top_p < 1).any()):
            ranked, order = probabilities.sort(-1, descending=True)
            before = ranked.cumsum(-1) - ranked
            ranked = torch.where(before < top_p[:, None], ranked, 0.0)
            probabilities = torch.zeros_like(ranked).scatter_(1, order, ranked)
        sums = probabilities.cumsum(-1)  # the inverse of this distribution function at `u` is the draw
        target = (u.to(sums.device) * sums[:, -1])[:, None]
        tokens = torch.searchsorted(sums, target, right=True)[:, 0].clamp(max=logprobs.shape[1] - 1)
        if bool(greedy.any()):
            tokens = torch.where(greedy, likely.argmax(-1), tokens)
    return tokens, logprobs.gather(1, tokens[:, None])[:, 0]


MAX_PREFILL_TOKENS = 16_384
"""Bound of the padded tokens in one reading pass."""
MAX_PADDING_TOKENS = 512
"""Padding of one reading pass, in tokens; more of it costs more than another pass."""
PREFILL_SHARE, MAX_PREFILL_DELAY_PASSES = 4, 8
"""Contexts are read once every 4th of the running requests waits for that, or after 8 passes: a pass for few costs
nearly as much as one for all, and contexts that are read together then sample together."""


@dataclass(slots=True, eq=False)
class SamplingRequest:
    """One answer being sampled."""

    context: Context
    sampling: SamplingOptions
    key: int
    """Keys the draws."""
    done: asyncio.Future[SamplingRequest]
    speculator: NGramSpeculator
    """Proposes drafts."""
    sampled: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = ""
    on_tokens: OnTokens | None = None
    """Receives the tokens so far after every pass."""
    stops: StopTexts | None = None
    matcher: TokenMatcher | None = None
    """Says which tokens may come next; None for all."""


@dataclass(slots=True)
class Counters:
    """Work of the engine so far, for throughput."""

    read: int = 0
    """Context tokens read."""
    sampled: int = 0
    """Tokens sampled."""
    passes: int = 0


class Engine:
    """Sample from one `transformers` causal language model for many conversations at once.

    Guarantees: greedy answers equal those of `model.generate`; draws depend on the request's key alone; the
    order of work depends on the order of requests alone, never on the clock.
    """

    def __init__(
        self,
        model: Any,
        *,
        end_ids: frozenset[int],
        decode: Any,
        max_rows: int = 512,
        fast: bool = True,
        cache_bytes: int = 0,
    ):
        """Without `fast`, `transformers` computes every forward pass, even where our own pass can.

        `cache_bytes` bounds what is cached (0: a quarter of the device's memory). Idle conversations are forgotten for
        it, the oldest first, and read again when they go on; requests wait until there is room.
        """
        self.model = model.eval()
        self.end_ids, self.decode, self.max_rows = end_ids, decode, max_rows
        self.kv_cache: KVCache = kv_cache_for(model, fast=fast)
        self.cache_bytes = cache_bytes or memory_of(model.device) // 4
        self.max_positions = int(getattr(model.config, "max_position_embeddings", 0) or 2**30)
        if isinstance(self.kv_cache, BatchedKVCache):
            self.kv_cache.max_bytes = self.cache_bytes
            self.max_positions = min(self.max_positions, self.kv_cache.longest_within(self.cache_bytes))
        self.counters = Counters()
        self.version = 0
        self._idle: dict[Context, None] = {}
        self._waiting: list[SamplingRequest] = []
        self._running: list[SamplingRequest] = []
        self._prefill_delay = 0
        """Passes that unread contexts have been waiting for."""
        self._driver: asyncio.Task[None] | None = None

    async def sample(
        self,
        context: Context,
        new: Sequence[int],
        *,
        sampling: SamplingOptions,
        key: int,
        speculator: NGramSpeculator | None = None,
        on_tokens: OnTokens | None = None,
        matcher: TokenMatcher | None = None,
    ) -> SamplingRequest:
        """Append `new` to the context and sample an answer, of what `matcher` allows; the context then ends in it.

        Requests with the same `speculator` share its statistics, which changes the speed alone. Raises ContextFull
        when the context leaves no room for a token.
        """
        if len(context.ids) + len(new) >= self.max_positions:
            raise ContextFull(
                f"the context has {len(context.ids) + len(new)} tokens and the model reads {self.max_positions}"
            )
        context.append(new)
        self._idle.pop(context, None)
        done = asyncio.get_running_loop().create_future()
        stops = StopTexts(self.decode, sampling.stop) if sampling.stop else None
        guesses = speculator or NGramSpeculator()
        request = SamplingRequest(
            context, sampling, key, done, guesses, on_tokens=on_tokens, stops=stops, matcher=matcher
        )
        self._waiting.append(request)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        return await request.done

    def release(self, context: Context) -> None:
        """Forget a conversation."""
        self._idle.pop(context, None)
        self.kv_cache.free(context)

    def publish(self) -> None:
        """Count a new version of the weights, and forget idle conversations, which were read under the old ones."""
        self.version += 1
        for context in list(self._idle):
            self.release(context)

    async def _drive(self) -> None:
        """Step until no request waits. A failing pass fails all requests."""
        try:
            with boundary(PolicyFailure):
                while self._waiting or self._running:
                    for _ in range(2):  # an agent that was just answered may ask again before the next pass
                        await asyncio.sleep(0)
                    self._admit()
                    if self._running:
                        self._step()
        except WanderlustError as error:
            for request in (*self._running, *self._waiting):
                self.kv_cache.free(request.context)
                if not request.done.done():
                    request.done.set_exception(PolicyFailure(f"the local model failed: {error}"))
            self._running, self._waiting = [], []

    def _admit(self) -> None:
        """Drop cancelled requests, then admit waiting ones while there are rows, freeing the oldest idle ones."""
        for request in [r for r in self._running if r.done.cancelled()]:
            self._running.remove(request)
            self.kv_cache.free(request.context)
        self._waiting = [r for r in self._waiting if not r.done.cancelled()]
        room = self.cache_bytes - self.kv_cache.footprint(r.context for r in self._running) if self._waiting else 0
        while self._waiting:
            request = self._waiting[0]
            room -= self.kv_cache.footprint([request.context])
            if room < 0 and self._running:
                return
            if request.context.row < 0 and len(self._running) + len(self._idle) >= self.max_rows:
                if not self._idle:
                    return
                self.release(next(iter(self._idle)))
            self._running.append(self._waiting.pop(0))

    @torch.inference_mode()
    def _step(self) -> None:
        """Run one pass: read new contexts and sample their first tokens, or else sample further tokens."""
        unread: list[SamplingRequest] = []
        decoding: list[SamplingRequest] = []
        for request in self._running:
            (decoding if request.sampled and request.context.cached_length else unread).append(request)
        due = bool(unread) and (
            len(unread) * PREFILL_SHARE >= len(self._running) or self._prefill_delay >= MAX_PREFILL_DELAY_PASSES
        )
        self._prefill_delay = self._prefill_delay + 1 if unread and not due else 0
        for chosen in _batch_by_length(unread) if due else [decoding]:
            if self.kv_cache.supports_drafts:
                for request in chosen:
                    context, room = request.context, request.sampling.max_tokens - len(request.sampled) - 1
                    room = 0 if request.matcher else min(room, self.max_positions - len(context.ids) - 1)
                    context.draft = request.speculator.propose(context.ids, room)
            batch = self._make_room(chosen)
            new = sum(len(r.context.ids) - r.context.cached_length for r in batch)
            logits = self.kv_cache.forward([r.context for r in batch])
            self.counters.read += new if due else 0
            self.counters.passes += 1
            self._append(batch, logits)
        finished = [r for r in self._running if r.finish]
        if finished:
            self._running = [r for r in self._running if not r.finish]
            for request in finished:
                self._idle[request.context] = None
                request.done.set_result(request)

    def _make_room(self, batch: list[SamplingRequest]) -> list[SamplingRequest]:
        """Keep the cache within its bound: the newest requests wait again, then what others have read is forgotten."""
        if all(r.context.end <= r.context.capacity for r in batch):
            return batch
        footprint = self.kv_cache.footprint
        room = self.cache_bytes - footprint(r.context for r in self._running)
        while room < 0 and len(self._running) > 1:
            last = self._running.pop()
            room += footprint([last.context])
            last.context.draft = ()
            self.kv_cache.free(last.context)
            self._waiting.insert(0, last)
        running = [r.context for r in self._running]
        held = [*self._idle, *(r.context for r in reversed(self._waiting) if r.context.row >= 0)]
        room -= footprint(held)
        for context in held:
            if room >= 0:
                break
            room += footprint([context])
            self.release(context)
        still = set(map(id, running))
        return [request for request in batch if id(request.context) in still]

    def _append(self, batch: list[SamplingRequest], logits: Tensor) -> None:
        """Draw tokens after every context's ids and each id of its draft, [N, V]; stop at the first wrong guess."""
        counts = [1 + len(r.context.draft) for r in batch]
        counters = [len(r.sampled) + 1 + i for r, n in zip(batch, counts, strict=True) for i in range(n)]
        keys = [r.key for r, n in zip(batch, counts, strict=True) for _ in range(n)]
        ways = [r.sampling for r, n in zip(batch, counts, strict=True) for _ in range(n)]
        tokens, logprobs = draw_tokens(
            logits,
            uniforms(keys, counters),
            temperature=torch.tensor([way.temperature for way in ways], device=logits.device),
            top_p=torch.tensor([way.top_p for way in ways], device=logits.device),
            allowed=allowed_tokens(batch, counts, logits),
        )
        drawn = list(zip(tokens.tolist(), logprobs.tolist(), strict=True))
        for request, n, end in zip(batch, counts, accumulate(counts), strict=True):
            context, before = request.context, len(request.sampled)
            draft, context.draft = context.draft, ()
            for i, (token, logprob) in enumerate(drawn[end - n : end]):
                request.sampled.append(token)
                request.logprobs.append(logprob)
                context.append((token,))
                stops = token in self.end_ids or (request.stops is not None and request.stops.found(request.sampled))
                full = len(context.ids) >= self.max_positions or len(request.sampled) >= request.sampling.max_tokens
                request.finish = "stop" if stops else "length" if full else ""
                if request.matcher is not None and not request.finish:
                    request.matcher.take(token)
                if request.finish or i == len(draft) or draft[i] != token:
                    break
            new = len(request.sampled) - before
            context.cached_length = len(context.ids) - 1
            self.counters.sampled += new
            request.speculator.learn(context.ids, new)
            if request.on_tokens is not None:
                request.on_tokens(request.sampled, request.logprobs)


def allowed_tokens(batch: Sequence[SamplingRequest], counts: Sequence[int], logits: Tensor) -> Tensor | None:
    """Which tokens may be drawn, bool as `logits` [N, V]; None where no request has a matcher."""
    if all(request.matcher is None for request in batch):
        return None
    allowed = torch.ones_like(logits, dtype=torch.bool)
    for request, n, end in zip(batch, counts, accumulate(counts), strict=True):
        if request.matcher is not None:
            allowed[end - n : end] = request.matcher.allowed(logits.shape[1]).to(logits.device)
    return allowed


def _batch_by_length(requests: list[SamplingRequest]) -> list[list[SamplingRequest]]:
    """Batch by length, shortest first, within MAX_PREFILL_TOKENS and MAX_PADDING_TOKENS."""
    batches: list[list[SamplingRequest]] = []
    longest = 0
    unread = [(len(r.context.ids) - r.context.cached_length, r) for r in requests]
    for length, request in sorted(unread, key=itemgetter(0)):
        count = len(batches[-1]) if batches else 0
        if not batches or (count + 1) * length > MAX_PREFILL_TOKENS or count * (length - longest) > MAX_PADDING_TOKENS:
            batches.append([])
        batches[-1].append(request)
        longest = length
    return batches
