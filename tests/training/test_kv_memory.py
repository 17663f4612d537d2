"""What the cache of a local model holds: about what its conversations need, and never more than its bound."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from architectures import tiny_model
from toys import TOKENIZER, Twice, fresh
from wanderlust.errors import ContextFull, UsageError
from wanderlust.policies.base import SamplingOptions
from wanderlust.policies.local.device import memory_of
from wanderlust.policies.local.inference_engine import Engine
from wanderlust.policies.local.kv_cache import BatchedKVCache, SingleKVCache
from wanderlust.policies.local.policy import LocalSampler
from wanderlust.policies.local.rows import Context
from wanderlust.training.config import TrainConfig
from wanderlust.training.models import cache_bytes
from wanderlust.training.trainers.replica import Replica

WORDS, POSITIONS = 97, 2048
KINDS = ["llama", "qwen3", "gemma3", "lfm2", "falcon-h1", "mamba2"]


def made(kind: str) -> Any:
    model = tiny_model(kind, vocabulary=WORDS, end=None)
    model.config.max_position_embeddings = POSITIONS
    return model


def engine_of(model: Any, **settings: Any) -> Engine:
    engine = Engine(model, end_ids=frozenset(), decode=lambda ids: " ".join(map(str, ids)), **settings)
    assert isinstance(engine.kv_cache, BatchedKVCache)
    return engine


def prompts(lengths: Sequence[int]) -> list[list[int]]:
    made = torch.Generator().manual_seed(3)
    return [torch.randint(2, WORDS, (length,), generator=made).tolist() for length in lengths]


def turns(engine: Engine, asked: Sequence[list[int]], *, tokens: int = 12, count: int = 2) -> list[list[Any]]:
    """Conversations at once, each of `count` turns, and held to the end."""
    sampler, sizes = LocalSampler(engine), list[int]()
    forward = engine.kv_cache.forward

    def watched(contexts: Any) -> Any:
        logits = forward(contexts)
        assert isinstance(engine.kv_cache, BatchedKVCache)
        sizes.append(engine.kv_cache.size)
        return logits

    engine.kv_cache.forward = watched  # type: ignore[method-assign]

    async def talk(number: int) -> list[Any]:
        ids, out = list(asked[number]), []
        for turn in range(count):
            done = await sampler.sample(
                ids, SamplingOptions(max_tokens=tokens), key=100 * number + turn, session=f"{number}"
            )
            out.append((len(ids), done))
            ids += [*done.ids, 5, 6, 7]
        return out

    async def talks() -> list[list[Any]]:
        return await asyncio.gather(*(talk(number) for number in range(len(asked))))

    said = asyncio.run(talks())
    assert max(sizes) <= engine.cache_bytes
    engine.kv_cache.forward = forward  # type: ignore[method-assign]
    return said


def worst_gap(model: Any, asked: Sequence[list[int]], said: Sequence[list[Any]]) -> float:
    """Largest difference of a log-probability from that of a plain forward pass."""
    worst = 0.0
    for prompt, conversation in zip(asked, said, strict=True):
        ids = list(prompt)
        for start, done in conversation:
            ids = [*ids[:start], *[5, 6, 7][: start - len(ids)], *done.ids]
            with torch.no_grad():
                plain = model(torch.tensor([ids]), use_cache=False).logits[0].log_softmax(-1)
            chosen = plain[start - 1 : len(ids) - 1].gather(1, torch.tensor(done.ids)[:, None])[:, 0]
            worst = max(worst, float((chosen - torch.tensor(done.logprobs)).abs().max()))
    return worst


@pytest.mark.parametrize("kind", KINDS)
def test_one_long_conversation_costs_its_own_length(kind: str) -> None:
    model, asked = made(kind), prompts([1800, *range(70, 70 + 31)])
    engine = engine_of(model)
    cache = engine.kv_cache
    assert isinstance(cache, BatchedKVCache)
    said = turns(engine, asked)
    lengths = [start + len(done.ids) for *_, (start, done) in said]
    by_position, besides = cache._row_bytes()
    needed = sum(lengths) * by_position + len(lengths) * besides
    assert cache.size < 1.5 * needed + engine.counters.passes  # in whole rows
    assert not by_position or cache.size < 0.15 * 32 * (max(lengths) * by_position + besides) + 32 * besides
    assert worst_gap(model, asked[:3], said[:3]) < 1e-4


def tokens_of(said: Sequence[list[Any]]) -> list[list[tuple[int, ...]]]:
    return [[done.ids for _, done in conversation] for conversation in said]


@pytest.mark.parametrize("kind", KINDS)
def test_within_a_bound_the_same_tokens_are_sampled(kind: str) -> None:
    """Half of what the conversations need: some wait, and some are forgotten and read again."""
    model, asked = made(kind), prompts([120, 300, 20, 90, 110, 40, 250, 60])
    plenty = engine_of(model)
    wanted = turns(plenty, asked)
    assert isinstance(plenty.kv_cache, BatchedKVCache)
    bound = plenty.kv_cache.footprint(plenty.kv_cache.contexts) // 2
    scarce, again = engine_of(model, cache_bytes=bound), engine_of(model, cache_bytes=bound)
    said = turns(scarce, asked)
    assert tokens_of(said) == tokens_of(wanted)
    assert scarce.counters.read > plenty.counters.read
    assert worst_gap(model, asked, said) < 1e-4
    assert turns(again, asked) == said  # to the last bit


@pytest.mark.parametrize("kind", KINDS)
def test_siblings_have_one_row_until_they_part(kind: str) -> None:
    model, (opening,) = made(kind), prompts([90])
    cache = engine_of(model).kv_cache
    assert isinstance(cache, BatchedKVCache)
    siblings = [Context() for _ in range(4)]
    for sibling in siblings:
        sibling.append(opening)
    playing = siblings[1:]
    taken: list[int] = []

    def read(contexts: Sequence[Context], *tokens: int) -> None:
        for context, token in zip(contexts, tokens, strict=False):
            context.append([token])
        with torch.inference_mode():
            logits = cache.forward(contexts)
            for context, row in zip(contexts, logits, strict=True):
                torch.testing.assert_close(row, model(torch.tensor([context.ids])).logits[0, -1], rtol=1e-3, atol=1e-3)
        taken.append(len({(c.capacity, c.row) for c in siblings}))

    read(siblings)
    read(playing, 7, 7, 7)
    read(playing, 8, 9, 8)
    read(siblings, 7, 5, 5, 5)
    read(siblings, 8, 6, 6, 6)
    one = int(cache.has_states)  # who does not play keeps a state to itself
    assert taken == [1, 1 + one, 2 + one, 3, 3]
    for sibling in siblings:
        cache.free(sibling)
    assert not cache.contexts


def test_requests_that_outgrow_the_bound_wait_and_draw_the_same() -> None:
    """Short prompts and long answers: all begin, and the newest give their room to the others."""
    model, asked = made("llama"), prompts([30] * 6)
    plenty = engine_of(model)
    wanted = turns(plenty, asked, tokens=300, count=1)
    assert isinstance(plenty.kv_cache, BatchedKVCache)
    scarce = engine_of(model, cache_bytes=plenty.kv_cache.footprint(plenty.kv_cache.contexts) // 3)
    said = turns(scarce, asked, tokens=300, count=1)
    assert tokens_of(said) == tokens_of(wanted)
    assert scarce.counters.read > plenty.counters.read + 6 * 128


def test_a_conversation_that_does_not_fit_the_bound_is_full() -> None:
    model = made("llama")
    cache = engine_of(model).kv_cache
    assert isinstance(cache, BatchedKVCache)
    by_position, _ = cache._row_bytes()
    engine = engine_of(model, cache_bytes=400 * by_position)
    with pytest.raises(ContextFull, match="256"):
        turns(engine, prompts([280]))
    ((_, done),) = turns(engine, prompts([250]), count=1)[0]
    assert (len(done.ids), done.finish) == (6, "length")
    with pytest.raises(UsageError, match=r"^the cache may take 0 MiB, [^\n]* raise cache_gib$"):
        engine_of(model, cache_bytes=100 * by_position)


def test_large_pools_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanderlust.policies.local.kv_cache.MAX_IDLE_POOL_BYTES", 2**16)
    engine = engine_of(made("llama"))
    sampler = LocalSampler(engine)
    asyncio.run(sampler.sample(prompts([1000])[0], SamplingOptions(max_tokens=2), key=1, session="a"))
    cache = engine.kv_cache
    assert isinstance(cache, BatchedKVCache)
    assert cache.size > 1000 * cache._row_bytes()[0]
    sampler.release("a")
    assert not cache.pools


def test_a_runs_setting_bounds_its_samplers_and_is_recorded() -> None:
    model, config = made("llama"), TrainConfig(cache_gib=0.25, shards=4)
    assert cache_bytes(config, model.device) == 2**28
    assert TrainConfig.from_dict({**config.as_dict(), "env": ""}).cache_gib == 0.25
    assert cache_bytes(config.replace(cache_gib=0.0), model.device) == memory_of("cpu") // 8
    replica = Replica(fresh(0), TOKENIZER, Twice(), config=config)
    assert replica.policy.engine.cache_bytes == 2**28


def test_the_general_cache_counts_all_contexts_however_they_are_passed() -> None:
    model = tiny_model("bloom", vocabulary=WORDS, end=None)
    cache = SingleKVCache(model)
    contexts = [Context(ids=ids) for ids in prompts([5, 9])]
    cache.forward(contexts)
    assert cache.footprint(iter(contexts)) == cache.footprint(contexts) > 0
